"""The client's half of a WebSocket, as bytes (RFC 6455): as much of it as replay says and hears."""

import struct
from typing import Final

KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
"""Any key will do, for nobody is between the two."""
HANDSHAKE: Final = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
)
TEXT, CLOSE = 0x1, 0x8


def text(message: str) -> bytes:
    """A text message of at most 125 bytes, in one frame, masked with zeros (5.3 asks for a mask, and gets one)."""
    data = message.encode()
    if len(data) > 125:
        raise ValueError("a message of more than 125 bytes")
    return bytes((0x80 | TEXT, 0x80 | len(data))) + bytes(4) + data


def frames(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The complete frames of a server: opcode and payload; and how many bytes they take."""
    found, at = [], 0
    while len(data) - at >= 2:
        length, begin = data[at + 1] & 0x7F, at + 2
        if length == 126:
            if len(data) < begin + 2:
                break
            (length,) = struct.unpack_from(">H", data, begin)
            begin += 2
        elif length == 127:
            if len(data) < begin + 8:
                break
            (length,) = struct.unpack_from(">Q", data, begin)
            begin += 8
        if len(data) < begin + length:
            break
        found.append((data[at] & 0xF, data[begin : begin + length]))
        at = begin + length
    return found, at
