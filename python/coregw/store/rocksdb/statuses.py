"""RocksDB's statuses as coregw's exceptions.

rocksdict raises every status as a plain `Exception` with RocksDB's text, so the texts are matched here alone.
The tests provoke those that they can in the real library.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
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


class translated:  # noqa: N801 - used like `contextlib.suppress`
    """Raise the errors of rocksdict and of the system as classes of `coregw.errors`. `path` is the store's.

    A class, since each commit enters several: a generator costs a microsecond more.

    Args:
        path: The store's directory.
        on_error: Called with what is raised, whatever it is.
    """

    __slots__ = ("_on_error", "_path")

    def __init__(self, path: Path, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._path = path
        self._on_error = on_error

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            return
        raised = _translate(error, self._path)
        if self._on_error is not None:
            self._on_error(raised)
        if raised is not error:
            raise raised from error


def _translate(error: BaseException, path: Path) -> BaseException:
    """Return an error of rocksdict or of the system as a class of `coregw.errors`, and any other one as it is."""
    if isinstance(error, CoregwError):
        return error
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StorageFull(f"the disk of the store in {path} is full")
        return Unavailable(f"the store in {path} failed: {error}")
    if type(error) is Exception or isinstance(error, DbClosedError):
        return _meaning(error, path)
    return error  # not rocksdict's: a bug in coregw


def _meaning(error: Exception, path: Path) -> CoregwError:
    text = str(error)
    if isinstance(error, DbClosedError):
        return Unavailable("the store is closed")
    if _STALLED in text:
        return WriteStalled(f"the store in {path} is busy writing")
    if any(sign in text for sign in _LOCKED):
        why = "in use by another process, or opened twice by this one"
        return Unavailable(f"the store in {path} is {why}; coregw status --data {path} shows a gateway that uses it")
    if any(sign in text for sign in _FULL):
        return StorageFull(f"the disk of the store in {path} is full")
    if any(sign in text for sign in _DAMAGED):
        return StoreDamaged(f"the store in {path} is damaged: {text}")
    return Unavailable(f"the store in {path} failed: {text}")
