"""Reading the batches of payloads of protocol section 5: many to store, or many to look up.

Does no I/O; storing and asking the store is `coregw.engine.payloads`.
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
"""How many characters of base64 are decoded at once; a multiple of 4."""


class Payload(NamedTuple):
    """A payload of a batch; `data` is None where it is only asked about."""

    cid: str
    multihash: bytes
    data: bytes | None


class CasBatch(msgspec.Struct):
    """What tells one batch from another."""

    profile: str


def read_cas_batch(body: bytes, largest: int) -> tuple[bool, list[Payload]]:
    """Reads a body of ``POST /v1/cas/batch``. O(bytes), each of them hashed.

    Args:
        body: The JSON text.
        largest: The most bytes of one payload.

    Returns:
        Whether the payloads are to be stored (else: looked up), and the payloads in order.

    Raises:
        InvalidInput: It is no such request, or one item is wrong: then the message and the details name its index.
        TooLarge: It has more than 4,096 items or 64 MiB of data, or one payload is larger than `largest`.
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
    raise InvalidInput(f"no batch of payloads has the profile {profile!r:.100}", code="unknown_profile")


def _payloads(blocks: Sequence[Block], largest: int) -> list[Payload]:
    payloads = []
    total = 0
    for index, block in enumerate(blocks):
        try:
            data = _canonical_base64(block.data)
            if len(data) > largest:
                raise TooLarge(f"a payload has at most {largest} bytes, not {len(data)}")
            cid = payload_cid(data, "raw" if isinstance(block.codec, msgspec.UnsetType) else block.codec)
        except InvalidInput as error:
            raise of_item("blocks", index, error) from None
        total += len(data)
        if total > MAX_BATCH_BYTES:
            raise TooLarge(f"the blocks of a batch have at most {MAX_BATCH_BYTES} bytes; block {index} goes past them")
        payloads.append(Payload(cid, Cid(cid).multihash, data))
    return payloads


def _canonical_base64(raw: msgspec.Raw) -> bytes:
    """The bytes that a JSON string spells as RFC 4648 section 4 says, in the one way that it allows.

    Slice by slice: the interpreter, which is not let go in one slice, may turn to other requests between two.
    """
    text = memoryview(raw)
    if bytes(text[:1]) != b'"':
        raise InvalidInput("data is no string")
    text = text[1:-1]
    if any(b"\\" in bytes(text[start : start + _SLICE]) for start in range(0, len(text), _SLICE)):
        text = memoryview(msgspec.json.decode(raw, type=str).encode())
    parts = []
    for start in range(0, len(text), _SLICE):
        spelled = bytes(text[start : start + _SLICE])
        try:
            part = binascii.a2b_base64(spelled)
        except ValueError:  # not a whole number of groups
            raise InvalidInput("data is no base64") from None
        is_last = start + _SLICE >= len(text)
        if binascii.b2a_base64(part, newline=False) != spelled or (spelled.endswith(b"=") and not is_last):
            raise InvalidInput("data is no canonical base64 (RFC 4648 section 4, with padding)")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _asked_for(index: int, cid: str) -> Payload:
    try:
        parsed = Cid(cid)
    except InvalidInput as error:
        raise of_item("cids", index, error) from None
    return Payload(parsed.text, parsed.multihash, None)
