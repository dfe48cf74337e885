"""Files whose content is their path, for tests of folders."""

from __future__ import annotations

from pathlib import Path


def write(top: Path, *paths: str) -> None:
    """Write these files, and the folders above them."""
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)
