"""The order in which objects were used, in a file: the last 8 bytes of their names, the least recently used first.

The file is a hint. If it is missing, old or damaged, objects are removed in another order, and nothing else is
different. Names end with digests, so 8 bytes tell them apart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["UseOrder"]

_log = logging.getLogger("coregw.store.tiered")

_MAGIC: Final = b"coregw-order-1\0\0"
_NAME_BYTES: Final = 8


class UseOrder:
    """The file of one store.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, names: Sequence[bytes]) -> None:
        """Replace the file. A failure is logged. O(names)."""
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("wb") as file:
                file.write(_MAGIC)
                file.write(b"".join(name[-_NAME_BYTES:] for name in names))
            new.replace(self._path)
        except OSError as error:
            _log.warning("the order of use cannot be written to %s: %s", self._path, error.strerror)

    def sorted(self, names: Sequence[bytes]) -> list[bytes]:
        """Return names in the order of the file, those that came after it was written last. O(n log n)."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return list(names)
        if not content.startswith(_MAGIC):
            return list(names)
        starts = range(len(_MAGIC), len(content), _NAME_BYTES)
        places = {content[at : at + _NAME_BYTES]: at for at in starts}
        return sorted(names, key=lambda name: places.get(name[-_NAME_BYTES:], len(content)))
