"""What a harness reports: figures on one line, and whether all is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Report:
    """The outcome of one harness.

    Attributes:
        name: The harness.
        is_ok: Whether everything that must hold has held.
        figures: What was done and seen.
        examples: A few of the findings, for a person.
    """

    name: str
    is_ok: bool
    figures: Mapping[str, object]
    examples: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The final line."""
        figures = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in self.figures.items())
        return f"{self.name}: {'ok' if self.is_ok else 'FAILED'}: {figures}"


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) + "}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
