"""The handshake by which both ends of a connection prove that they know the key of the job. Pure: bytes in, bytes out.

    server   challenge                                   32 random bytes
    caller   number, nonce, proof                        8 bytes, 32 random bytes, HMAC-SHA256
    server   proof                                       HMAC-SHA256

A proof covers who gives it, the challenge, the nonce, the number of the caller and the name of the server. So one that
was recorded is worth nothing on another connection, nor at another server, nor sent back to its sender. The key itself
never travels. What follows on the connection is neither encrypted nor signed.

malt/runner/reporting.py loads this module by its path, so it imports the standard library alone.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

KEY_NBYTES = 32
CHALLENGE_NBYTES = PROOF_NBYTES = _NONCE_NBYTES = 32
_NUMBER = struct.Struct("<Q")
HELLO_NBYTES = _NUMBER.size + _NONCE_NBYTES + PROOF_NBYTES
_CALLER, _SERVER = b"C", b"S"


def new_key() -> str:
    """A new key, as text. Local."""
    return secrets.token_hex(KEY_NBYTES)


def new_challenge() -> bytes:
    """A new challenge. Local."""
    return secrets.token_bytes(CHALLENGE_NBYTES)


class Caller:
    """The calling end, of this `number`, at the server called `name`. `key`: as of `new_key`."""

    def __init__(self, key: str, name: str, number: int) -> None:
        self._key, self._name, self._number = key, name, number
        self._transcript = b""

    def hello(self, challenge: bytes) -> bytes:
        """Return the bytes to send after the server's `challenge`."""
        head = _NUMBER.pack(self._number) + secrets.token_bytes(_NONCE_NBYTES)
        self._transcript = challenge + head
        return head + _proof(self._key, self._name, _CALLER, self._transcript)

    def is_answered_by(self, proof: bytes) -> bool:
        """Return whether the server, which has sent `proof`, knows the key."""
        return hmac.compare_digest(proof, _proof(self._key, self._name, _SERVER, self._transcript))


def answered(key: str, name: str, challenge: bytes, hello: bytes) -> tuple[int, bytes] | None:
    """The number of the caller that has sent `hello`, and the proof for it; None where it does not know the key."""
    head, proof = hello[:-PROOF_NBYTES], hello[-PROOF_NBYTES:]
    transcript = challenge + head
    if len(hello) != HELLO_NBYTES or not hmac.compare_digest(proof, _proof(key, name, _CALLER, transcript)):
        return None
    return _NUMBER.unpack_from(head)[0], _proof(key, name, _SERVER, transcript)


def _proof(key: str, name: str, end: bytes, transcript: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(key), end + transcript + name.encode(), hashlib.sha256)
