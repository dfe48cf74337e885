"""What differs between two maps, page after page, each verified before anything of it is handed on.

Sans-I/O like ``operations``. Leaves out nested maps: a map in a map is one target, which differs or does not.
"""

from __future__ import annotations

from typing import NamedTuple

from coregw import _core
from coregw.client.operations import Piece, Stream, naming
from coregw.client.questions import CidLike, PathLike, segments_of
from coregw.client.settings import ClientSettings
from coregw.client.wire import Answer, Call
from coregw.errors import InvalidInput

__all__ = ["Difference", "differences"]

_PAGE = 1000


class Difference(NamedTuple):
    """A path that leads to another target in each of two maps; None where a map has no such path."""

    segments: list[str]
    before: str | None
    after: str | None


def differences(settings: ClientSettings, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Stream[Difference]:
    """All differences between two maps at and below `prefix`, in the order of keys, none left out.

    Cost follows the number of differences, not the size of the maps: one request for 1,000 of them.

    Raises:
        InvalidInput: `a` or `b` is no map, or they are of different suites (code ``kind_mismatch``).
        RootNotFound: The gateway says that it does not hold one of them; nothing proves that.
        ProofError: A page does not prove what it says. What was yielded before is proven nevertheless.
    """
    first, second = _map(a), _map(b)
    if first.suite != second.suite:
        raise InvalidInput(f"{first.text} and {second.text} are of different suites", code="kind_mismatch")
    segments = segments_of(prefix)
    what = f"compare {first.text} with {second.text}"
    after: list[str] | None = None
    while True:
        params = {name: "/".join(path) for name, path in (("prefix", segments), ("after", after)) if path}
        params["limit"] = str(_PAGE)
        path = f"/v1/roots/{first.text}/diff/{second.text}"
        answer: Answer = yield Call("GET", path, settings.max_result_bytes, what, params=params)
        with naming(what):
            page = _core.verify_diff(first, second, answer.body, segments, after, _PAGE)
        for entry in page.entries:
            yield Piece(Difference(*entry))
        if not page.more:
            return
        after = page.entries[-1][0]  # a page that more follows is full, and that is proven


def _map(root: CidLike) -> _core.Cid:
    cid = _core.Cid(root)
    if cid.kind != "map":
        raise InvalidInput(f"{cid.text} is no map", code="kind_mismatch")
    return cid
