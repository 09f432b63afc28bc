"""WebSocket as bytes (RFC 6455): as much of it as replay says and hears, mostly as a client."""

import struct
from collections.abc import Iterator
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


def served(opcode: int, payload: bytes) -> bytes:
    """The same as a server sends it."""
    if len(payload) > 125:
        raise ValueError("a message of more than 125 bytes")
    return bytes((0x80 | opcode, len(payload))) + payload


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
    for begin, end in _cut(data):
        found.append((data[at] & 0xF, data[begin:end]))
        at = end
    return found, at


def pieces(data: bytes) -> tuple[list[bytes], int]:
    """The complete frames of whoever it is, as they are on the wire; and how many bytes they take."""
    found, at = [], 0
    for _, end in _cut(data):
        found.append(data[at:end])
        at = end
    return found, at


def kind(piece: bytes) -> tuple[int, int | None]:
    """The opcode of a frame on the wire, and the code of a close frame that has one."""
    (begin, end) = next(_cut(piece))
    payload = piece[begin:end]
    if piece[1] & 0x80:
        mask = piece[begin - 4 : begin]
        payload = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    opcode = piece[0] & 0xF
    return opcode, close_code(payload) if opcode == CLOSE else None


def _cut(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the payload of each complete frame begins and ends (5.2)."""
    at = 0
    while len(data) - at >= 2:
        length, begin = data[at + 1] & 0x7F, at + 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, begin = int.from_bytes(data[begin : begin + size]), begin + size
        if data[at + 1] & 0x80:
            begin += 4
        if len(data) < begin + length:
            return
        yield begin, begin + length
        at = begin + length
