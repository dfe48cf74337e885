"""Environment variables that the package reads, and those that nothing reads, which are most often misspelt."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches

from coregw.cli.common import printable

__all__ = ["known_variables", "unknown_variables"]

_OTHER_VARIABLES = (
    *("COREGW_GATEWAY", "COREGW_RETRY_SECONDS", "COREGW_DEBUG", "COREGW_CONFIG", "COREGW_TRUST"),
    *("COREGW_LOG_KEY", "COREGW_LOG_ORIGIN", "COREGW_LOG_POLICY"),
    *("COREGW_ADMIN_TOKEN", "COREGW_FROM_TOKEN", "COREGW_TO_TOKEN", "COREGW_SOURCE_TOKEN"),
)
"""Variables that are neither settings of a gateway nor of connections."""


def known_variables(settings: Iterable[str]) -> set[str]:
    """Return the names of all variables that this package reads, given those of the settings of a gateway."""
    from coregw.client.connection import SIDES, variables_of

    return {*_OTHER_VARIABLES, *settings}.union(*(variables_of(side).values() for side in ("", *SIDES)))


def unknown_variables(settings: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the environment that looks like one of this package and is not known.

    Raises:
        ModuleNotFoundError: There may be some, and the extra ``client`` is missing, which has variables of its own.
    """
    suspects = {name for name in os.environ if name.startswith("COREGW_")} - {*_OTHER_VARIABLES, *settings}
    if not suspects:  # loading the client takes a gateway time and memory
        return []
    known = known_variables(settings)
    return [_sentence(name, known) for name in sorted(suspects - known)]


def _sentence(name: str, known: set[str]) -> str:
    similar = get_close_matches(name, known, n=1)
    return f"nothing reads {printable(name)}{f'; did you mean {similar[0]}?' if similar else ''}"
