"""Many payloads at once: stored as CARs (``/v1/car``), and looked up (``/v1/cas/has``)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain

from coregw import _core
from coregw.client.exchange.call import OCTETS, Answer, Call
from coregw.client.files import as_bytes
from coregw.client.operations.car import put_car
from coregw.client.operations.payload import put_payload
from coregw.client.operations.steps import Steps
from coregw.client.part_size import PartSize
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.errors import ProofError, TooLarge
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_HAS_CIDS
from coregw.messages.car import MAX_WHOLE_CAR_BYTES
from coregw.verify import Buffer

__all__ = ["has_payloads", "held_payloads", "put_payloads"]


def put_payloads(
    settings: ClientSettings, datas: Iterable[Buffer], codec: str | int = "raw", sizes: PartSize | None = None
) -> Steps[list[str]]:
    """Store payloads in batches and return their CIDs, in order.

    Consumes `datas` lazily, about ``batch_bytes`` ahead. A batch is sent as a CAR that the gateway takes in memory. A
    payload of at least ``batch_bytes``, or for which such a CAR has no room, is sent on its own.

    Args:
        settings: The client's settings.
        datas: The payloads.
        codec: Their multicodec, by name or number.
        sizes: How long requests may be, as learned from earlier calls.

    Raises:
        InvalidInput: The codec is unknown.
        ProofError: The gateway's answer describes something other than what was sent.
        TooLarge: A payload has more than ``max_payload_bytes`` bytes, or exceeds a limit of the gateway.
    """
    number = _core.codec_code(codec)
    cids: list[str] = []
    for batch in _batches(settings, datas, number):
        if len(batch) == 1:
            cids.append((yield from put_payload(settings, batch[0], number)))
        else:
            named = [_core.Cid(_core.payload_cid(data, number)) for data in batch]
            yield from put_car(settings, _car(named, batch), f"put {len(batch)} payloads", sizes)
            cids += [cid.text for cid in named]
    return cids


def _car(cids: list[_core.Cid], payloads: list[bytes]) -> bytes:
    """Return a CAR of payloads."""
    heads = _core.block_heads(cids, payloads)
    return b"".join([_core.payload_car_header(), *chain.from_iterable(zip(heads, payloads, strict=True))])


def _batches(settings: ClientSettings, datas: Iterable[Buffer], codec: int) -> Generator[list[bytes], None, None]:
    """Group payloads into runs that fit a batch and its CAR; a payload that fits neither is a run of its own.

    Raises:
        TooLarge: A payload has more than ``max_payload_bytes`` bytes; the message names it.
    """
    any_cid = _core.Cid(_core.payload_cid(b"", codec))  # all of a codec have the same length
    empty = len(_core.payload_car_header())
    batch: list[bytes] = []
    size, car_size = 0, empty
    for index, data in enumerate(map(as_bytes, datas)):
        length = len(data)
        if length > settings.max_payload_bytes:
            raise TooLarge(f"datas[{index}]: {length} bytes; the limit is {settings.max_payload_bytes}")
        framed = len(_core.block_head(any_cid, length)) + length
        is_full = size + length > settings.batch_bytes or car_size + framed > MAX_WHOLE_CAR_BYTES
        if batch and (is_full or len(batch) == MAX_BATCH_BLOCKS):
            yield batch
            batch, size, car_size = [], 0, empty
        batch.append(data)
        size += length
        car_size += framed
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
