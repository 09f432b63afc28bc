"""The tar format, block by block: headers decoded and encoded, nothing read or written.

A tar archive is a row of members, each a header block of 512 bytes and its content padded to blocks, ended
by a block of zeros. Numbers are octal text, or base 256 when the first bit of the field is set (GNU). What a
header has no room for comes in front of it, as a member of its own: a long name (`L`) or link target (`K`) in
GNU archives, records `length key=value` in pax archives (`x` for the next member, `g` for all that follow).
Sparse files hold only their data, and a map of where it belongs, in one of four notations.

Sources: tar(5) of libarchive; POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; the GNU
tar manual, "Basic Tar Format" and "Storing Sparse Files". Encoding follows GNU, as contract e.6 says.
"""

from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct
from zlib import adler32

from agentd.rules.members import MemberType

BLOCK = 512
ZERO_BLOCK = bytes(BLOCK)
END = bytes(2 * BLOCK)
"""What ends an archive."""

MAX_EXTENTS = 512 * 1024
"""Most pieces of data in one sparse file: 8 MiB of map."""

_TYPES = {
    b"1": MemberType.HARD_LINK,
    b"2": MemberType.SYMLINK,
    b"3": MemberType.DEVICE,
    b"4": MemberType.DEVICE,
    b"5": MemberType.DIRECTORY,
    b"6": MemberType.FIFO,
}
_PLAIN = frozenset({b"0", b"\0", b"7"})
_CHECKSUM_BLANK = 8 * 0x20


class Malformed(ValueError):
    """A block that is no header, or a field that means nothing; the text says what."""


Header = tuple[bytes, bytes, int, int, bytes]
"""What every header says: name, type byte, permission bits, length of what follows it, link target."""


def padded(size: int) -> int:
    """`size` rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


# -- decoding --------------------------------------------------------------------------------------------------


_FIELDS = Struct("100s8s16x12s12x8s1s100s6s82x155s12x")
_ADLER_BASE = 65521
_BLANK = (0, 0x20)


def decode(block: bytes) -> Header:
    """The header in `block`, 512 bytes that are not all zero. Raises `Malformed`."""
    name, mode, size, checksum, flag, link, magic, prefix = _FIELDS.unpack(block)
    # The usual notation of three numbers, read by one conversion: a microsecond less for every member.
    digits = mode[:7] + size[:11] + checksum[:6]
    if digits.isdigit() and (mode[7] | size[11] | checksum[6]) in _BLANK:
        numbers = _octal(digits)
        permissions, length, expected = numbers >> 51, numbers >> 18 & 0o77777777777, numbers & 0o777777
    else:
        permissions, length, expected = number(mode), number(size), number(checksum[:7])
    total = expected - _CHECKSUM_BLANK + sum(checksum)
    if (total - _sum(block)) % _ADLER_BASE and expected != _signed_sum(block):
        raise Malformed("not a tar header: its checksum does not fit")
    name = name.partition(b"\0")[0]
    if prefix[0] and magic == b"ustar\0":
        name = _text(prefix) + b"/" + name
    link = _text(link) if link[0] else b""
    return name, flag, permissions & 0o7777, length, link


def _sum(data: bytes) -> int:
    """The sum of the bytes, modulo 65521, as the low half of Adler-32 has it.

    `sum` over a block takes the interpreter 2.4 µs, a tenth of what a small member costs in all; this takes 0.3.
    """
    return (adler32(data) & 0xFFFF) - 1


def _signed_sum(block: bytes) -> int:
    # Some ancient writers summed signed characters.
    return sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + _CHECKSUM_BLANK


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def number(field: bytes) -> int:
    """The value of a number field, zero or more. Raises `Malformed`."""
    if field[-1] in b"\0 " and (digits := field[:-1]).isdigit():
        return _octal(digits)
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise Malformed("a number is negative")
        value = int.from_bytes(field[1:], "big") | (field[0] & 0x3F) << 8 * (len(field) - 1)
        if value >= 2**63:
            raise Malformed("a number is too large")
        return value
    digits = _text(field).strip()
    if digits and not digits.isdigit():
        raise Malformed("a number is not octal")
    return _octal(digits) if digits else 0


def _octal(digits: bytes) -> int:
    try:
        return int(digits, 8)
    except ValueError:
        raise Malformed("a number is not octal") from None


def member_type(flag: bytes, name: bytes) -> MemberType:
    """What a type byte asks for. A plain file whose name ends in `/` is a directory, as before POSIX."""
    found = _TYPES.get(flag)
    if found is not None:
        return found
    return MemberType.DIRECTORY if flag in _PLAIN and name.endswith(b"/") else MemberType.FILE


def records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The (key, value) records of a pax header's content, in order. Raises `Malformed`."""
    position = 0
    while position < len(data) and data[position]:
        space = data.find(b" ", position, position + 21)
        length = data[position:space]
        if space < 0 or not length.isdigit():
            raise Malformed("a pax record has no length")
        end = position + int(length)
        equals = data.find(b"=", space, end)
        if end > len(data) or equals < 0 or data[end - 1 : end] != b"\n":
            raise Malformed("a pax record does not fit its length")
        yield data[space + 1 : equals], data[equals + 1 : end - 1]
        position = end


def decimal(text: bytes) -> int:
    """The value of a decimal number, as pax writes them. Raises `Malformed`."""
    if not text.isdigit() or len(text) > 19:
        raise Malformed("a number is not decimal")
    return int(text)


class SparseMap:
    """Where the data of a sparse file belongs: ascending pieces (offset, length) inside `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._flat = array("Q")
        self._end = 0
        self.stored = 0

    def add(self, offset: int, length: int) -> None:
        """Append a piece. Raises `Malformed` when it does not lie behind the others and inside the file."""
        if offset < self._end or offset + length > self.size:
            raise Malformed("a sparse map is out of order or leaves its file")
        if not length:
            return
        if len(self._flat) >= 2 * MAX_EXTENTS:
            raise Malformed(f"a sparse file has more than {MAX_EXTENTS} pieces")
        self._flat.extend((offset, length))
        self._end = offset + length
        self.stored += length

    def __iter__(self) -> Iterator[tuple[int, int]]:
        flat = iter(self._flat)
        return zip(flat, flat, strict=True)

    def __len__(self) -> int:
        return len(self._flat) // 2


def sparse_pairs(block: bytes, begin: int, count: int) -> Iterator[tuple[int, int]]:
    """The used (offset, length) entries of a GNU sparse header or of one of its extension blocks."""
    for at in range(begin, begin + 24 * count, 24):
        if not block[at] or not block[at + 12]:
            return
        yield number(block[at : at + 12]), number(block[at + 12 : at + 24])


# -- encoding --------------------------------------------------------------------------------------------------

_GNU_MAGIC = b"ustar  \0"


def _back(flag: bytes) -> tuple[bytes, int]:
    """What follows the checksum in a header that only has a name and numbers, and what it adds to the checksum."""
    back = (flag + bytes(100) + _GNU_MAGIC).ljust(BLOCK - 156, b"\0")
    return back, sum(back) + _CHECKSUM_BLANK


_BACKS = {flag: _back(flag) for flag in (b"0", b"2", b"3", b"4", b"5", b"6", b"S")}


@lru_cache(maxsize=256)
def _owner(mode: int, uid: int, gid: int) -> bytes:
    return b"%07o\0%07o\0%07o\0" % (mode, uid, gid)


def encode(
    name: bytes,
    flag: bytes,
    mode: int,
    uid: int,
    gid: int,
    size: int,
    mtime: int,
    link: bytes = b"",
    device: tuple[int, int] | None = None,
    tail: bytes = b"",
) -> bytes:
    """A GNU header, preceded by `L` and `K` members when the name or link target needs them.

    `tail` fills the block from byte 345 on, where sparse headers keep their map.
    """
    if len(name) <= 100 and not link and device is None and not tail and mtime >= 0:
        front = b"%b%b%011o\0%011o\0" % (name.ljust(100, b"\0"), _owner(mode, uid, gid), size, mtime)
        if len(front) == 148:
            # These 148 bytes cannot sum up to the modulus of `_sum`.
            back, rest = _BACKS[flag]
            return b"%b%06o\0 %b" % (front, _sum(front) + rest, back)
    front = b""
    if len(name) > 100:
        front = _long(b"L", name)
        name = name[:100]
    if len(link) > 100:
        front += _long(b"K", link)
        link = link[:100]
    return front + _block(name, flag, mode, uid, gid, size, mtime, link, device, tail)


def _block(
    name: bytes,
    flag: bytes,
    mode: int,
    uid: int,
    gid: int,
    size: int,
    mtime: int,
    link: bytes,
    device: tuple[int, int] | None,
    tail: bytes,
) -> bytes:
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, uid, gid, size, mtime)
    if len(numbers) != 48 or mtime < 0:
        numbers = b"".join(
            (_field(mode, 8), _field(uid, 8), _field(gid, 8), _field(size, 12), _field(mtime, 12))
        )
    block = b"%b%b        %b%b%b" % (
        name.ljust(100, b"\0"),
        numbers,
        flag,
        link.ljust(100, b"\0"),
        _GNU_MAGIC,
    )
    if device is not None:
        block += bytes(64) + _field(device[0], 8) + _field(device[1], 8)
    block = (block.ljust(345, b"\0") + tail).ljust(BLOCK, b"\0")
    return b"%b%06o\0 %b" % (block[:148], sum(block), block[156:])


def _field(value: int, width: int) -> bytes:
    if 0 <= value < 8 ** (width - 1):
        return b"%0*o\0" % (width - 1, value)
    # Base 256, two's complement, marked by its first bit.
    first, mask = (0xFF, (1 << 8 * (width - 1)) - 1) if value < 0 else (0x80, -1)
    return bytes([first]) + (value & mask).to_bytes(width - 1, "big")


def _long(flag: bytes, text: bytes) -> bytes:
    content = text + b"\0"
    header = _block(b"././@LongLink", flag, 0, 0, 0, len(content), 0, b"", None, b"")
    return header + content.ljust(padded(len(content)), b"\0")


def encode_sparse_map(pieces: Iterable[tuple[int, int]], size: int) -> tuple[bytes, bytes]:
    """The tail of a GNU sparse header for this map, and the extension blocks that follow the header.

    A map whose last piece ends before `size` is closed by an empty piece there, as GNU tar does.
    """
    entries = list(pieces)
    if not entries or entries[-1][0] + entries[-1][1] < size:
        entries.append((size, 0))
    encoded = [_field(offset, 12) + _field(length, 12) for offset, length in entries]
    first, rest = encoded[:4], encoded[4:]
    tail = bytes(41) + b"".join(first).ljust(96, b"\0") + (b"\1" if rest else b"\0") + _field(size, 12)
    extension = bytearray()
    for at in range(0, len(rest), 21):
        more = b"\1" if len(rest) > at + 21 else b"\0"
        extension += (b"".join(rest[at : at + 21]).ljust(504, b"\0") + more).ljust(BLOCK, b"\0")
    return tail, bytes(extension)
