"""Text for people: sizes, durations, and what strangers wrote on one line, without control characters, and short."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from coregw.errors import InvalidInput

__all__ = [
    "byte_size",
    "display_name",
    "duration",
    "encode_json",
    "printable",
    "require_utf_8",
    "without_surrogates",
]

_MAX_CHARACTERS: Final = 500
_MAX_NAME_CHARACTERS: Final = 4096


def printable(text: str, limit: int = _MAX_CHARACTERS) -> str:
    """Return `text` on one line, cut to `limit` characters, with escapes for control characters.

    So are bytes that are not UTF-8, as `os.fsdecode` returns them.
    """
    if text.isprintable():
        return _cut(text, limit)
    short = _cut(without_surrogates(text), limit)
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in short)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def display_name(file: Path) -> str:
    """Return a file's name for messages, with escapes for control characters and bytes that are not UTF-8."""
    return printable(str(file), _MAX_NAME_CHARACTERS)


def encode_json(value: object) -> bytes:
    """Return a value as JSON. In strings, bytes of file names that are not UTF-8 are escaped as in `display_name`."""
    import msgspec  # noqa: PLC0415 - most commands that use this module print no JSON

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    return [_escaped(each) for each in value] if isinstance(value, (list, tuple)) else value


def require_utf_8(path: Path, why: str) -> None:
    """Raise `InvalidInput`, which says why, if a path is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{display_name(path)}: expected a path in UTF-8{why}") from None


def without_surrogates(text: str) -> str:
    """Return a text that may have names of files in it, with escapes for their bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode()


def byte_size(count: float) -> str:
    """Return a number of bytes with a binary prefix."""
    for prefix in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {prefix}" if prefix == "B" else f"{count:,.1f} {prefix}"
        count /= 1024
    return f"{count:,.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest:02} s"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02} h" if days else f"{hours} h {minutes:02} min"
