"""Differences between two maps (``/v1/roots/{first}/diff/{second}``), page by page, each verified before it is yielded.

Nested maps are not followed: a map inside a map is one target, which differs or does not.
"""

from __future__ import annotations

from typing import NamedTuple

from coregw import _core
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.steps import Item, Stream, in_context
from coregw.client.query import CidLike, PathLike, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput

__all__ = ["Difference", "differences"]

_PAGE_ENTRIES = 1000


class Difference(NamedTuple):
    """A path whose target differs between two maps; None where a map does not have the path."""

    segments: list[str]
    before: str | None
    after: str | None


def differences(settings: ClientSettings, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Stream[Difference]:
    """Yield every difference between two maps at and below `prefix`, in key order, without gaps.

    The cost depends on the number of differences, not on the size of the maps: one request for 1,000 of them.

    Raises:
        InvalidInput: `a` or `b` is not a map root, or their suites differ (code ``kind_mismatch``).
        RootNotFound: The gateway says that it does not hold one of them; nothing proves that.
        ProofError: A page is not proven. Everything yielded before is.
    """
    first, second = _map(a), _map(b)
    if first.suite != second.suite:
        raise InvalidInput(
            f"{first.text} and {second.text} have different suites: {first.suite} and {second.suite}",
            code="kind_mismatch",
        )
    segments = segments_of(prefix)
    what = f"compare {first.text} with {second.text}"
    after: list[str] | None = None
    while True:
        params = {name: "/".join(path) for name, path in (("prefix", segments), ("after", after)) if path}
        params["limit"] = str(_PAGE_ENTRIES)
        path = f"/v1/roots/{first.text}/diff/{second.text}"
        answer: Answer = yield Call("GET", path, settings.max_result_bytes, what, params=params)
        with in_context(what):
            page = _core.verify_diff(first, second, answer.body, segments, after, _PAGE_ENTRIES)
        for entry in page.entries:
            yield Item(Difference(*entry))
        if not page.more:
            return
        after = page.entries[-1][0]  # never empty: verify_diff accepts `more` only for a full page


def _map(root: CidLike) -> _core.Cid:
    cid = _core.Cid(root)
    if cid.kind != "map":
        raise InvalidInput(f"{cid.text} is not a map root", code="kind_mismatch")
    return cid
