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
TEXT, BINARY, CLOSE = 0x1, 0x2, 0x8


def frame(opcode: int, payload: bytes) -> bytes:
    """A message of at most 125 bytes, in one frame, masked with zeros (5.3 asks for a mask, and gets one)."""
    if len(payload) > 125:
        raise ValueError("a message of more than 125 bytes")
    return bytes((0x80 | opcode, 0x80 | len(payload))) + bytes(4) + payload


def text(message: str) -> bytes:
    """A text message."""
    return frame(TEXT, message.encode())


def close(code: int) -> bytes:
    """A close frame."""
    return frame(CLOSE, struct.pack(">H", code))


def close_code(payload: bytes) -> int | None:
    """The code of a close frame; None when it has none."""
    return int.from_bytes(payload[:2]) if len(payload) >= 2 else None


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
