"""Optional dependencies: what to install when a module of an extra is missing."""

from __future__ import annotations

__all__ = ["MissingExtraError", "missing_extra"]


class MissingExtraError(ModuleNotFoundError):
    """A part of coregw that needs an extra which is not installed."""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """Return the error to raise for a failed import.

    Args:
        error: The failed import.
        what: What needs the extra, such as ``coregw.Client``.
        extra: The extra that brings the missing module.

    Returns:
        A `MissingExtraError` that says what to install, or `error` itself if the missing module is one of coregw's own.
    """
    if error.name is not None and error.name.partition(".")[0] == "coregw":
        return error
    return MissingExtraError(f'{what} needs the "{extra}" extra: pip install "coregw[{extra}]"', name=error.name)
