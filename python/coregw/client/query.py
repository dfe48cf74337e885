"""Queries about a root, with the verifier of their answers: resolve, read, map proof, scan (protocol section 5).

A `Query` is the exact bytes of a request. The clients send it; ``coregw verify`` restores one from a saved file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from coregw import _core, messages
from coregw.errors import InvalidInput
from coregw.text import printable
from coregw.verify import CidLike, PathLike

__all__ = [
    "CidLike",
    "PathLike",
    "Proven",
    "Query",
    "SavedProof",
    "map_keys",
    "map_proof",
    "read_index",
    "read_key",
    "read_range",
    "resolve",
    "saved_query",
    "scan",
    "segments_of",
]

T = TypeVar("T")
Absence = Literal["claimed", "proven", "result"]


class Query(msgspec.Struct, Generic[T], frozen=True):
    """A request whose answer carries a proof.

    Attributes:
        route: The route that answers it.
        request: The bytes of the request, as sent and as verified.
        verify: ``(request, result) -> value``; raises `ProofError` if the result is not proven.
        absence: How a gateway answers if there is nothing: ``"claimed"`` by a 404 without a proof (resolve),
            ``"proven"`` by a 404 with a proof (read), ``"result"`` by a result with a proof (map proof, scan).
        what: The query in words, for messages.
    """

    route: str
    request: bytes
    verify: Callable[[bytes, bytes], T]
    absence: Absence
    what: str


class Proven(NamedTuple, Generic[T]):
    """A verified value, with the request and result that prove it to anybody who trusts the root."""

    value: T
    request: bytes
    result: bytes

    def saved(self) -> bytes:
        """Return the document that ``coregw verify`` reads: ``{"request": ..., "result": ...}``, byte for byte."""
        return b'{"request":' + self.request + b',"result":' + self.result + b"}"


class SavedProof(messages.Message, frozen=True, kw_only=True):
    """The document of `Proven.saved`: a request and its result, both byte for byte."""

    request: msgspec.Raw
    result: msgspec.Raw


def segments_of(path: PathLike) -> list[str]:
    """Return the segments of a path; none for the empty text and the empty sequence.

    Raises:
        InvalidInput: A segment is not valid by protocol section 2 (code ``invalid_path``). The message has the path.
    """
    segments = list(path) if not isinstance(path, str) else path.split("/") if path else []
    if segments:
        try:
            _core.encode_key(segments)
        except InvalidInput as error:
            is_absolute = isinstance(path, str) and path.startswith("/")
            hint = "; a path is relative to the root, and has no slash at its beginning" if is_absolute else ""
            raise InvalidInput(f"{path!r:.200}: {error.message}{hint}", code=error.code) from None
    return segments


def resolve(root: CidLike, path: PathLike) -> Query[str]:
    """Query the target of a path, through nested maps and lists. The value is the target's CID."""
    return _query(messages.ResolveRequest(root=_core.Cid(root).text, segments=segments_of(path)))


def read_key(root: CidLike, path: PathLike) -> Query[_core.ReadOutcome]:
    """Query the target of exactly this key of a map, if the key is present."""
    return _read(root, messages.MapKeyQuery(segments=segments_of(path)))


def read_index(root: CidLike, index: int) -> Query[_core.ReadOutcome]:
    """Query element `index` of a list, from 0, if the list is long enough."""
    return _read(root, messages.ListIndexQuery(index=index))


def read_range(root: CidLike, start: int, end: int | None = None) -> Query[_core.ReadOutcome]:
    """Query the elements of a list that intersect ``[start, end)``, in units of its measure; no `end` is its total."""
    return _read(root, messages.ListRangeQuery(start=start, end=UNSET if end is None else end))


def map_proof(root: CidLike, path: PathLike) -> Query[str | None]:
    """Query whether a map has a key. The value is the target, or None for a proven absence."""
    return _query(messages.MapProofRequest(root=_core.Cid(root).text, key=segments_of(path)))


def map_keys(root: CidLike, paths: Iterable[PathLike]) -> Query[list[str | None]]:
    """Query many keys of a map with one proof: 1 to 10,000 distinct ones.

    The value has the target of each path in their order, None for a proven absence. The request and the proof of 10,000
    keys are long, and a gateway takes no request of over 1 MiB: ask for fewer where the keys are.
    """
    return _query(messages.MapProofRequest(root=_core.Cid(root).text, keys=[segments_of(path) for path in paths]))


def scan(
    root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
) -> Query[_core.Scan]:
    """Query one page of a map's entries at and below `prefix`, in key order, without gaps."""
    return _query(
        messages.ScanRequest(
            root=_core.Cid(root).text,
            prefix=segments_of(prefix),
            after=UNSET if after is None else segments_of(after),
            limit=UNSET if limit is None else limit,
        )
    )


def saved_query(request: bytes) -> Query[Any]:
    """Restore the query of a saved request from its ``profile``; the bytes stay as they are.

    Raises:
        InvalidInput: The request is malformed, or its profile is not one that can be verified (code
            ``unknown_profile``).
    """
    _core.check_json(request)
    try:
        asked = msgspec.json.decode(request, type=_Asked)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"request: {error}") from None
    core = asked.profile.replace("malt.", "core.", 1)  # both spellings
    if core not in _PROFILES:
        raise InvalidInput(
            f"request.profile: {asked.profile!r:.100} is not one of {', '.join(_PROFILES)}", code="unknown_profile"
        )
    kind = _PROFILES[core]
    decoded = messages.decode(request, kind.request)
    return _of_kind(kind, request, decoded, printable(decoded.root))


_Request = messages.ResolveRequest | messages.ReadRequest | messages.MapProofRequest | messages.ScanRequest
_Selector = messages.MapKeyQuery | messages.ListIndexQuery | messages.ListRangeQuery


class _Asked(msgspec.Struct):
    profile: str


class _Kind(NamedTuple):
    request: type[_Request]
    route: str
    verify: Callable[[bytes, bytes], Any]
    absence: Absence


_PROFILES: Mapping[str, _Kind] = {
    "core.resolve/v0alpha1": _Kind(messages.ResolveRequest, "/v1/resolve", _core.verify_resolve, "claimed"),
    "core.read/v0alpha1": _Kind(messages.ReadRequest, "/v1/read", _core.verify_read, "proven"),
    "core.map-proof/v0alpha1": _Kind(messages.MapProofRequest, "/v1/map-proof", _core.verify_map_proof, "result"),
    "core.scan/v0alpha1": _Kind(messages.ScanRequest, "/v1/scan", _core.verify_scan_result, "result"),
}


def _read(root: CidLike, selector: _Selector) -> Query[_core.ReadOutcome]:
    return _query(messages.ReadRequest(root=_core.Cid(root).text, query=selector))


def _query(request: _Request) -> Query[Any]:
    return _of_kind(_PROFILES[request.profile], encode(request), request, request.root)


def _of_kind(kind: _Kind, body: bytes, request: _Request, root: str) -> Query[Any]:
    return Query(kind.route, body, kind.verify, kind.absence, _described(request, root))


def _described(request: _Request, root: str) -> str:
    """Describe a request in words, on one line."""
    match request:
        case messages.ResolveRequest(segments=segments):
            return f"resolve {_place(segments, root)}"
        case messages.MapProofRequest(key=list(segments)):
            return f"prove {_place(segments, root)}"
        case messages.MapProofRequest(keys=keys):
            return f"prove {'nothing' if keys is UNSET else f'{len(keys):,} keys'} in {root}"
        case messages.ScanRequest(prefix=segments):
            return f"list {_place(segments, root)}"
        case messages.ReadRequest(query=selector):
            return f"read {_selected(selector, root)}"


def _selected(selector: _Selector, root: str) -> str:
    match selector:
        case messages.MapKeyQuery(segments=segments):
            return _place(segments, root)
        case messages.ListIndexQuery(index=index):
            return f"element {index} in {root}"
        case messages.ListRangeQuery(start=start, end=end):
            return f"range {start}:{'' if end is UNSET else end} in {root}"


def _place(segments: Sequence[str], root: str) -> str:
    return f"{'/'.join(segments)!r} in {root}" if segments else root


def encode(document: object) -> bytes:
    """Return `document` as JSON.

    Raises:
        InvalidInput: A text is not valid UTF-8 (it has lone surrogates), or an integer exceeds 64 bits.
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{error.object!r}: not UTF-8", code="invalid_path") from None
    except OverflowError as error:
        raise InvalidInput(str(error)) from None
