"""Outages: reasons that keep a store from writing, logged once when they begin and once when they end."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

from coregw.errors import StorageFull, Unavailable

__all__ = ["Outage"]

_log = logging.getLogger(__name__)


class Outage:
    """The state of a store's writes, for the thread that writes; other threads may read `is_failure`.

    Args:
        path: The store's directory, for the log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._error: Exception | None = None
        self._since = 0.0
        self._last_cause = ""
        self.needs_reopening = False
        """Whether nothing may be written before the database is reopened."""
        self.is_new = False
        """Whether reopening has not been tried yet."""

    @property
    def is_failure(self) -> bool:
        """Whether writes fail, other than for lack of room."""
        return self._error is not None and not isinstance(self._error, StorageFull)

    @property
    def reason(self) -> Exception | None:
        """Why writes fail; None if they do not, or only for lack of room, which may be over."""
        return self._error if self.needs_reopening or self.is_failure else None

    def require_over(self) -> None:
        """Raise why nothing can be written, if so. Lack of room alone does not raise, since deletions succeed then."""
        if self._error is None or not self.needs_reopening:
            return
        if isinstance(self._error, StorageFull):
            raise StorageFull(f"writes are suspended: {self._error}")
        raise Unavailable(f"writes are suspended until the store can be reopened: {self._error}")

    def begins(self, error: Exception, *, needs_reopening: bool) -> None:
        """Note that a write failed, and why. Only the first one is logged, and one that needs reopening."""
        if self.needs_reopening:
            return  # this is what it leads to
        if self._error is None or needs_reopening:
            self.is_new = needs_reopening
            self._since = time.monotonic() if self._error is None else self._since
            self._last_cause = _cause(error)
            what = "storage full" if isinstance(error, StorageFull) else "writes fail"
            then = "; the store is reopened as soon as the disk can be written to" if needs_reopening else ""
            _log.error("%s: %s%s", what, error, then)
        self._error = error
        self.needs_reopening = needs_reopening

    def goes_on(self, error: Exception) -> None:
        """Note that the database could not be reopened, and why. Each cause is logged once in a row."""
        if _cause(error) != self._last_cause:
            self._last_cause = _cause(error)
            _log.error("writes still fail: %s", error)
        self._error = error

    def ends(self) -> None:
        """Note that writes succeed again."""
        if self._error is not None:
            _log.warning("writes resumed after %.1f s: the store in %s", time.monotonic() - self._since, self._path)
        self._error = None
        self.needs_reopening = False


def _cause(error: Exception) -> str:
    """Return an error's text without the numbers that differ from one occurrence to the next."""
    return re.sub(r"[0-9,]+", "", str(error))
