"""CIDs as cells hold them, and the roots among them that are KZG commitments.

The base package imports this module for the decision who verifies a root, so it needs no other package.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from coregw import _core
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "COMMITMENT_BYTES",
    "IDENTITY",
    "RAW",
    "KzgRoot",
    "ParsedCid",
    "cid_bytes",
    "cid_text",
    "identity_cid",
    "is_kzg_request",
    "kzg_root",
    "parse",
]

COMMITMENT_BYTES: Final = 48
"""The size of a commitment: a compressed point of the group G1 of BLS12-381."""

RAW: Final = 0x55
IDENTITY: Final = 0x00

_ROOTS: Final = range(0x300000, 0x310000)
_KZG: Final = 0x01
_IPA: Final = 0x02
_VERSIONS: Final = (2, 3)
_KINDS: Final[dict[int, Literal["map", "list"]]] = {1: "map", 2: "list"}
_CIDV0_BYTES: Final = 34


class ParsedCid(NamedTuple):
    """The fields of a CID in binary form; the payload itself is the digest of an identity CID."""

    codec: int
    hash_code: int
    digest: bytes


class KzgRoot(NamedTuple):
    """A root that is a KZG commitment.

    Attributes:
        version: The version of the tree, 2 or 3.
        kind: ``map`` or ``list``.
        commitment: The commitment to the cells of the top node, 48 bytes.
    """

    version: int
    kind: Literal["map", "list"]
    commitment: bytes

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a CID in base32, in binary form, or anything with such a text.

        Raises:
            InvalidInput: It is not a KZG root (code ``invalid_cid``); the message says so of the roots of other
                commitments.
        """
        binary = _binary(value)
        fields = parse(binary)
        version, kind, backend = (fields.codec >> 12) & 0xF, (fields.codec >> 8) & 0xF, fields.codec & 0xFF
        shown = repr(cid_text(binary))
        if fields.codec in _ROOTS and backend == _IPA:
            raise _invalid(f"{shown}: roots of IPA commitments are not supported, only those of KZG commitments")
        if fields.codec not in _ROOTS or backend != _KZG:
            raise _invalid(f"{shown}: not a root of a KZG commitment")
        if version not in _VERSIONS or kind not in _KINDS:
            raise _invalid(f"{shown}: a root of unknown version or kind, codec {fields.codec:#x}")
        if fields.hash_code != IDENTITY or len(fields.digest) != COMMITMENT_BYTES:
            raise _invalid(f"{shown}: a KZG root holds its commitment of 48 bytes in an identity multihash")
        return cls(version, _KINDS[kind], fields.digest)

    def __bytes__(self) -> bytes:
        """Return the CID in binary form."""
        kind = 1 if self.kind == "map" else 2
        return _cid(_ROOTS.start | self.version << 12 | kind << 8 | _KZG, IDENTITY, self.commitment)

    @property
    def text(self) -> str:
        """The CID in lower-case base32."""
        return cid_text(bytes(self))


def parse(binary: bytes) -> ParsedCid:
    """Parse a CID in binary form, of any codec and hash function. O(bytes).

    Raises:
        InvalidInput: It is not a CID (code ``invalid_cid``).
    """
    if len(binary) == _CIDV0_BYTES and binary[:2] == b"\x12\x20":
        return ParsedCid(0x70, 0x12, binary[2:])
    try:
        version, at = _core.read_varint(binary)
        codec, at = _core.read_varint(binary, at)
        hash_code, at = _core.read_varint(binary, at)
        length, at = _core.read_varint(binary, at)
    except InvalidInput as error:
        raise _invalid(f"{binary[:40].hex()}: not a CID: {error.message}") from None
    if version != 1 or len(binary) - at != length:
        raise _invalid(f"{binary[:40].hex()}: not a CID")
    return ParsedCid(codec, hash_code, binary[at:])


def identity_cid(payload: bytes) -> bytes:
    """Return the CID, in binary form, that holds a payload of any length; codec ``raw``."""
    return _cid(RAW, IDENTITY, payload)


def cid_bytes(text: str) -> bytes:
    """Return the binary form of a CID that is text; of a CIDv0, the form that it has in a cell.

    Raises:
        InvalidInput: It is not a CID (code ``invalid_cid``).
    """
    if text.startswith("b"):
        binary = _base32(text)
        parse(binary)
        return binary
    cid = _core.Cid(text)
    return cid.multihash if text.startswith("Qm") else bytes(cid)


def cid_text(binary: bytes) -> str:
    """Return the text of a CID in binary form: CIDv1 in lower-case base32."""
    if len(binary) == _CIDV0_BYTES and binary[:2] == b"\x12\x20":
        binary = b"\x01\x70" + binary
    return "b" + base64.b32encode(binary).decode("ascii").rstrip("=").lower()


def kzg_root(value: object) -> KzgRoot | None:
    """Return the KZG root that a value is; None for anything that is not a root of malt-core.

    Raises:
        InvalidInput: It is a root of malt-core that is not supported, such as one of an IPA commitment (code
            ``invalid_cid``).
    """
    try:
        codec = parse(_binary(value)).codec
    except InvalidInput:
        return None
    return KzgRoot.parse(value) if codec in _ROOTS and codec & 0xFF in {_KZG, _IPA} else None


def is_kzg_request(request: Buffer | str) -> bool:
    """Return whether a request that the extension refuses is for this package.

    That is one with a KZG root, or with a profile of malt-core and no root of another kind.

    Raises:
        InvalidInput: The root is one of malt-core's that is not supported (code ``invalid_cid``).
    """
    try:
        asked = json.loads(request if isinstance(request, str) else bytes(request))
    except (ValueError, RecursionError):
        return False
    if not isinstance(asked, dict):
        return False
    if kzg_root(asked.get("root")) is not None:
        return True
    try:
        is_payload = _core.Cid(str(asked.get("root"))).kind == "cas"
    except InvalidInput:
        return False
    return is_payload and str(asked.get("profile")).startswith("malt.")


def _binary(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _base32(str(value))


def _base32(text: str) -> bytes:
    """Decode multibase ``b``: lower-case base32 without padding or stray bits."""
    body = text[1:]
    try:
        if not text.startswith("b") or body != body.lower() or "=" in body:
            raise ValueError
        binary = base64.b32decode(body.upper() + "=" * (-len(body) % 8))
    except (ValueError, binascii.Error):
        raise _invalid(f"{text!r:.120}: not a CID in lower-case base32 (prefix b)") from None
    if "b" + base64.b32encode(binary).decode("ascii").rstrip("=").lower() != text:
        raise _invalid(f"{text!r:.120}: stray bits in base32")
    return binary


def _cid(codec: int, hash_code: int, digest: bytes) -> bytes:
    return b"\x01" + b"".join(map(_uvarint, (codec, hash_code, len(digest)))) + digest


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(f"CID {message}", code="invalid_cid")
