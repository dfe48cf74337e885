"""Optional dependencies: which extra brings a module, and what a platform lacks."""

from __future__ import annotations

from typing import Final

__all__ = ["EXTRAS", "MissingExtraError", "UnsupportedPlatformError", "missing_extra", "stale_extension"]

_UNIX_MODULES: Final = frozenset({"fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"})

EXTRAS: Final = {
    "client": ("filelock", "msgspec", "platformdirs", "pycurl"),
    "log": ("cryptography",),
    "cli": ("click", "rich", "rich_click"),
    "server": (
        *("click", "google_crc32c", "httptools", "litestar", "lz4", "msgspec", "prometheus_client", "rich"),
        *("rich_click", "rocksdict", "uvicorn", "uvloop", "xxhash"),
    ),
    "otel": ("opentelemetry",),
    "postgres": ("asyncpg",),
    "s3": ("obstore",),
    "fsspec": ("fsspec",),
}
"""The modules that each extra brings, without those of the extras that it includes. The smallest extra comes first."""

_INCLUDED: Final = {
    "log": "client",
    "cli": "log",
    "otel": "server",
    "postgres": "server",
    "s3": "postgres",
    "fsspec": "client",
}


class MissingExtraError(ModuleNotFoundError):
    """A part of coregw that needs an extra which is not installed."""


class UnsupportedPlatformError(ModuleNotFoundError):
    """A part of coregw that needs a Unix, on another platform."""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """Return the error to raise for a failed import.

    Args:
        error: The failed import.
        what: What needs the missing module, such as ``coregw.Client``.
        extra: The extra with everything that `what` needs. It is named if it brings the missing module; otherwise the
            first extra that does.

    Returns:
        A `MissingExtraError` that says what to install; an `UnsupportedPlatformError` if Python has the module on
        a Unix alone; or `error` itself if no extra brings the module.
    """
    name = (error.name or "").partition(".")[0]
    if name in _UNIX_MODULES:
        return UnsupportedPlatformError(f"{what} needs a Unix: this platform has no {error.name}", name=error.name)
    bringing = [each for each, modules in EXTRAS.items() if name in modules]
    if not bringing:
        return error
    within = extra
    while within not in bringing and within in _INCLUDED:
        within = _INCLUDED[within]
    named = extra if within in bringing else bringing[0]
    return MissingExtraError(
        f'{what} needs the "{named}" extra: pip install ".[{named}]" in a clone of coregw', name=error.name
    )


def stale_extension(error: Exception) -> str | None:
    """Return what to say if an error is that the extension lacks a name, as after a pull without a build."""
    is_import = isinstance(error, ImportError) and error.name == "coregw._core"
    is_attribute = isinstance(error, AttributeError) and getattr(error.obj, "__name__", "") == "coregw._core"
    if not is_import and not is_attribute:
        return None
    return "the extension coregw._core is older than the package: run make install"
