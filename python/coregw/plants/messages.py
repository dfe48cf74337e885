"""The plant store's JSON messages: strict like the gateway's, except that ids may be any int64."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coregw._core import check_json
from coregw.errors import InvalidInput

__all__ = ["Error", "NewPlant", "Plant", "decode_plant", "encode"]

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]
Name = Annotated[str, Meta(description="Name of the plant.")]
Tag = Annotated[str, Meta(description="Tag that specifies the type.")]


class Plant(Struct, frozen=True, kw_only=True):
    """A plant in a response."""

    name: Name
    tag: Tag | UnsetType = UNSET


class NewPlant(Plant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plant to be created."""

    id: Annotated[Int64, Meta(description="Identification number of the plant.")]


class Error(Struct, frozen=True, kw_only=True):
    """Any failure."""

    error: Annotated[Int32, Meta(description="The status of the failure, except 409 (with status 400) for a taken id.")]
    message: Annotated[str, Meta(description="One sentence for a person.")]


_NEW_PLANT: Final = msgspec.json.Decoder(NewPlant)


def decode_plant(body: bytes) -> NewPlant:
    """Decode a `NewPlant`, strictly (protocol section 5), except that integers may be any int64. O(size).

    Raises:
        InvalidInput: The body is not strict JSON (the message has line and column), or not a `NewPlant` (the message
            has a JSON path).
    """
    check_json(body, int64=True)
    try:
        return _NEW_PLANT.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body is not a NewPlant: {error}") from None


def encode(message: Struct) -> bytes:
    """Encode a message as compact JSON. O(size)."""
    return msgspec.json.encode(message)
