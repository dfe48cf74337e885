"""New maps and lists (``/v1/roots``). The root is always computed here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final

from coregw import _core
from coregw.client.exchange import Answer, Call, decode
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.query import CidLike, PathLike, encode
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, NotFound, ProofError
from coregw.messages import Change, Delta, Endpoint, MutationReceipt, MutationRequest, RootCreated
from coregw.messages.complete import Completeness

__all__ = [
    "build_lines",
    "build_sorted",
    "completeness",
    "create_list",
    "create_root",
    "is_complete",
    "is_held",
    "sort_arcs",
]


LINES_TYPE: Final = "application/x-ndjson"
LINES_BYTES: Final = 256 << 10
"""Bytes of lines in a chunk."""


def create_root(settings: ClientSettings, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> Steps[str]:
    """Create the map of `arcs` (path text to CID) and return its root. O(n log n).

    Raises:
        InvalidInput: A path, CID or suite is not valid.
        ProofError: The gateway's root is not the one computed here.
    """
    plain = {path: cid if isinstance(cid, str) else _core.Cid(cid).text for path, cid in arcs.items()}
    document = encode(plain)
    expected = _core.Map(document, suite).root
    body = b'{"arcs":' + document + b',"suite":' + encode(suite) + b"}"
    call = Call("POST", "/v1/roots", settings.max_result_bytes, f"create a root of {len(plain)} arcs", content=body)
    answer: Answer = yield call
    check_same_cid(call.what, decode(call, answer, RootCreated).root, expected)
    return expected


def is_complete(settings: ClientSettings, root: CidLike) -> Steps[bool]:
    """Return whether the gateway says that it holds everything below a root; nothing proves that.

    Raises:
        InvalidInput: `root` is not a root.
        ProofError: The answer is about another root.
    """
    told = yield from completeness(settings, root)
    return told.complete


def completeness(settings: ClientSettings, root: CidLike) -> Steps[Completeness]:
    """Return what the gateway says about everything below a root, with what is missing; as `is_complete`."""
    cid = _core.Cid(root).text
    call = Call("POST", f"/v1/roots/{cid}/complete", settings.max_result_bytes, f"ask whether {cid} is held")
    answer: Answer = yield call
    told = decode(call, answer, Completeness)
    check_same_cid(call.what, told.root, cid)
    return told


def is_held(settings: ClientSettings, root: CidLike) -> Steps[bool]:
    """Return whether the gateway says that it holds the tree of a root; nothing proves that.

    Raises:
        InvalidInput: `root` is not a root.
    """
    cid = _core.Cid(root).text
    try:
        yield Call("HEAD", f"/v1/roots/{cid}", settings.max_result_bytes, f"look up {cid}")
    except NotFound:  # an answer to HEAD has no error document
        return False
    return True


def sort_arcs(arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]]) -> _core.ArcSorter:
    """Sort arcs in bounded memory, and a temporary file in the system's folder. O(n log n).

    Raises:
        InvalidInput: A path or CID is not valid; the message names the arc.
        OSError: The temporary file cannot be written.
    """
    sorter = _core.ArcSorter()
    sorter.add(arcs)
    sorter.end()
    return sorter


class _Lines:
    """Arcs as a request body."""

    def __init__(self, lines: Callable[[int], Iterable[bytes]]) -> None:
        self._lines = lines

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield all lines."""
        yield from self._lines(LINES_BYTES)


def build_lines(
    settings: ClientSettings, lines: Callable[[int], Iterable[bytes]], root: str, suite: str, what: str = "create a map"
) -> Steps[None]:
    """Send arcs as lines to the gateway, which stores their map whole or not at all. O(n).

    Args:
        settings: The client's settings.
        lines: Called for each attempt with a number of bytes; iterates over chunks of about that size.
        root: The root, computed here.
        suite: The suite of the map.
        what: The call in words, for messages.

    Raises:
        ProofError: The gateway's root is another.
        TooLarge: The arcs exceed a limit of the gateway.
    """
    content, parameters = _Lines(lines), {"suite": suite}
    size = settings.max_result_bytes
    call = Call("POST", "/v1/roots", size, what, content=content, content_type=LINES_TYPE, params=parameters)
    answer: Answer = yield call
    check_same_cid(call.what, decode(call, answer, RootCreated).root, root)


def build_sorted(settings: ClientSettings, sorter: _core.ArcSorter, suite: str = "sha2-256") -> Steps[str]:
    """Send sorted arcs to the gateway, which stores their map whole or not at all, and return its root. O(n).

    The gateway answers when the map is stored, about 3 microseconds for each arc after the last byte. Until then it is
    silent, for which `ClientSettings.stream_bytes_per_second` allows 20 times as long.

    Raises:
        InvalidInput: Two arcs have the same path (the message names it), or the suite is unknown.
        ProofError: The gateway's root is not the one computed here.
        TooLarge: The arcs exceed a limit of the gateway.
    """
    expected = sorter.root(suite)
    yield from build_lines(settings, sorter.lines, expected, suite, f"create a root of {sorter.arcs} arcs")
    return expected


def create_list(
    settings: ClientSettings,
    elements: Iterable[CidLike],
    sizes: Iterable[int] | None = None,
    *,
    suite: str = "sha2-256",
    base: CidLike | None = None,
) -> Steps[str]:
    """Create a list by list deltas and return its root. O(n).

    Args:
        settings: The client's settings; one mutation holds at most ``list_changes`` elements.
        elements: The targets, in order.
        sizes: The measure of each element, at least 1; by default 1 each.
        suite: The suite of the list; ignored if `base` is given.
        base: A map root to start the mutations from; the list gets its suite. By default the empty map, created first.

    Raises:
        InvalidInput: A CID, size, suite or the base is not valid.
        ProofError: The gateway's root is not the one computed here.
    """
    targets = [cid if isinstance(cid, str) else _core.Cid(cid).text for cid in elements]
    measures = [1] * len(targets) if sizes is None else list(sizes)
    if base is not None:
        start = _core.Cid(base)
        if start.kind != "map" or start.suite is None:
            raise InvalidInput(f"create a list: the base {start.text} is not a map root", code="kind_mismatch")
        suite = start.suite
    expected = _core.List(targets, measures, suite).root
    current: str = _core.Cid(base).text if base is not None else (yield from create_root(settings, {}, suite))
    what = f"create a list of {len(targets)} elements"
    for deltas in _appends(targets, measures, suite, settings.list_changes):
        body = encode(MutationRequest(deltas=deltas))
        call = Call("POST", f"/v1/roots/{current}/mutations", settings.max_result_bytes, what, content=body)
        answer: Answer = yield call
        current = _list_root(call, decode(call, answer, MutationReceipt).new_root)
    check_same_cid(what, current, expected)
    return expected


def _appends(targets: Sequence[str], measures: Sequence[int], suite: str, at_most: int) -> list[list[Delta]]:
    """Return the deltas of each mutation. Without ``object``, a delta appends to a base list, else starts a list."""
    if not targets:
        # A delta needs at least one change, so the empty list is made by appending an element and removing it again.
        element = Endpoint(target=_core.payload_cid(b""), size=1)
        added, removed = Change(index=0, after=element), Change(index=0, before=element)
        full = _core.List([element.target], [1], suite).root
        return [[Delta(kind="list", changes=[added]), Delta(kind="list", object=full, changes=[removed])]]
    changes = [
        Change(index=index, after=Endpoint(target=target, size=size))
        for index, (target, size) in enumerate(zip(targets, measures, strict=True))
    ]
    batches = range(0, len(changes), at_most)
    return [[Delta(kind="list", changes=changes[at : at + at_most])] for at in batches]


def _list_root(call: Call, root: str) -> str:
    """Return `root` in a form that is safe in a URL. It stays untrusted until the last root is compared."""
    try:
        cid = _core.Cid(root)
    except InvalidInput as error:
        raise ProofError(f"{call.what}: the gateway's root is not a CID: {error.message}", check="root") from None
    if cid.kind != "list":
        raise ProofError(f"{call.what}: the gateway's root {cid.text} is not a list", check="root")
    return cid.text
