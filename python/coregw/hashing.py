"""Running hashes of payloads, by the names of protocol section 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from coregw import _core

__all__ = ["RunningHash", "new_hash"]

_MAX_IDENTITY_BYTES: Final = 128


class RunningHash(Protocol):
    """A hash of bytes that arrive in chunks."""

    def update(self, data: bytes, /) -> object:
        """Add the next chunk."""

    def digest(self) -> bytes:
        """Return the digest of all chunks."""


class _Blake3:
    """BLAKE3, which hashlib lacks: the extension's hasher returns a CID, which contains the digest."""

    def __init__(self) -> None:
        self._hasher = _core.PayloadHasher("raw", "blake3")

    def update(self, data: bytes, /) -> None:
        self._hasher.update(data)

    def digest(self) -> bytes:
        return _core.Cid(self._hasher.cid()).digest


class _Identity:
    """The identity function: the digest is the payload itself, at most 128 bytes (protocol section 1)."""

    def __init__(self) -> None:
        self._data = b""

    def update(self, data: bytes, /) -> None:
        self._data = (self._data + data)[: _MAX_IDENTITY_BYTES + 1]  # one byte more can't match any CID

    def digest(self) -> bytes:
        return self._data


def new_hash(name: str) -> RunningHash:
    """Return a hash of no bytes yet.

    Args:
        name: The name of one of the protocol's hash functions, as `coregw.Cid.hash_name` has it.
    """
    import hashlib  # noqa: PLC0415 - few commands hash in Python

    hashers: dict[str, Callable[[], RunningHash]] = {
        "sha2-256": hashlib.sha256,
        "sha2-512": hashlib.sha512,
        "sha3-256": hashlib.sha3_256,
        "blake2b-256": lambda: hashlib.blake2b(digest_size=32),
        "blake3": _Blake3,
        "identity": _Identity,
    }
    return hashers[name]()
