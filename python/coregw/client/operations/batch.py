"""Batches of payloads (``/v1/cas/batch``); each result is verified."""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Sequence

import msgspec

from coregw import _core
from coregw.client.exchange import Answer, Call, decode
from coregw.client.operations.payload import put_payload
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.query import CidLike, encode
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError
from coregw.messages.batch import (
    MAX_BATCH_BLOCKS,
    Block,
    HasBatchRequest,
    HasBatchResult,
    PutBatchRequest,
    PutBatchResult,
)

__all__ = ["check_count", "has_payloads", "put_payloads"]


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
    check_count(call, len(results), len(batch))
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
        check_count(call, len(results), len(batch))
        for cid, result in zip(batch, results, strict=True):
            check_same_cid(call.what, result.cid, cid)
            present.append(result.present)
    return present


def check_count(call: Call, received: int, requested: int) -> None:
    """Raise `ProofError` unless a batch has as many results as items."""
    if received != requested:
        raise ProofError(f"{call.what}: requested {requested} results, received {received}", check="answer")
