"""Many paths of one root: a multiproof for the keys of its map, and batches of resolves for what leads further.

A multiproof (``keys`` of ``/v1/map-proof``) is smaller and faster than as many inclusion proofs, and proves absence.
But it knows only the keys of the map itself, so a path into a nested map or a list needs ``/v1/resolve/batch``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.exchange.answers import decode, error_from
from coregw.client.exchange.call import OCTETS, Answer, Call
from coregw.client.operations.lookup import call_of, verified
from coregw.client.operations.steps import Steps, located
from coregw.client.query import CidLike, PathLike, Query, encode, map_keys, resolve, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError, TooLarge
from coregw.messages.batch import MAX_BATCH_PATHS, ResolveBatchRequest, ResolveBatchResult, ResolveOutcome

__all__ = ["prove_keys", "resolve_many"]

T = TypeVar("T")

_MAX_KEYS: Final = 4096
"""Of one multiproof: more make it hardly smaller, and a request longer than a gateway may take."""
_MAX_CHARACTERS: Final = 1 << 18
"""Of the segments of all keys in one request; a gateway takes 1 MiB of JSON by default."""


def prove_keys(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """Return the target of each key of a map, in order; None where the key is proven absent.

    Raises:
        InvalidInput: A path is empty or malformed, or `root` is not a map.
        ProofError: The targets are not proven.
        RootNotFound: The gateway says that it does not hold the root; nothing proves that.
    """
    keys = [tuple(segments_of(path)) for path in paths]
    found: dict[tuple[str, ...], str | None] = {}
    for batch in _batches(list(dict.fromkeys(keys))):
        targets = yield from _in_halves(batch, lambda part: _prove_together(settings, root, part))
        found.update(zip(batch, targets, strict=True))
    return [found[key] for key in keys]


def resolve_many(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """Return the proven target of each path of one root, in order; None, unproven, where the gateway finds nothing.

    Paths that are keys of the root's own map cost one multiproof; the others, another request for each 1,000.

    Raises:
        ProofError: A result is not proven.
        RootNotFound: The gateway says that it does not hold the root; nothing proves that.
    """
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
        length = sum(map(len, key))
        if batch and (len(batch) == _MAX_KEYS or size + length > _MAX_CHARACTERS):
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
