"""How long the parts of an upload are on a connection that does not last for all of it."""

from __future__ import annotations

from typing import Final

__all__ = ["PartSize"]

_MIN_BYTES: Final = 128 << 10

_STEP_BYTES: Final = 32 << 10
"""By so much the next part may be longer after one that was acknowledged. On connections that are cut after 3 MB, parts
have some 0.7 MB then, half of which is lost at each cut, on average."""


class PartSize:
    """How long a part may be: half as long after each failure, then slowly longer. Shared by the uploads of a client.

    Attributes:
        limit: The number of bytes; None as long as nothing has failed.
    """

    def __init__(self) -> None:
        self.limit: int | None = None

    def failed(self, size: int) -> bool:
        """Note that a connection did not last for a part of this size, and return whether the next one is shorter."""
        self.limit = max(_MIN_BYTES, min(size, self.limit or size) // 2)
        return size > self.limit

    def succeeded(self) -> None:
        """Note that a part was acknowledged."""
        if self.limit is not None:
            self.limit += _STEP_BYTES
