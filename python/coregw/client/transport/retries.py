"""When a call is repeated: only after transient failures, for a limited time, with exponential backoff and jitter."""

from __future__ import annotations

import time

from coregw.client.exchange import is_retryable
from coregw.client.settings import ClientSettings
from coregw.errors import CoregwError

__all__ = ["Retries"]


class Retries:
    """The retries of one call."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._failed = 0
        self._until = 0.0

    def wait_seconds(self, error: CoregwError) -> float | None:
        """Return how long to wait before the next attempt, or None if the call has failed."""
        settings = self._settings
        self._failed += 1
        if self._failed >= settings.attempts or not is_retryable(error):
            return None
        now = time.monotonic()
        if self._failed == 1:
            self._until = now + settings.retry_seconds
        wait = max(self._backoff_seconds(), getattr(error, "retry_after", None) or 0.0)
        return wait if now + wait <= self._until else None

    def _backoff_seconds(self) -> float:
        import random

        settings = self._settings
        backoff = settings.backoff_seconds * 2.0 ** min(self._failed - 1, 60)
        jitter = random.uniform(0, settings.backoff_seconds)  # noqa: S311 - not for cryptography
        return min(backoff + jitter, settings.backoff_max_seconds)
