"""The logger ``coregw.client``: each request at DEBUG, and what needs attention at WARNING. No credentials.

`logging` takes longer to import than most calls. A program that has not imported it does not show DEBUG either.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

    from coregw.client.exchange.call import Answer, Call
    from coregw.errors import CoregwError

__all__ = ["LOGGER", "is_logged", "log_exchange", "warn"]

LOGGER: Final = "coregw.client"
_DEBUG: Final = 10  # logging.DEBUG


def is_logged() -> bool:
    """Return whether requests are logged."""
    return "logging" in sys.modules and _logger().isEnabledFor(_DEBUG)


@cache
def _logger() -> logging.Logger:
    import logging

    return logging.getLogger(LOGGER)


def log_exchange(call: Call, gateway: str, started: float, outcome: Answer | CoregwError) -> None:
    """Log an exchange at DEBUG.

    Args:
        call: The request.
        gateway: The gateway's address without credentials.
        started: The value of `time.monotonic` when it began.
        outcome: The answer, or the error.
    """
    milliseconds = (time.monotonic() - started) * 1000
    result = f"{outcome.status}" if isinstance(outcome, tuple) else f"{type(outcome).__name__}: {outcome.message}"
    message = "%s %s%s: %s (%.1f ms)"
    _logger().debug(message, call.method, gateway, call.path, result, milliseconds)


def warn(message: str, *arguments: object) -> None:
    """Log at WARNING, which Python prints to stderr unless the program configures logging."""
    _logger().warning(message, *arguments)
