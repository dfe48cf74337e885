"""Text for people: sizes, durations, and what strangers wrote on one line, without control characters, and short."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["byte_size", "display_name", "duration", "printable"]

_MAX_CHARACTERS: Final = 500
_MAX_NAME_CHARACTERS: Final = 4096


def printable(text: str, limit: int = _MAX_CHARACTERS) -> str:
    """Return `text` on one line, with control characters escaped, cut to `limit` characters."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in short)


def display_name(file: Path) -> str:
    """Return a file's name for messages, with escapes for control characters and bytes that are not UTF-8."""
    return printable(os.fsencode(file).decode("utf-8", "backslashreplace"), _MAX_NAME_CHARACTERS)


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
