"""New maps and lists (``/v1/roots``). The root is always computed here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from coregw import _core
from coregw.client.operations.mutate import Changes, apply_changes, checked_root
from coregw.client.operations.steps import PartSize, Steps, attempt, check_same_cid
from coregw.client.query import encode
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Call, SentOnce, decode
from coregw.errors import InvalidInput, NotFound, RootNotFound, Unavailable
from coregw.messages import Change, Endpoint, RootCreated
from coregw.messages.roots import Completeness
from coregw.verify import CidLike, PathLike

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

_ATTEMPTS: Final = 3
"""How often a map is begun whose first parts are lost."""

_ARCS: Final = msgspec.json.Decoder(tuple[str, str])


def create_root(
    settings: ClientSettings, arcs: Mapping[str, CidLike], suite: str = "sha2-256", parts: PartSize | None = None
) -> Steps[str]:
    """Steps of `AsyncClient.create_root`, which describes arguments and errors.

    `parts` is how long requests may be, as learned from earlier calls.
    """
    plain = {path: cid if isinstance(cid, str) else _core.Cid(cid).text for path, cid in arcs.items()}
    document = encode(plain)
    expected = _core.Map(document, suite).root
    body = b'{"arcs":' + document + b',"suite":' + encode(suite) + b"}"
    what = f"create a root of {len(plain)} arcs"
    parts = parts or PartSize()
    if parts.limit is None or len(body) <= parts.limit:
        call = Call("POST", "/v1/roots", settings.max_result_bytes, what, content=SentOnce(body))
        answer = yield from attempt(call, parts, len(body))
        if answer is not None:
            check_same_cid(what, decode(call, answer, RootCreated).root, expected)
            return expected

    def lines(size: int) -> Iterator[bytes]:
        of_chunk = max(1, size * len(plain) // len(document))
        items = iter(plain.items())
        while chunk := b"".join(encode(each) + b"\n" for each in islice(items, of_chunk)):
            yield chunk

    yield from build_lines(settings, lines, expected, suite, what, parts)
    return expected


def is_complete(settings: ClientSettings, root: CidLike) -> Steps[bool]:
    """Steps of `AsyncClient.is_complete`, which describes arguments and errors."""
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
    """The first lines of a map as a request body, at least one chunk, and the others.

    Attributes:
        sent: The number of bytes that the last attempt has sent.
        is_all: Whether these were all lines.
    """

    def __init__(self, lines: Callable[[int], Iterable[bytes]], limit: int | None) -> None:
        self._lines = lines
        self._chunk_bytes = min(LINES_BYTES, limit or LINES_BYTES)
        self._limit = limit
        self.sent = 0
        self.is_all = False

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the lines up to the limit."""
        self.sent, self.is_all = 0, False
        for chunk in self._lines(self._chunk_bytes):
            if self.sent and self._limit is not None and self.sent + len(chunk) > self._limit:
                return
            self.sent += len(chunk)
            yield chunk
        self.is_all = True

    def rest(self) -> Generator[Change, None, None]:
        """Yield the lines that were not sent, as changes of the map of the others."""
        skipped = 0
        for chunk in self._lines(self._chunk_bytes):
            if skipped < self.sent:
                skipped += len(chunk)
                continue
            for path, target in _ARCS.decode_lines(chunk):
                yield Change(path=path, after=Endpoint(target=target))


def build_lines(
    settings: ClientSettings,
    lines: Callable[[int], Iterable[bytes]],
    root: str,
    suite: str,
    what: str = "create a map",
    parts: PartSize | None = None,
) -> Steps[None]:
    """Steps of `AsyncClient.build_lines`, which describes arguments and errors.

    `parts` is how long requests may be, as learned from earlier calls. `what` is the call in words, for messages.
    """
    parts = parts or PartSize()
    for _ in range(_ATTEMPTS):
        made, first = yield from _first_lines(settings, lines, suite, what, parts)
        added = Changes(made, "map", [])
        try:
            rest = iter(()) if first.is_all else first.rest()
            while changes := list(islice(rest, settings.list_changes)):
                added = Changes(added.root, "map", changes)
                yield from apply_changes(settings, [added], what, parts)
        except RootNotFound:  # another gateway, which does not hold it, or a garbage collection
            continue
        check_same_cid(what, added.root, root)
        return
    raise Unavailable(f"{what}: the gateway does not keep what it has acknowledged")


def _first_lines(
    settings: ClientSettings, lines: Callable[[int], Iterable[bytes]], suite: str, what: str, parts: PartSize
) -> Steps[tuple[str, _Lines]]:
    """Create the map of as many arcs as a connection lasts for, and return what the gateway says is its root."""
    while True:
        body = _Lines(lines, parts.limit)
        most, parameters = settings.max_result_bytes, {"suite": suite}
        call = Call("POST", "/v1/roots", most, what, content=body, content_type=LINES_TYPE, params=parameters)
        answer = yield from attempt(call, parts, partial(getattr, body, "sent"))
        if answer is not None:
            return checked_root(what, decode(call, answer, RootCreated).root, "map", suite), body


def build_sorted(
    settings: ClientSettings, sorter: _core.ArcSorter, suite: str = "sha2-256", parts: PartSize | None = None
) -> Steps[str]:
    """Steps of `AsyncClient.build_sorted`, which describes arguments and errors.

    `parts` is how long requests may be, as learned from earlier calls.
    """
    expected = sorter.root(suite)
    yield from build_lines(settings, sorter.lines, expected, suite, f"create a root of {sorter.arcs} arcs", parts)
    return expected


def create_list(
    settings: ClientSettings,
    elements: Iterable[CidLike],
    sizes: Iterable[int] | None = None,
    *,
    suite: str = "sha2-256",
    base: CidLike | None = None,
    parts: PartSize | None = None,
) -> Steps[str]:
    """Steps of `AsyncClient.create_list`, which describes arguments and errors.

    `parts` is how long requests may be, as learned from earlier calls.
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
    yield from apply_changes(settings, _appends(current, targets, measures, expected), what, parts)
    return expected


def _appends(base: str, targets: Sequence[str], sizes: Sequence[int], expected: str) -> list[Changes]:
    """Return the changes that make a list of these elements, given a map."""
    if not targets:
        # A delta needs at least one change, so the empty list is made by appending an element and removing it again.
        element = Endpoint(target=_core.payload_cid(b""), size=1)
        full = _core.List([element.target], [1], _core.Cid(base).suite or "").root
        removal = Changes(full, "list", [Change(index=0, before=element)], expected)
        return [Changes(base, "list", [Change(index=0, after=element)], full), removal]
    elements = (Endpoint(target=target, size=size) for target, size in zip(targets, sizes, strict=True))
    return [Changes(base, "list", [Change(index=index, after=each) for index, each in enumerate(elements)], expected)]
