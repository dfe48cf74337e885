"""When a call is repeated: only after transient failures, for a limited time, with exponential backoff and jitter."""

from __future__ import annotations

import time

from coregw.client.exchange.answers import is_retryable
from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import Gateways
from coregw.client.transport.log import warn
from coregw.errors import CoregwError, Unavailable

__all__ = ["Retries"]

_SILENT_SECONDS = 1.0
"""How long a call waits without a line in the log."""


class Retries:
    """The retries of one call.

    Every gateway is tried once without a wait in between; then the client waits, and tries all again. A call that
    is continued where it failed has ``retry_seconds`` from each failure before which it received or sent more, and
    altogether the time of one exchange, ``answer_seconds``.

    Args:
        settings: The client's settings.
        gateways: Its gateways, to which each failure was reported.
    """

    def __init__(self, settings: ClientSettings, gateways: Gateways) -> None:
        self._settings = settings
        self._gateways = gateways
        self._failed = 0
        self._tried = 0
        self._rounds = 0
        self._has_hope = False
        self._began = self._until = 0.0
        self._done = 0
        self._has_warned = False

    def wait_seconds(self, error: CoregwError, done: int = 0) -> float | None:
        """Return how long to wait before the next attempt, or None if the call has failed.

        Args:
            error: The error of the last attempt.
            done: Number of bytes that the next attempt need not request or send.
        """
        settings = self._settings
        self._failed += 1
        self._tried += 1
        self._has_hope |= not (isinstance(error, Unavailable) and error.is_lasting)
        if not is_retryable(error) or (settings.attempts is not None and self._failed >= settings.attempts):
            return None
        now = time.monotonic()
        if self._failed == 1:
            self._began, self._until = now, now + settings.retry_seconds
        elif done > self._done:
            self._until = min(now + settings.retry_seconds, self._began + settings.answer_seconds)
            self._rounds = 0
        self._done = max(self._done, done)
        wait = self._gateways.asked_seconds()
        if self._tried >= len(self._gateways):
            if not self._has_hope:
                return None
            self._tried, self._has_hope = 0, False
            self._rounds += 1
            wait = max(wait, self._backoff_seconds())
        if now + wait > self._until:
            return None
        self._warn(error, now + wait)
        return wait

    def _warn(self, error: CoregwError, until: float) -> None:
        """Say once that the call waits, as soon as that is noticeable, unless another call has said so."""
        seconds = self._settings.retry_seconds
        if not self._has_warned and until - (self._until - seconds) > _SILENT_SECONDS:
            self._has_warned = True
            if not self._gateways.is_announced(seconds):
                warn("%s; trying again for %g s", error.message, seconds)

    def _backoff_seconds(self) -> float:
        import random

        settings = self._settings
        longest = min(settings.backoff_seconds * 2.0 ** min(self._rounds - 1, 60), settings.backoff_max_seconds)
        return random.uniform(longest / 2, longest)  # noqa: S311 - not for cryptography
