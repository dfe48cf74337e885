"""Batches of payloads (``/v1/cas/batch``, ``/v1/cas/has``); each result is verified as far as it can be."""

from __future__ import annotations

import base64
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from coregw import _core
from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Answer, Call
from coregw.client.files import as_bytes
from coregw.client.operations.payload import put_payload
from coregw.client.operations.steps import Steps, check_same_cid
from coregw.client.query import CidLike, encode
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_HAS_CIDS, Block, PutBatchRequest, PutBatchResult

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["check_count", "has_payloads", "held_payloads", "put_payloads"]

OCTETS = "application/octet-stream"


def put_payloads(settings: ClientSettings, datas: Iterable[Buffer], codec: str | int = "raw") -> Steps[list[str]]:
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


def _batches(datas: Iterable[Buffer], max_bytes: int) -> Generator[list[bytes], None, None]:
    """Group payloads into runs that fit a batch; an oversized payload is a run of its own."""
    batch: list[bytes] = []
    size = 0
    for data in map(as_bytes, datas):
        if batch and (size + len(data) > max_bytes or len(batch) == MAX_BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(data)
        size += len(data)
    if batch:
        yield batch


def has_payloads(settings: ClientSettings, cids: Iterable[CidLike]) -> Steps[list[bool]]:
    """Return whether the gateway says that it holds each payload, in order; nothing proves that. O(n).

    Raises:
        ProofError: The answer does not have one bit for each payload.
    """
    parsed = [bytes(_core.Cid(cid)) for cid in cids]
    present: list[bool] = []
    for start in range(0, len(parsed), MAX_HAS_CIDS):
        batch = parsed[start : start + MAX_HAS_CIDS]
        held = yield from held_payloads(settings, b"".join(batch), len(batch))
        present += [bool(held[index >> 3] >> (index & 7) & 1) for index in range(len(batch))]
    return present


def held_payloads(settings: ClientSettings, cids: Buffer, count: int) -> Steps[bytes]:
    """Return which payloads the gateway says that it holds: a bit for each, the lowest one of a byte first.

    Args:
        settings: The client's settings.
        cids: Binary CIDs, one after the other.
        count: Their number, at most 16,384.

    Raises:
        ProofError: The answer does not have one bit for each payload.
    """
    what = f"look up {count} payloads"
    size = -(-count // 8)
    call = Call("POST", "/v1/cas/has", settings.max_result_bytes, what, content=as_bytes(cids), content_type=OCTETS)
    answer: Answer = yield call
    if len(answer.body) != size or (size and count % 8 and answer.body[-1] >> count % 8):
        raise ProofError(f"{what}: the answer does not have one bit for each CID", check="answer")
    return answer.body


def check_count(call: Call, received: int, requested: int) -> None:
    """Raise `ProofError` unless a batch has as many results as items."""
    if received != requested:
        raise ProofError(f"{call.what}: requested {requested} results, received {received}", check="answer")
