"""Noise_KK_25519_ChaChaPoly_BLAKE2s: the handshake and the session of a verified tunnel.

In the KK pattern each side knows the other's static key beforehand. Two messages, and both are authenticated
and have agreed on keys that later loss of the static ones does not reveal (Noise specification revision 34,
sections 5 and 7.5):

    -> s               both static public keys are hashed in before the first message
    <- s
    ...
    -> e, es, ss       message 1: the initiator's ephemeral key, and a payload sealed to the responder
    <- e, ee, se       message 2: the responder's, and a payload sealed to both

In a tunnel the client initiates and the daemon responds; the daemon's static secret is the launch's seed as it
is, the client's public key is pinned by the launch, the prologue is empty (contract f.2).

Only this one protocol is written here, on the primitives of `cryptography` (X25519, ChaCha20-Poly1305) and
`hashlib` (BLAKE2s). `cryptography` is no dependency of ours by name: autobahn requires it, so it is in every
guest. Two Noise libraries were tried on that version of it first: noiseprotocol 0.3.1 agrees with the published
vectors but has not been released since 2020, and noiseframework 1.3.0 uses keyed BLAKE2s where Noise says
HMAC-BLAKE2s, so that its first message does not open at a peer that follows the specification. The tests check this
module against the vectors, and against noiseprotocol in both roles.

Importing this imports `cryptography` (50 ms), so it comes with the first tunnel or with
`agentd.tunnel.mount.warm`, never at start.

Python cannot wipe memory; keys are dropped as soon as they are of no more use and are in no ``repr``.
"""

import hashlib
import hmac
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from agentd.rules.tunnel import MAX_MESSAGE_BYTES, TAG_BYTES

PROTOCOL_NAME: Final = b"Noise_KK_25519_ChaChaPoly_BLAKE2s"
KEY_BYTES: Final = 32
MAX_PLAINTEXT_BYTES: Final = MAX_MESSAGE_BYTES - TAG_BYTES
_LAST_NONCE: Final = 2**64 - 1
"""Reserved by the specification; a key is of no more use when its nonce gets here."""


class NoiseError(Exception):
    """A key that is none, or a message that the other side's key did not make."""


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of a 32-byte secret. Raises `NoiseError` if it is not 32 bytes."""
    return _secret(secret).public_key().public_bytes_raw()


def _secret(key: bytes) -> X25519PrivateKey:
    try:
        return X25519PrivateKey.from_private_bytes(key)
    except ValueError:
        raise NoiseError("a secret key is 32 bytes") from None


def _public(key: bytes) -> X25519PublicKey:
    try:
        return X25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise NoiseError("a public key is 32 bytes") from None


def _hash(data: bytes) -> bytes:
    return hashlib.blake2s(data).digest()


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """HKDF with two outputs (Noise specification 4.3)."""
    temp = hmac.digest(chaining_key, material, hashlib.blake2s)
    first = hmac.digest(temp, b"\x01", hashlib.blake2s)
    return first, hmac.digest(temp, first + b"\x02", hashlib.blake2s)


class _Cipher:
    """A CipherState: one key and the number of the next message under it."""

    __slots__ = ("_aead", "_nonce")

    def __init__(self, key: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)
        self._nonce = 0

    def _number(self) -> bytes:
        if self._nonce == _LAST_NONCE:
            raise NoiseError("this key has sealed all the messages it may")
        return b"\0\0\0\0" + self._nonce.to_bytes(8, "little")

    def seal(self, plaintext: bytes, associated: bytes | None = None) -> bytes:
        sealed = self._aead.encrypt(self._number(), plaintext, associated)
        self._nonce += 1
        return sealed

    def open(self, message: bytes, associated: bytes | None = None) -> bytes:
        try:
            plaintext = self._aead.decrypt(self._number(), message, associated)
        except InvalidTag:
            raise NoiseError("a message does not open") from None
        self._nonce += 1
        return plaintext


class Session:
    """The two directions after the handshake. Messages open in the order they were sealed, each once."""

    __slots__ = ("_receiving", "_sending", "handshake_hash")

    def __init__(self, sending: _Cipher, receiving: _Cipher, handshake_hash: bytes) -> None:
        self._sending = sending
        self._receiving = receiving
        self.handshake_hash = handshake_hash
        """32 bytes, equal at both ends and of no other session."""

    def seal(self, plaintext: bytes) -> bytes:
        """The next message; raises `NoiseError` beyond `MAX_PLAINTEXT_BYTES`."""
        if len(plaintext) > MAX_PLAINTEXT_BYTES:
            raise NoiseError("too much for one message")
        return self._sending.seal(plaintext)

    def open(self, message: bytes) -> bytes:
        """The next message's plaintext; raises `NoiseError` unless it is exactly the one expected."""
        if len(message) > MAX_MESSAGE_BYTES:
            raise NoiseError("a message is too long")
        return self._receiving.open(message)

    def __repr__(self) -> str:
        return "<Session>"


class Handshake:
    """One handshake, of either role; made by `initiator` or `responder`, used once.

    The initiator calls `write` then `read`, the responder `read` then `write`, and then each `split`.
    """

    __slots__ = (
        "_chaining_key",
        "_cipher",
        "_ephemeral",
        "_hash",
        "_initiates",
        "_remote",
        "_remote_ephemeral",
        "_static",
        "_steps",
    )

    def __init__(
        self,
        initiates: bool,
        static: bytes,
        remote: bytes,
        prologue: bytes,
        ephemeral: X25519PrivateKey | None,
    ) -> None:
        self._initiates = initiates
        self._static: X25519PrivateKey | None = _secret(static)
        self._remote = _public(remote)
        self._ephemeral: X25519PrivateKey | None = ephemeral or X25519PrivateKey.generate()
        self._remote_ephemeral = self._remote
        self._cipher: _Cipher | None = None
        self._steps = ["write", "read", "split"] if initiates else ["read", "write", "split"]
        self._chaining_key = self._hash = _hash(PROTOCOL_NAME)
        ours = public_key(static)
        self._mix_hash(prologue)
        self._mix_hash(ours if initiates else remote)
        self._mix_hash(remote if initiates else ours)

    def write(self, payload: bytes) -> bytes:
        """This side's message: 32 bytes of ephemeral key, `payload` sealed, 16 bytes of tag."""
        self._step("write")
        assert self._ephemeral is not None
        ephemeral = self._ephemeral.public_key().public_bytes_raw()
        self._mix_hash(ephemeral)
        if self._initiates:
            self._mix_key(self._ephemeral, self._remote)  # es
            self._mix_key(self._static, self._remote)  # ss
        else:
            self._mix_key(self._ephemeral, self._remote_ephemeral)  # ee
            self._mix_key(self._ephemeral, self._remote)  # se
        assert self._cipher is not None
        sealed = self._cipher.seal(payload, self._hash)
        self._mix_hash(sealed)
        return ephemeral + sealed

    def read(self, message: bytes) -> bytes:
        """The payload of the other side's message.

        Raises `NoiseError` unless the holder of the remote static key made it for this side, after which the
        handshake is of no more use.
        """
        self._step("read")
        if not KEY_BYTES + TAG_BYTES <= len(message) <= MAX_MESSAGE_BYTES:
            self._forget()
            raise NoiseError("a handshake message is too short or too long")
        ephemeral, sealed = message[:KEY_BYTES], message[KEY_BYTES:]
        self._remote_ephemeral = _public(ephemeral)
        self._mix_hash(ephemeral)
        if self._initiates:
            self._mix_key(self._ephemeral, self._remote_ephemeral)  # ee
            self._mix_key(self._static, self._remote_ephemeral)  # se
        else:
            self._mix_key(self._static, self._remote_ephemeral)  # es
            self._mix_key(self._static, self._remote)  # ss
        assert self._cipher is not None
        try:
            payload = self._cipher.open(sealed, self._hash)
        except NoiseError:
            self._forget()
            raise
        self._mix_hash(sealed)
        return payload

    def split(self) -> Session:
        """The session that both messages have agreed on."""
        self._step("split")
        first, second = (_Cipher(key) for key in _hkdf(self._chaining_key, b""))
        session = (
            Session(first, second, self._hash) if self._initiates else Session(second, first, self._hash)
        )
        self._forget()
        return session

    def _step(self, name: str) -> None:
        if not self._steps or self._steps[0] != name:
            raise NoiseError(f"out of turn: {name}")
        del self._steps[0]

    def _mix_hash(self, data: bytes) -> None:
        self._hash = _hash(self._hash + data)

    def _mix_key(self, secret: X25519PrivateKey | None, public: X25519PublicKey) -> None:
        assert secret is not None
        try:
            shared = secret.exchange(public)
        except ValueError:  # the result would be zero whatever the secret is
            self._forget()
            raise NoiseError("a public key is of small order") from None
        self._chaining_key, key = _hkdf(self._chaining_key, shared)
        self._cipher = _Cipher(key)

    def _forget(self) -> None:
        self._steps.clear()
        self._static = self._ephemeral = self._cipher = None
        self._chaining_key = b""

    def __repr__(self) -> str:
        return "<Handshake>"


def initiator(
    static: bytes, remote: bytes, *, prologue: bytes = b"", ephemeral: X25519PrivateKey | None = None
) -> Handshake:
    """The side that writes first: the client of a tunnel.

    `static` is its 32-byte secret, `remote` the other side's 32-byte public key. `ephemeral` is for test vectors;
    without it a fresh one is made. Raises `NoiseError` for a key of another length.
    """
    return Handshake(True, static, remote, prologue, ephemeral)


def responder(
    static: bytes, remote: bytes, *, prologue: bytes = b"", ephemeral: X25519PrivateKey | None = None
) -> Handshake:
    """The side that reads first: the daemon of a tunnel. Parameters as for `initiator`."""
    return Handshake(False, static, remote, prologue, ephemeral)
