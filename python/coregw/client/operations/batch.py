"""Batches of payloads or paths (``/v1/cas/batch``, ``/v1/resolve/batch``); each result is verified."""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.exchange import Answer, Call, decode, error_from
from coregw.client.operations.lookup import verified
from coregw.client.operations.payload import put_payload
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.query import CidLike, PathLike, Query, encode, resolve, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError, TooLarge
from coregw.messages.batch import (
    MAX_BATCH_BLOCKS,
    MAX_BATCH_PATHS,
    Block,
    HasBatchRequest,
    HasBatchResult,
    PutBatchRequest,
    PutBatchResult,
    ResolveBatchRequest,
    ResolveBatchResult,
    ResolveOutcome,
)

__all__ = ["has_payloads", "put_payloads", "resolve_many"]


def put_payloads(settings: ClientSettings, datas: Iterable[bytes], codec: str | int = "raw") -> Steps[list[str]]:
    """Store payloads in batches and return their CIDs, in order.

    Consumes `datas` lazily, about ``batch_bytes`` ahead. A payload of at least that size is sent on its own.

    Raises:
        InvalidInput: The codec is unknown.
        ProofError: The gateway's CID of a payload is not the one computed here.
        TooLarge: A payload has more than ``max_payload_bytes`` bytes.
    """
    number = _core.codec_code(codec)
    cids: list[str] = []
    for batch in _batches(datas, settings.batch_bytes):
        if len(batch) == 1:
            cids.append((yield from put_payload(settings, batch[0], number)))
        else:
            cids += yield from _put(settings, batch, number)
    return cids


def _put(settings: ClientSettings, batch: Sequence[bytes], codec: int) -> Steps[list[str]]:
    blocks = [Block(codec=codec, data=msgspec.Raw(b'"' + base64.b64encode(data) + b'"')) for data in batch]
    content = encode(PutBatchRequest(blocks=blocks))
    call = Call("POST", "/v1/cas/batch", settings.max_result_bytes, f"put {len(batch)} payloads", content=content)
    answer: Answer = yield call
    results = decode(call, answer, PutBatchResult).results
    _check_count(call, len(results), len(batch))
    cids = [_core.payload_cid(data, codec) for data in batch]
    for computed, result in zip(cids, results, strict=True):
        check_same_cid(call.what, result.cid, computed)
    return cids


def _batches(datas: Iterable[bytes], max_bytes: int) -> Generator[list[bytes], None, None]:
    """Group payloads into runs that fit a batch; an oversized payload is a run of its own."""
    batch: list[bytes] = []
    size = 0
    for data in datas:
        if batch and (size + len(data) > max_bytes or len(batch) == MAX_BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(data)
        size += len(data)
    if batch:
        yield batch


def has_payloads(settings: ClientSettings, cids: Iterable[CidLike]) -> Steps[list[bool]]:
    """Return whether the gateway says that it holds each payload, in order; nothing proves that.

    Raises:
        ProofError: The answer names other payloads.
    """
    texts = [_core.Cid(cid).text for cid in cids]
    present: list[bool] = []
    for start in range(0, len(texts), MAX_BATCH_BLOCKS):
        batch = texts[start : start + MAX_BATCH_BLOCKS]
        what = f"look up {len(batch)} payloads"
        content = encode(HasBatchRequest(cids=batch))
        call = Call("POST", "/v1/cas/batch", settings.max_result_bytes, what, content=content)
        answer: Answer = yield call
        results = decode(call, answer, HasBatchResult).results
        _check_count(call, len(results), len(batch))
        for cid, result in zip(batch, results, strict=True):
            check_same_cid(call.what, result.cid, cid)
            present.append(result.present)
    return present


def resolve_many(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """Return the proven target of each path of one root, in order; None, unproven, where the gateway finds nothing.

    Raises:
        ProofError: A result is not proven.
        RootNotFound: The gateway says that it does not hold the root; nothing proves that.
    """
    every = [segments_of(path) for path in paths]
    targets: list[str | None] = []
    for start in range(0, len(every), MAX_BATCH_PATHS):
        targets += yield from _resolve(settings, root, every[start : start + MAX_BATCH_PATHS])
    return targets


def _resolve(settings: ClientSettings, root: CidLike, paths: list[list[str]]) -> Steps[list[str | None]]:
    """Resolve one batch; split it in halves if the answer would be too large."""
    what = f"resolve {len(paths)} paths in {_core.Cid(root).text}"
    content = encode(ResolveBatchRequest(root=_core.Cid(root).text, paths=paths))
    call = Call("POST", "/v1/resolve/batch", settings.max_result_bytes, what, content=content)
    try:
        answer: Answer = yield call
    except TooLarge:
        if len(paths) == 1:
            raise
        half = len(paths) // 2
        first = yield from _resolve(settings, root, paths[:half])
        return first + (yield from _resolve(settings, root, paths[half:]))
    results = decode(call, answer, ResolveBatchResult).results
    _check_count(call, len(results), len(paths))
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


def _check_count(call: Call, received: int, requested: int) -> None:
    if received != requested:
        raise ProofError(f"{call.what}: requested {requested} results, received {received}", check="answer")
