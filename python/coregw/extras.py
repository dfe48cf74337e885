"""Optional dependencies: what to install when a module of an extra is missing, and what a platform lacks."""

from __future__ import annotations

from typing import Final

__all__ = ["MissingExtraError", "UnsupportedPlatformError", "missing_extra"]

_UNIX_MODULES: Final = frozenset({"fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"})


class MissingExtraError(ModuleNotFoundError):
    """A part of coregw that needs an extra which is not installed."""


class UnsupportedPlatformError(ModuleNotFoundError):
    """A part of coregw that needs a Unix, on another platform."""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """Return the error to raise for a failed import.

    Args:
        error: The failed import.
        what: What needs the extra, such as ``coregw.Client``.
        extra: The extra that brings the missing module.

    Returns:
        A `MissingExtraError` that says what to install; an `UnsupportedPlatformError` if Python has the module on
        a Unix alone; or `error` itself if the missing module is one of coregw's own.
    """
    if error.name in _UNIX_MODULES:
        return UnsupportedPlatformError(f"{what} needs a Unix: this platform has no {error.name}", name=error.name)
    if error.name is not None and error.name.partition(".")[0] == "coregw":
        return error
    return MissingExtraError(f'{what} needs the "{extra}" extra: pip install "coregw[{extra}]"', name=error.name)
