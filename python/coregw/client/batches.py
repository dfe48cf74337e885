"""Many payloads, or many paths of one root, in few requests: cut to what a batch may hold, and checked one by one.

Leaves out everything about single ones (``operations``, ``questions``); large payloads travel alone.
"""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.operations import Steps, put_payload, same_cid, verified
from coregw.client.questions import CidLike, PathLike, Question, encode, resolve, segments_of
from coregw.client.settings import ClientSettings
from coregw.client.wire import Answer, Call, decode, error_from
from coregw.errors import ProofError, TooLarge
from coregw.messages.batches import (
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
    """Stores payloads in batches, and returns their CIDs in order; each is computed here, and the gateway's compared.

    Takes from `datas` as it goes, about ``batch_bytes`` ahead. A payload of that size or more travels alone.

    Raises:
        InvalidInput: An unknown codec.
        ProofError: The gateway names another CID than the bytes have.
        TooLarge: One has more bytes than ``max_payload_bytes``.
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
    _same_count(call, len(results), len(batch))
    cids = [_core.payload_cid(data, codec) for data in batch]
    for computed, result in zip(cids, results, strict=True):
        same_cid(call.what, result.cid, computed)
    return cids


def _batches(datas: Iterable[bytes], most_bytes: int) -> Generator[list[bytes], None, None]:
    """Cuts payloads into runs that fit into a batch; one that is too large is a run of its own."""
    batch: list[bytes] = []
    size = 0
    for data in datas:
        if batch and (size + len(data) > most_bytes or len(batch) == MAX_BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(data)
        size += len(data)
    if batch:
        yield batch


def has_payloads(settings: ClientSettings, cids: Iterable[CidLike]) -> Steps[list[bool]]:
    """Whether the gateway says that it has each payload, in order; nothing proves that.

    Raises:
        ProofError: The answer is about other payloads.
    """
    texts = [_core.Cid(cid).text for cid in cids]
    present: list[bool] = []
    for start in range(0, len(texts), MAX_BATCH_BLOCKS):
        asked = texts[start : start + MAX_BATCH_BLOCKS]
        what = f"ask for {len(asked)} payloads"
        content = encode(HasBatchRequest(cids=asked))
        call = Call("POST", "/v1/cas/batch", settings.max_result_bytes, what, content=content)
        answer: Answer = yield call
        results = decode(call, answer, HasBatchResult).results
        _same_count(call, len(results), len(asked))
        for cid, result in zip(asked, results, strict=True):
            same_cid(call.what, result.cid, cid)
            present.append(result.present)
    return present


def resolve_many(settings: ClientSettings, root: CidLike, paths: Iterable[PathLike]) -> Steps[list[str | None]]:
    """What each path of one root leads to, in order, every target proven. None: the gateway found none, unproven.

    Raises:
        ProofError: A result is not proven.
        RootNotFound: The gateway says that it has no such root; nothing proves that.
    """
    every = [segments_of(path) for path in paths]
    targets: list[str | None] = []
    for start in range(0, len(every), MAX_BATCH_PATHS):
        targets += yield from _resolve(settings, root, every[start : start + MAX_BATCH_PATHS])
    return targets


def _resolve(settings: ClientSettings, root: CidLike, paths: list[list[str]]) -> Steps[list[str | None]]:
    """One batch; in halves, where its answer would be too long."""
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
    _same_count(call, len(results), len(paths))
    return [_target(call, resolve(root, path), result) for path, result in zip(paths, results, strict=True)]


def _target(call: Call, question: Question[str], outcome: ResolveOutcome) -> str | None:
    """The proven target of one path, or None where the gateway found none."""
    if (outcome.result is UNSET) == (outcome.error is UNSET):
        raise ProofError(f"{question.what}: the answer is neither a result nor an error", check="answer")
    if isinstance(outcome.error, UnsetType):
        return verified(question, bytes(outcome.result or b""))
    if outcome.error.error == "path_not_found":
        return None
    raise error_from(call, 404, encode(outcome.error))


def _same_count(call: Call, answered: int, asked: int) -> None:
    if answered != asked:
        raise ProofError(f"{call.what}: {asked} were asked for, {answered} were answered", check="answer")
