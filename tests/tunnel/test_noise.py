"""Noise KK against published vectors, against another implementation, and against what must not open."""

import importlib.metadata
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from agentd.tunnel import noise
from agentd.tunnel.noise import MAX_PLAINTEXT_BYTES, PROTOCOL_NAME, Handshake, NoiseError, Session

H = bytes.fromhex
INIT_STATIC = H("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1")
INIT_EPHEMERAL = H("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a")
INIT_PUBLIC = H("6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a")
RESP_STATIC = H("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893")
RESP_EPHEMERAL = H("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b")
RESP_PUBLIC = H("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62")

TRANSPORT = [
    ("462e20412e20486179656b", "5f92113edf78c3e56e6d67201f5f9e0c8f2930c3e1ffb64ede0358"),
    ("4361726c204d656e676572", "30ebbd9cdcef7f40d99c8cd11e880dac28f5c9e5032c1059b3b56a"),
    (
        "4a65616e2d426170746973746520536179",
        "b011620dc31f88abd1788db50912952fe45da56e9d0907ab2cbce5f609b58b1cf2",
    ),
    (
        "457567656e2042f6686d20766f6e2042617765726b",
        "a0661971e9047b28a815c7b1f62fefb471e4d34bc2a5b48149e7f80c3772b8e4aae8b44baa",
    ),
]
"""Transport messages of both vectors (payload, ciphertext), alternating, the initiator's first."""

VECTORS = {
    # cacophony's vectors/cacophony.txt, "Noise_KK_25519_ChaChaPoly_BLAKE2s"; also in snow's tests/vectors
    "cacophony": (
        "4a6f686e2047616c74",
        "1362b8627a00907ce11e558aba8ce7cbca88e83f0e84ce7db5159b1c3e25ab59",
        (
            "4c756477696720766f6e204d69736573",
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
            "266a5f53784aa3becb0f7485c2759c328937867a4cbaafef07422b0725e098be",
        ),
        (
            "4d757272617920526f746862617264",
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
            "008aeea5d76d6abcbab87a18502c8a8352d9933ac11e2a7d228038d721e31e",
        ),
    ),
    # noiseprotocol's noise/tests/vectors/Noise_KK_25519_ChaChaPoly_BLAKE2s.json: another prologue
    "noiseprotocol": (
        "50726f6c6f677565313233",
        "433808b89eaea4e44419b98c5ab4d621535b13d19ddee8aa9eb38eb06da112f0",
        (
            "4c756477696720766f6e204d69736573",
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
            "266a5f53784aa3becb0f7485c2759c328757f5508153926ffada1717f0336177",
        ),
        (
            "4d757272617920526f746862617264",
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
            "008aeea5d76d6abcbab87a18502c8ac7a0017854df05b99fe1dea479c6473b",
        ),
    ),
}


def pair(prologue: bytes = b"") -> tuple[Handshake, Handshake]:
    return (
        noise.initiator(INIT_STATIC, RESP_PUBLIC, prologue=prologue),
        noise.responder(RESP_STATIC, INIT_PUBLIC, prologue=prologue),
    )


def sessions() -> tuple[Session, Session]:
    initiator, responder = pair()
    responder.read(initiator.write(b""))
    initiator.read(responder.write(b""))
    return initiator.split(), responder.split()


@pytest.mark.parametrize("name", VECTORS)
def test_published_vector(name: str) -> None:
    prologue, handshake_hash, first, second = VECTORS[name]
    initiator = noise.initiator(
        INIT_STATIC,
        RESP_PUBLIC,
        prologue=H(prologue),
        ephemeral=X25519PrivateKey.from_private_bytes(INIT_EPHEMERAL),
    )
    responder = noise.responder(
        RESP_STATIC,
        INIT_PUBLIC,
        prologue=H(prologue),
        ephemeral=X25519PrivateKey.from_private_bytes(RESP_EPHEMERAL),
    )
    message = initiator.write(H(first[0]))
    assert message.hex() == first[1]
    assert responder.read(message) == H(first[0])
    message = responder.write(H(second[0]))
    assert message.hex() == second[1]
    assert initiator.read(message) == H(second[0])
    ends = initiator.split(), responder.split()
    assert [end.handshake_hash.hex() for end in ends] == [handshake_hash] * 2
    for number, (payload, ciphertext) in enumerate(TRANSPORT):
        sender, receiver = ends if number % 2 == 0 else ends[::-1]
        assert sender.seal(H(payload)).hex() == ciphertext
        assert receiver.open(H(ciphertext)) == H(payload)


def other(initiates: bool) -> Any:
    """The other implementation, in one role."""
    connection = NoiseConnection.from_name(PROTOCOL_NAME)
    if initiates:
        connection.set_as_initiator()
    else:
        connection.set_as_responder()
    secret, remote = (INIT_STATIC, RESP_PUBLIC) if initiates else (RESP_STATIC, INIT_PUBLIC)
    connection.set_keypair_from_private_bytes(Keypair.STATIC, secret)
    connection.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, remote)
    connection.start_handshake()
    return connection


@pytest.mark.parametrize("flags", [b"", b"\x01", b"\x01\xff and more"])
def test_interoperates_as_initiator(flags: bytes) -> None:
    ours, theirs = noise.initiator(INIT_STATIC, RESP_PUBLIC), other(False)
    assert bytes(theirs.read_message(ours.write(flags))) == flags
    assert ours.read(bytes(theirs.write_message(b"\x01"))) == b"\x01"
    session = ours.split()
    for size in (0, 1, 32768, MAX_PLAINTEXT_BYTES):
        assert bytes(theirs.decrypt(session.seal(bytes(size)))) == bytes(size)
        assert session.open(bytes(theirs.encrypt(bytes(size)))) == bytes(size)


@pytest.mark.parametrize("flags", [b"", b"\x01"])
def test_interoperates_as_responder(flags: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = other(True)
    ours = noise.responder(RESP_STATIC, INIT_PUBLIC)
    assert ours.read(bytes(theirs.write_message(flags))) == flags
    assert bytes(theirs.read_message(ours.write(b"\x01"))) == b"\x01"
    session = ours.split()
    for size in (0, 1, 32768, MAX_PLAINTEXT_BYTES):
        assert bytes(theirs.decrypt(session.seal(bytes(size)))) == bytes(size)
        assert session.open(bytes(theirs.encrypt(bytes(size)))) == bytes(size)


def test_sizes_of_the_tunnel() -> None:
    """Contract f.2: 49 bytes with the flag, 48 without; 16 more than the plaintext afterwards."""
    assert len(pair()[0].write(b"\x01")) == 49
    assert len(pair()[0].write(b"")) == 48
    ours, _ = sessions()
    assert len(ours.seal(b"")) == 16
    assert len(ours.seal(bytes(MAX_PLAINTEXT_BYTES))) == 65535
    with pytest.raises(NoiseError, match="too much"):
        ours.seal(bytes(MAX_PLAINTEXT_BYTES + 1))


@given(st.lists(st.binary(max_size=300), max_size=8))
@settings(max_examples=40, deadline=None)
def test_messages_open_in_order_and_once(messages: list[bytes]) -> None:
    ours, theirs = sessions()
    sealed = [ours.seal(message) for message in messages]
    for plain, message in zip(messages, sealed, strict=True):
        assert theirs.open(message) == plain
        with pytest.raises(NoiseError):
            theirs.open(message)


def test_a_reordered_message_does_not_open() -> None:
    ours, theirs = sessions()
    first, second = ours.seal(b"a"), ours.seal(b"a")
    assert first != second
    with pytest.raises(NoiseError):
        theirs.open(second)
    assert theirs.open(first) == b"a"


def test_no_message_opens_at_its_sender() -> None:
    ours, _ = sessions()
    message = ours.seal(b"reflected")
    with pytest.raises(NoiseError):
        ours.open(message)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_changed_bit_goes_unnoticed(data: st.DataObject) -> None:
    initiator, responder = pair()
    message = bytearray(initiator.write(b"\x01"))
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    message[bit // 8] ^= 1 << bit % 8
    # X25519 ignores the last bit of a public key, but it is hashed
    with pytest.raises(NoiseError):
        responder.read(bytes(message))
    with pytest.raises(NoiseError, match="out of turn"):
        responder.write(b"")


@pytest.mark.parametrize(
    ("secret", "remote", "prologue"),
    [
        (RESP_STATIC, RESP_PUBLIC, b""),  # not the pinned caller
        (INIT_STATIC, INIT_PUBLIC, b""),  # meant for another VM
        (INIT_STATIC, RESP_PUBLIC, b"x"),
    ],
)
def test_a_stranger_is_refused(secret: bytes, remote: bytes, prologue: bytes) -> None:
    stranger = noise.initiator(secret, remote, prologue=prologue)
    responder = noise.responder(RESP_STATIC, INIT_PUBLIC)
    with pytest.raises(NoiseError, match="does not open"):
        responder.read(stranger.write(b"\x01"))


def test_the_wrong_daemon_is_refused() -> None:
    initiator = noise.initiator(INIT_STATIC, RESP_PUBLIC)
    impostor = noise.responder(INIT_EPHEMERAL, INIT_PUBLIC)
    first = initiator.write(b"\x01")
    with pytest.raises(NoiseError):
        impostor.read(first)
    with pytest.raises(NoiseError):
        initiator.read(first)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 47, 65536])
def test_a_handshake_message_of_another_size(size: int) -> None:
    responder = noise.responder(RESP_STATIC, INIT_PUBLIC)
    with pytest.raises(NoiseError, match="too short or too long"):
        responder.read(bytes(size))


SMALL_ORDER = bytes(32), b"\x01" + bytes(31)


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_keys_of_small_order_prove_nothing(key: bytes) -> None:
    with pytest.raises(NoiseError, match="small order"):
        noise.responder(RESP_STATIC, INIT_PUBLIC).read(key + bytes(16))
    with pytest.raises(NoiseError, match="small order"):
        noise.initiator(INIT_STATIC, key).write(b"")


def test_a_key_is_32_bytes() -> None:
    makers: list[Callable[[], object]] = [
        lambda: noise.public_key(bytes(31)),
        lambda: noise.initiator(bytes(33), RESP_PUBLIC),
        lambda: noise.responder(RESP_STATIC, b"short"),
    ]
    for make in makers:
        with pytest.raises(NoiseError, match="32 bytes"):
            make()


def test_out_of_turn() -> None:
    initiator, responder = pair()
    for step in (initiator.split, lambda: initiator.read(bytes(48)), lambda: responder.write(b"")):
        with pytest.raises(NoiseError, match="out of turn"):
            step()
    responder.read(initiator.write(b""))
    initiator.read(responder.write(b""))
    initiator.split()
    with pytest.raises(NoiseError, match="out of turn"):
        initiator.split()


def test_sessions_share_nothing() -> None:
    """Fresh ephemeral keys: the same statics never seal alike twice."""
    assert sessions()[0].seal(b"x") != sessions()[0].seal(b"x")


def test_an_exhausted_key_stops() -> None:
    ours, _ = sessions()
    ours._sending._nonce = 2**64 - 1
    with pytest.raises(NoiseError, match="all the messages"):
        ours.seal(b"")


def test_nothing_secret_is_shown() -> None:
    initiator, _ = pair()
    ours, _ = sessions()
    assert repr(initiator) == "<Handshake>"
    assert repr(ours) == "<Session>"
    assert "_Cipher object" in repr(ours._sending)


def test_cryptography_comes_with_autobahn() -> None:
    """Why the guest has it without our asking for it."""
    required = importlib.metadata.requires("autobahn") or []
    assert any(line.startswith("cryptography") and "extra" not in line for line in required)


def test_the_start_does_not_pay_for_it() -> None:
    """Neither `mount`, nor the rules, nor the limits import autobahn or cryptography."""
    code = (
        "import sys, agentd.tunnel.mount, agentd.tunnel.limits, agentd.rules.tunnel\n"
        "print([name for name in ('autobahn', 'cryptography') if name in sys.modules])\n"
        "agentd.tunnel.mount.warm()\n"
        "print([name for name in ('autobahn', 'cryptography') if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert output.stdout.splitlines() == ["[]", "['autobahn', 'cryptography']"]
