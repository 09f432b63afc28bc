"""Names of libraries that the tunnel uses beyond their documented interfaces: a change in them shows here first."""

import inspect

import autobahn.websocket
from autobahn.twisted.websocket import WebSocketServerProtocol
from autobahn.websocket.protocol import WebSocketProtocol
from twisted.protocols.basic import LineReceiver
from twisted.web.http import HTTPChannel


def test_autobahn_has_what_is_overridden_and_called() -> None:
    for name, parameters in {
        "consumeData": ["self"],
        "processData": ["self"],
        "sendData": ["self", "data", "sync", "chopsize"],
        "sendCloseFrame": ["self", "code", "reasonUtf8", "isReply"],
        "onCloseFrame": ["self", "code", "reasonRaw"],
        "_fail_connection": ["self", "code", "reason"],
        "_dataReceived": ["self", "data"],
        "sendMessage": ["self", "payload", "isBinary", "fragmentSize", "sync", "doNotCompress"],
    }.items():
        assert list(inspect.signature(getattr(WebSocketServerProtocol, name)).parameters) == parameters, name


def test_autobahn_takes_settings_over_where_that_is_replaced() -> None:
    source = inspect.getsource(WebSocketProtocol._connectionMade)
    assert "setattr(self, configAttr, getattr(self.factory, configAttr))" in source
    assert "CONFIG_ATTRS" not in source.replace("in self.CONFIG_ATTRS:", "", 1)
    assert [
        *WebSocketProtocol.CONFIG_ATTRS_COMMON,
        *WebSocketProtocol.CONFIG_ATTRS_SERVER,
    ] == WebSocketServerProtocol.CONFIG_ATTRS


def test_autobahn_fails_connections_in_one_place() -> None:
    """Every violation ends in `_fail_connection`, and with `failByDrop` parsing stops there."""
    for name in ("_protocol_violation", "_invalid_payload"):
        source = inspect.getsource(getattr(WebSocketProtocol, name))
        assert "_fail_connection(" in source
        assert "if self.failByDrop:\n            return True" in source


def test_autobahn_parses_in_the_loop_that_is_replaced() -> None:
    source = inspect.getsource(WebSocketProtocol.consumeData)
    assert "while self.processData() and self.state != WebSocketProtocol.STATE_CLOSED:" in source
    assert "self.data += data\n        self.consumeData()" in inspect.getsource(
        WebSocketProtocol._dataReceived
    )


def test_unmasking_is_native() -> None:
    """In Python it is over a hundred times slower (4 MB/s)."""
    assert autobahn.websocket.USES_NVX


def test_the_channel_keeps_early_bytes_where_the_hand_over_looks() -> None:
    assert HTTPChannel()._dataBuffer == []
    assert "self._dataBuffer.append(data)" in inspect.getsource(HTTPChannel.rawDataReceived)
    assert "self.rawDataReceived(data)" in inspect.getsource(LineReceiver.dataReceived)
