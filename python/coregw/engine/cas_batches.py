"""Requests for batches of payloads, to store or to look up (protocol section 5, *batches*).

Does no I/O; `coregw.engine.payloads` stores the payloads or looks them up.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from coregw._core import Cid, payload_cid
from coregw.engine.items import check_count, of_item
from coregw.errors import InvalidInput, TooLarge
from coregw.messages import decode
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_BATCH_BYTES, Block, HasBatchRequest, PutBatchRequest
from coregw.messages.common import decode_checked

__all__ = ["Payload", "read_cas_batch"]

_SLICE: Final = 256 << 10
"""Characters of base64 that are decoded at once; a multiple of 4."""


class Payload(NamedTuple):
    """A payload of a batch; `data` is None if it is only looked up."""

    cid: str
    multihash: bytes
    data: bytes | None


class CasBatch(msgspec.Struct):
    """The member that distinguishes the kinds of batches."""

    profile: str


def read_cas_batch(body: bytes, largest: int) -> tuple[bool, list[Payload]]:
    """Read a body of ``POST /v1/cas/batch``. O(bytes), all of them hashed.

    Args:
        body: The JSON text.
        largest: Bound of one payload, in bytes.

    Returns:
        Whether to store the payloads (otherwise: to look them up), and the payloads in order.

    Raises:
        InvalidInput: If the request is malformed; if an item is invalid, message and details name its index.
        TooLarge: If there are more than 4,096 items or 64 MiB of data, or a payload is larger than `largest`.
    """
    profile = decode(body, CasBatch).profile
    if profile == "cas.put-batch/v0alpha1":
        blocks = decode_checked(body, PutBatchRequest).blocks
        check_count("blocks", len(blocks), MAX_BATCH_BLOCKS)
        return True, _payloads(blocks, largest)
    if profile == "cas.has-batch/v0alpha1":
        cids = decode_checked(body, HasBatchRequest).cids
        check_count("cids", len(cids), MAX_BATCH_BLOCKS)
        return False, [_asked_for(index, cid) for index, cid in enumerate(cids)]
    raise InvalidInput(f"profile: {profile!r:.100} is not that of a batch of payloads", code="unknown_profile")


def _payloads(blocks: Sequence[Block], largest: int) -> list[Payload]:
    payloads = []
    total = 0
    for index, block in enumerate(blocks):
        try:
            data = _canonical_base64(block.data)
            if len(data) > largest:
                raise TooLarge(f"the payload has {len(data)} bytes; the limit is {largest}")
            cid = payload_cid(data, "raw" if isinstance(block.codec, msgspec.UnsetType) else block.codec)
        except InvalidInput as error:
            raise of_item("blocks", index, error) from None
        total += len(data)
        if total > MAX_BATCH_BYTES:
            raise TooLarge(f"the payloads up to blocks[{index}] have {total} bytes; the limit is {MAX_BATCH_BYTES}")
        payloads.append(Payload(cid, Cid(cid).multihash, data))
    return payloads


def _canonical_base64(raw: msgspec.Raw) -> bytes:
    """Decode a JSON string of canonical base64 (RFC 4648 section 4).

    In slices, since each is decoded with the GIL held: other threads run between them.
    """
    text = memoryview(raw)
    if bytes(text[:1]) != b'"':
        raise InvalidInput("data is not a string")
    text = text[1:-1]
    if any(b"\\" in bytes(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)):
        text = memoryview(msgspec.json.decode(raw, type=str).encode())
    parts = []
    for start in range(0, len(text), _SLICE):
        encoded = bytes(text[start : start + _SLICE])
        try:
            part = binascii.a2b_base64(encoded)
        except ValueError:  # not a whole number of groups
            raise InvalidInput("data is not base64") from None
        is_last = start + _SLICE >= len(text)
        if binascii.b2a_base64(part, newline=False) != encoded or (encoded.endswith(b"=") and not is_last):
            raise InvalidInput("data is not canonical base64 (RFC 4648 section 4, with padding)")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _asked_for(index: int, cid: str) -> Payload:
    try:
        parsed = Cid(cid)
    except InvalidInput as error:
        raise of_item("cids", index, error) from None
    return Payload(parsed.text, parsed.multihash, None)
