"""Queries, sent and verified: one, many, the paths of a scan, and proven absence.

A multiproof (``keys`` of ``/v1/map-proof``) is smaller and faster than as many inclusion proofs, and proves absence.
But it knows only the keys of the map itself, so a path into a nested map or a list needs ``/v1/resolve/batch``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.operations.steps import Steps, located
from coregw.client.query import (
    Proven,
    Query,
    encode,
    map_keys,
    read_index,
    read_key,
    read_range,
    resolve,
    scan,
    segments_of,
)
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import OCTETS, Answer, Call, decode, error_from, unproven
from coregw.errors import IndexNotFound, PathNotFound, ProofError, TooLarge, UnprovenAbsence
from coregw.messages.common import MAX_INTEGER
from coregw.messages.payloads import MAX_BATCH_PATHS
from coregw.messages.query import ResolveBatchRequest, ResolveBatchResult, ResolveOutcome
from coregw.verify import CidLike, PathLike

__all__ = [
    "call_of",
    "index_target",
    "key_target",
    "prove",
    "prove_absent",
    "prove_keys",
    "range_outcome",
    "resolve_many",
    "value",
    "verified",
]

T = TypeVar("T")


def prove(settings: ClientSettings, query: Query[T]) -> Steps[Proven[T]]:
    """Steps of `AsyncClient.query`, which describes arguments and errors."""
    try:
        answer: Answer = yield call_of(settings, query)
    except UnprovenAbsence as absent:
        if query.absence == "claimed":
            raise
        if absent.details is None:
            raise unproven(query.what) from None
        result = absent.details
    else:
        result = answer.body
    return Proven(verified(query, result), query.request, result)


def call_of(settings: ClientSettings, query: Query[T], preferred_type: str = "") -> Call:
    """Return the call that sends a query; `preferred_type` as in `Call`."""
    return Call(
        "POST",
        query.route,
        settings.max_result_bytes,
        query.what,
        content=query.request,
        preferred_type=preferred_type,
        may_be_absent=query.absence != "result",
    )


def value(settings: ClientSettings, query: Query[T]) -> Steps[T]:
    """Send a query and return the verified value alone; see `prove`."""
    proven = yield from prove(settings, query)
    return proven.value


def verified(query: Query[T], result: bytes) -> T:
    """Return the value that a result proves. Raises `ProofError`, prefixed with the query, if it is not proven."""
    try:
        return query.verify(query.request, result)
    except ProofError as error:
        raise located(query.what, error) from None


def key_target(settings: ClientSettings, root: CidLike, path: PathLike) -> Steps[str]:
    """Steps of `AsyncClient.read_key`, which describes arguments and errors."""
    query = read_key(root, path)
    proven = yield from prove(settings, query)
    if not proven.value.present or proven.value.target is None:
        raise PathNotFound(f"{query.what}: proven absent", details=proven.result)
    return proven.value.target


def index_target(settings: ClientSettings, root: CidLike, index: int) -> Steps[str]:
    """Steps of `AsyncClient.read_index`, which describes arguments and errors."""
    query = read_index(root, index)
    proven = yield from prove(settings, query)
    if not proven.value.present or proven.value.target is None:
        raise IndexNotFound(f"{query.what}: the list has {proven.value.length} elements", details=proven.result)
    return proven.value.target


def range_outcome(settings: ClientSettings, root: CidLike, start: int, end: int | None) -> Steps[_core.ReadOutcome]:
    """Steps of `AsyncClient.read_range`, which describes arguments and errors."""
    return (yield from value(settings, read_range(root, start, end)))


_MAX_KEYS: Final = 4096
"""Of one multiproof: more make it hardly smaller, and a request longer than a gateway may take."""

_MAX_BYTES: Final = (1 << 20) - 4096
"""Of all keys in one request, as JSON; a gateway takes 1 MiB by default, and what is around them is short."""


def prove_keys(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """Steps of `AsyncClient.prove_keys`, which describes arguments and errors."""
    keys = [tuple(segments_of(path)) for path in paths]
    found: dict[tuple[str, ...], str | None] = {}
    for batch in _batches(list(dict.fromkeys(keys))):
        targets = yield from _in_halves(batch, lambda part: _prove_together(settings, root, part))
        found.update(zip(batch, targets, strict=True))
    return [found[key] for key in keys]


def resolve_many(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """Steps of `AsyncClient.resolve_many`, which describes arguments and errors."""
    every = [segments_of(path) for path in paths]
    targets: list[str | None] = [None] * len(every)
    if _core.Cid(root).kind == "map":
        keys = [place for place, path in enumerate(every) if path]  # no path is the root itself
        proven = yield from prove_keys(settings, root, [every[place] for place in keys])
        for place, target in zip(keys, proven, strict=True):
            targets[place] = target
    rest = [place for place, target in enumerate(targets) if target is None]
    for start in range(0, len(rest), MAX_BATCH_PATHS):
        batch = rest[start : start + MAX_BATCH_PATHS]
        resolved = yield from _in_halves([every[place] for place in batch], lambda part: _resolve(settings, root, part))
        for place, target in zip(batch, resolved, strict=True):
            targets[place] = target
    return targets


def _prove_together(
    settings: ClientSettings, root: CidLike, keys: Sequence[tuple[str, ...]]
) -> Steps[list[str | None]]:
    """Return what one multiproof proves: the bare proof, or a result from a gateway that sends only these."""
    query = map_keys(root, keys)
    answer: Answer = yield call_of(settings, query, OCTETS)
    if answer.media_type != OCTETS:
        return verified(query, answer.body)
    try:
        return _core.verify_keys(root, keys, answer.body)
    except ProofError as error:
        raise located(query.what, error) from None


def _batches(keys: Sequence[tuple[str, ...]]) -> Generator[list[tuple[str, ...]], None, None]:
    """Group keys into runs that fit a request; an oversized key is a run of its own."""
    batch: list[tuple[str, ...]] = []
    size = 0
    for key in keys:
        length = len(msgspec.json.encode(key)) + 1
        if batch and (len(batch) == _MAX_KEYS or size + length > _MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += length
    if batch:
        yield batch


def _in_halves(items: Sequence[T], ask: Callable[[Sequence[T]], Steps[list[str | None]]]) -> Steps[list[str | None]]:
    """Return what `ask` returns for all items, asking for halves of them if request or answer would be too large."""
    try:
        return (yield from ask(items))
    except TooLarge:
        if len(items) == 1:
            raise
    half = len(items) // 2
    first = yield from _in_halves(items[:half], ask)
    return first + (yield from _in_halves(items[half:], ask))


def _resolve(settings: ClientSettings, root: CidLike, paths: Sequence[list[str]]) -> Steps[list[str | None]]:
    """Resolve one batch."""
    what = f"resolve {len(paths)} paths in {_core.Cid(root).text}"
    content = encode(ResolveBatchRequest(root=_core.Cid(root).text, paths=list(paths)))
    call = Call("POST", "/v1/resolve/batch", settings.max_result_bytes, what, content=content)
    answer: Answer = yield call
    results = decode(call, answer, ResolveBatchResult).results
    if len(results) != len(paths):
        raise ProofError(f"{what}: requested {len(paths)} results, received {len(results)}", check="answer")
    return [_target(call, resolve(root, path), result) for path, result in zip(paths, results, strict=True)]


def _target(call: Call, query: Query[str], outcome: ResolveOutcome) -> str | None:
    """Return the proven target of one path, or None if the gateway found nothing."""
    if (outcome.result is UNSET) == (outcome.error is UNSET):
        raise ProofError(f"{query.what}: the outcome must have either a result or an error", check="answer")
    if isinstance(outcome.error, UnsetType):
        return verified(query, bytes(outcome.result or b""))
    if outcome.error.error == "path_not_found":
        return None
    raise error_from(call, 404, encode(outcome.error))


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
