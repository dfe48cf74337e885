"""Proofs that a path leads nowhere, which a resolve cannot give: listings and multiproofs of each map on the path."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from coregw import _core
from coregw.client.operations.lookup import value
from coregw.client.operations.paths import prove_keys
from coregw.client.operations.steps import Steps
from coregw.client.query import CidLike, read_index, scan
from coregw.client.settings import ClientSettings
from coregw.errors import PathNotFound, ProofError, TooLarge
from coregw.messages.common import MAX_INTEGER

__all__ = ["prove_absent"]

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,15}")
"""The index of an element as a segment of a path."""


def prove_absent(settings: ClientSettings, root: CidLike, segments: list[str]) -> Steps[NoReturn]:
    """Prove that nothing is at or below a path, in any way to split it, and raise `PathNotFound`.

    In each map on the path, an empty listing shows that nothing begins with the rest of it, and a multiproof which
    of its prefixes lead on to a nested map or list. A map without nested ones takes one or two requests.

    Raises:
        PathNotFound: It is proven.
        ProofError: Something is there, which the gateway had denied.
        TooLarge: There are more than ``max_nesting`` maps and lists on the path.
        RootNotFound: The gateway says that it does not hold a root on the path; nothing proves that.
    """
    place = f"{'/'.join(segments)!r} in {_core.Cid(root).text}"
    pending = [(_core.Cid(root).text, segments)]
    for _ in range(settings.max_nesting):
        if not pending:
            raise PathNotFound(f"nothing at or below {place}: proven by the gateway's answer")
        pending += yield from _nested_trees(settings, *pending.pop(), place)
    raise TooLarge(f"more than {settings.max_nesting} maps and lists on the path to {place}")


def _nested_trees(
    settings: ClientSettings, here: str, rest: list[str], place: str
) -> Steps[list[tuple[str, list[str]]]]:
    """Return the targets in a tree to which proper prefixes of a path lead, each with the rest of the path.

    Raises:
        ProofError: The whole path leads to something.
    """
    kind = _core.Cid(here).kind
    if kind == "cas" or not rest:
        return []
    if kind == "list":
        if not _INDEX.fullmatch(rest[0]) or int(rest[0]) > MAX_INTEGER:
            return []
        element = yield from value(settings, read_index(here, int(rest[0])))
        found = [element.target]
    else:
        page = yield from value(settings, scan(here, rest, None, 1))
        if page.entries:
            raise ProofError(f"the gateway denied {place}, and its listing has it", check="answer")
        found = yield from prove_keys(settings, here, [rest[:cut] for cut in range(1, len(rest))])
    below = [(target, rest[cut:]) for cut, target in enumerate(found, 1) if target is not None]
    if any(not after for _, after in below):
        raise ProofError(f"the gateway denied {place}, and its list has it", check="answer")
    return below
