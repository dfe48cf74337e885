"""Roots that were copied before, as bases of the next copies: small files in the user's cache."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from coregw._core import Cid
from coregw.client.transport.address import Address
from coregw.errors import InvalidInput
from coregw.folders.caches import cache_folder

__all__ = ["recent_roots", "remember_root"]

_MAX_ROOTS: Final = 4
_MAX_BYTES: Final = 64 << 10


def recent_roots(source: Address, destination: Address, line: str) -> list[str]:
    """Return roots that were copied from a source to a destination, the newest first; none if that is not known.

    Args:
        source: The source.
        destination: The destination.
        line: Which of the roots follow each other: a published name, or nothing.
    """
    try:
        with _file(source, destination, line).open("rb") as file:
            words = file.read(_MAX_BYTES).decode("ascii", "replace").split()
    except OSError:
        return []
    roots: list[str] = []
    for word in words[:_MAX_ROOTS]:
        with suppress(InvalidInput):
            roots.append(Cid(word).text)
    return roots


def remember_root(source: Address, destination: Address, line: str, root: str) -> None:
    """Remember that a root was copied. If it cannot be remembered, that costs only speed."""
    roots = [root, *(each for each in recent_roots(source, destination, line) if each != root)][:_MAX_ROOTS]
    file = _file(source, destination, line)
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        new.write_text("\n".join(roots), "ascii")
        new.replace(file)


def _file(source: Address, destination: Address, line: str) -> Path:
    name = "\0".join([source.shown, destination.shown, line])
    return cache_folder() / "mirror" / hashlib.sha256(os.fsencode(name)).hexdigest()
