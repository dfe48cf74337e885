"""Checkpoints (c2sp.org/tlog-checkpoint): the text of a note that names a log, its size and its root hash."""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from coregw.errors import InvalidInput
from coregw.tlog.note import decode_base64
from coregw.tlog.tree import EMPTY_ROOT, HASH_BYTES, MAX_SIZE

__all__ = ["Checkpoint", "decode_hashes", "encode_hashes", "parse_hash", "parse_size"]

_SIZE: Final = re.compile("0|[1-9][0-9]{0,15}")
_MAX_PROOF: Final = 63


class Checkpoint(NamedTuple):
    """A tree head.

    Attributes:
        origin: The name of the log.
        size: The number of leaves.
        root: The root hash.
    """

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parse the text of a note. Extension lines are allowed and ignored. Raises `InvalidInput`."""
        lines = text.split("\n")
        if not text.endswith("\n") or len(lines) < 4 or not all(lines[:-1]):
            raise InvalidInput("checkpoint: expected lines with an origin, a size and a root hash")
        found = cls(lines[0], parse_size(lines[1]), parse_hash(lines[2]))
        if found.size == 0 and found.root != EMPTY_ROOT:
            raise InvalidInput("checkpoint: the root hash is not that of an empty tree")
        return found

    def text(self) -> str:
        """Return the text of the note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


def parse_size(text: str) -> int:
    """Parse a number of leaves in decimal. Raises `InvalidInput`."""
    if _SIZE.fullmatch(text) is None or int(text) > MAX_SIZE:
        raise InvalidInput(f"checkpoint: size {text!r:.50}: expected a decimal number below 2^53")
    return int(text)


def parse_hash(text: str) -> bytes:
    """Parse a hash in base64. Raises `InvalidInput`."""
    found = decode_base64(text)
    if len(found) != HASH_BYTES:
        raise InvalidInput(f"hash {text!r:.100}: expected the base64 of {HASH_BYTES} bytes")
    return found


def encode_hashes(hashes: list[bytes]) -> list[str]:
    """Return hashes in base64."""
    return [base64.b64encode(each).decode() for each in hashes]


def decode_hashes(texts: list[str]) -> list[bytes]:
    """Return the hashes of a proof; at most 63. Raises `InvalidInput`."""
    if len(texts) > _MAX_PROOF:
        raise InvalidInput(f"proof: more than {_MAX_PROOF} hashes")
    return [parse_hash(each) for each in texts]
