"""RocksDB's statuses as coregw's exceptions.

rocksdict raises every status as a plain `Exception` with RocksDB's text, so the texts are matched here and nowhere else
(``docs/decisions/0012``). The tests provoke those that they can in the real library.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocksdict import DbClosedError

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable

__all__ = ["WriteStalled", "translated"]

_LOCKED: Final = ("lock hold by current process", "While lock file")
_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")
_DAMAGED: Final = ("Corruption", "No such file or directory", "Column famil")
_STALLED: Final = "Write stall"


class WriteStalled(Unavailable):
    """RocksDB would delay the write until it has flushed or compacted."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise the errors of rocksdict and of the system as classes of `coregw.errors`. `path` is the store's."""
    try:
        yield
    except CoregwError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull(f"the disk of the store in {path} is full") from error
        raise Unavailable(f"the store in {path} failed: {error}") from error
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, DbClosedError):
            raise  # not rocksdict's: a bug in coregw
        raise _meaning(error, path) from error


def _meaning(error: Exception, path: Path) -> CoregwError:
    text = str(error)
    if isinstance(error, DbClosedError):
        return Unavailable("the store is closed")
    if _STALLED in text:
        return WriteStalled(f"the store in {path} is busy writing")
    if any(sign in text for sign in _LOCKED):
        return Unavailable(f"the store in {path} is in use by another process, or opened twice by this one")
    if any(sign in text for sign in _FULL):
        return StorageFull(f"the disk of the store in {path} is full")
    if any(sign in text for sign in _DAMAGED):
        return StoreDamaged(f"the store in {path} is damaged: {text}")
    return Unavailable(f"the store in {path} failed: {text}")
