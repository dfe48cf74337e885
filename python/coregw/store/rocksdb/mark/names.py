"""Names of RocksDB's MANIFEST and logs, and which of them a database has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["current_manifest", "log_name", "log_numbers", "manifest_name"]

_LOG: Final = ".log"
_MANIFEST: Final = "MANIFEST-"


def log_name(number: int) -> str:
    """The name of a write-ahead log."""
    return f"{number:06}{_LOG}"


def manifest_name(number: int) -> str:
    """The name of a MANIFEST."""
    return f"{_MANIFEST}{number:06}"


def log_numbers(database: Path) -> list[int]:
    """The numbers of the logs in a database's directory, ascending. RocksDB writes to the last one."""
    names = (file.name.removesuffix(_LOG) for file in database.iterdir() if file.suffix == _LOG)
    return sorted(int(name) for name in names if name.isdecimal())


def current_manifest(database: Path) -> int | None:
    """The number of the MANIFEST in use; None if CURRENT, which names it, is malformed. Raises OSError."""
    name = (database / "CURRENT").read_bytes().decode("ascii", "replace").strip()
    number = name.removeprefix(_MANIFEST)
    return int(number) if name.startswith(_MANIFEST) and number.isdecimal() else None
