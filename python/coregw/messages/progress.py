"""Progress of a long operation, as the management server reports it while the operation runs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["Progress", "ProgressCallback"]


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an operation is. An operation may add members of its own in a subclass.

    Attributes:
        step: What it does now, as a short phrase: ``reading pages``.
        done: How much of the step is done.
        total: How much the step is, if that is known.
        unit: What `done` and `total` count, in the plural; ``bytes`` are shown with binary prefixes.
    """

    step: str
    done: int = 0
    total: int | None = None
    unit: str = ""


ProgressCallback = Callable[[Progress], None]
"""Called with the progress of an operation as it runs. May raise, to stop the operation."""
