"""The contents of a trust store's file: a JSON document, read strictly."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from coregw._core import Cid
from coregw.errors import InvalidInput
from coregw.undecodable import UNDECODABLE

__all__ = [
    "MAX_HISTORY",
    "MAX_NAMES",
    "AcceptedRoot",
    "Document",
    "Followed",
    "SeenRecord",
    "TrustedName",
]

MAX_NAMES: Final = 10_000
"""The maximum number of names, of publications and of tree heads in a trust store."""

MAX_HISTORY: Final = 1_000
"""The maximum number of accepted roots that are remembered for a name; the oldest ones are dropped."""

_MAX_REVISION: Final = (1 << 53) - 1
"""The greatest revision, as in the messages of a gateway."""

_Revision = Annotated[int, Meta(ge=1, le=_MAX_REVISION)]


class AcceptedRoot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A root that was accepted for a name.

    Attributes:
        root: Its CID.
        accepted_at: When; in UTC.
        revision: The revision as which it was published; None if it was not looked up under a published name.
        forced: Whether it was accepted although that was a rollback.
    """

    root: str
    accepted_at: datetime
    revision: _Revision | None = None
    forced: bool = False


class Followed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The published name from which new roots of a trusted name come.

    Attributes:
        scope: Its scope.
        name: Its name there.
        policy: The text of the policy that its tree heads must meet; None if the gateway is believed.
    """

    scope: str
    name: str
    policy: str | None = None


class TrustedName(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A name and the roots that were accepted for it.

    Attributes:
        history: The accepted roots, oldest first; at least one. The last one is what the name stands for.
        follows: Where new roots are looked up; None if they are only given by hand.
    """

    history: Annotated[list[AcceptedRoot], Meta(min_length=1, max_length=MAX_HISTORY)]
    follows: Followed | None = None

    @property
    def root(self) -> str:
        """What the name stands for."""
        return self.history[-1].root


class SeenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The newest revision of a published name that was seen at one source."""

    revision: _Revision
    root: str
    frozen: bool = False


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file.

    Attributes:
        version: The version of this form.
        names: The trusted names.
        seen: Published revisions by source, scope and name, see `coregw.trust.store.TrustStore.observe`.
        heads: The newest verified checkpoint of each transparency log, as a signed note, by origin.
    """

    version: Literal[1]
    names: Annotated[dict[str, TrustedName], Meta(max_length=MAX_NAMES)] = {}
    seen: Annotated[dict[str, SeenRecord], Meta(max_length=MAX_NAMES)] = {}
    heads: Annotated[dict[str, str], Meta(max_length=MAX_NAMES)] = {}


_DECODER: Final = msgspec.json.Decoder(Document)


def decode_document(data: bytes, place: str) -> Document:
    """Decode the bytes of a file; none are an empty document. `InvalidInput` names the place."""
    if not data:
        return Document(version=1)
    try:
        found = _DECODER.decode(data)
        for name in found.names.values():
            for each in name.history:
                Cid(each.root)
    except (*UNDECODABLE, InvalidInput) as error:
        raise InvalidInput(f"{place}: not a trust store: {error}") from None
    return found


def encode_document(document: Document) -> bytes:
    """Encode a document, indented for people."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"
