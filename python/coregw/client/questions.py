"""What can be asked about a root, and how each answer is checked: resolve, read, map proof, scan (protocol section 5).

A `Question` is a request's exact bytes with the verifier of its profile. The clients send it; ``coregw verify`` makes
one from a saved file. Leaves out sending (``operations``) and checking itself, which is ``coregw._core``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from coregw import _core, messages
from coregw.client.wire import printable
from coregw.errors import InvalidInput

__all__ = [
    "Proven",
    "Question",
    "map_proof",
    "read_index",
    "read_key",
    "read_range",
    "resolve",
    "saved_question",
    "scan",
    "segments_of",
]

T = TypeVar("T")

PathLike = str | Sequence[str]
CidLike = str | bytes | _core.Cid


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A request that proves its answer.

    Attributes:
        route: The route that answers it.
        request: The request's bytes, as sent and as verified.
        verify: ``(request, result) -> value``; raises `ProofError` for a result that is not proven.
        proves_absence: Whether a 404 ``path_not_found`` must come with a proof, as reads do.
        what: The question in words, for messages.
    """

    route: str
    request: bytes
    verify: Callable[[bytes, bytes], T]
    proves_absence: bool
    what: str


class Proven(NamedTuple, Generic[T]):
    """A verified answer, with the pair of documents that proves it to anybody who trusts the root."""

    value: T
    request: bytes
    result: bytes

    def saved(self) -> bytes:
        """The JSON document that ``coregw verify`` reads: ``{"request": ..., "result": ...}``, byte for byte."""
        return b'{"request":' + self.request + b',"result":' + self.result + b"}"


def segments_of(path: PathLike) -> list[str]:
    """The segments of a path; the empty text and the empty sequence have none.

    Raises:
        InvalidInput: A segment that protocol section 2 does not allow (code ``invalid_path``).
    """
    segments = list(path) if not isinstance(path, str) else path.split("/") if path else []
    if segments:
        _core.encode_key(segments)
    return segments


def resolve(root: CidLike, path: PathLike) -> Question[str]:
    """Which CID a path leads to. The value is the target."""
    return _question(messages.ResolveRequest(root=_core.Cid(root).text, segments=segments_of(path)))


def read_key(root: CidLike, path: PathLike) -> Question[_core.ReadOutcome]:
    """What a map holds under exactly this key, if anything."""
    return _read(root, messages.MapKeyQuery(segments=segments_of(path)))


def read_index(root: CidLike, index: int) -> Question[_core.ReadOutcome]:
    """Element `index` of a list, from 0, if the list is that long."""
    return _read(root, messages.ListIndexQuery(index=index))


def read_range(root: CidLike, start: int, end: int | None = None) -> Question[_core.ReadOutcome]:
    """The elements of a list that meet ``[start, end)``, in units of its measure; no end means the total."""
    return _read(root, messages.ListRangeQuery(start=start, end=UNSET if end is None else end))


def map_proof(root: CidLike, path: PathLike) -> Question[str | None]:
    """Whether a map holds a key: the value is the target, or None for a proven absence."""
    return _question(messages.MapProofRequest(root=_core.Cid(root).text, key=segments_of(path)))


def scan(
    root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
) -> Question[_core.Scan]:
    """One page of the entries of a map at and below `prefix`, in the order of their keys, without a gap."""
    return _question(
        messages.ScanRequest(
            root=_core.Cid(root).text,
            prefix=segments_of(prefix),
            after=UNSET if after is None else segments_of(after),
            limit=UNSET if limit is None else limit,
        )
    )


def saved_question(request: bytes) -> Question[Any]:
    """The question that a saved request asks, by its ``profile``; the bytes stay as they are.

    Raises:
        InvalidInput: No such request, or a profile that nothing here verifies (code ``unknown_profile``).
    """
    _core.check_json(request)
    try:
        profile = msgspec.json.decode(request, type=_Profile).profile
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the request: {error}") from None
    if profile not in _PROFILES:
        raise InvalidInput(f"nothing here verifies the profile {profile!r}", code="unknown_profile")
    known = _PROFILES[profile]
    return _asked(known, request, messages.decode(request, known.request))


_Request = messages.ResolveRequest | messages.ReadRequest | messages.MapProofRequest | messages.ScanRequest
_Query = messages.MapKeyQuery | messages.ListIndexQuery | messages.ListRangeQuery


class _Profile(msgspec.Struct):
    profile: str


class _Known(NamedTuple):
    request: type[_Request]
    route: str
    verify: Callable[[bytes, bytes], Any]
    proves_absence: bool


_PROFILES: Mapping[str, _Known] = {
    "core.resolve/v0alpha1": _Known(messages.ResolveRequest, "/v1/resolve", _core.verify_resolve, False),
    "core.read/v0alpha1": _Known(messages.ReadRequest, "/v1/read", _core.verify_read, True),
    "core.map-proof/v0alpha1": _Known(messages.MapProofRequest, "/v1/map-proof", _core.verify_map_proof, False),
    "core.scan/v0alpha1": _Known(messages.ScanRequest, "/v1/scan", _core.verify_scan_result, False),
}


def _read(root: CidLike, query: _Query) -> Question[_core.ReadOutcome]:
    return _question(messages.ReadRequest(root=_core.Cid(root).text, query=query))


def _question(request: _Request) -> Question[Any]:
    return _asked(_PROFILES[request.profile], encode(request), request)


def _asked(known: _Known, body: bytes, request: _Request) -> Question[Any]:
    what = f"{_described(request)} in {printable(request.root)}"
    return Question(known.route, body, known.verify, known.proves_absence, what)


def _described(request: _Request) -> str:
    """A request in words, on one line."""
    match request:
        case messages.ResolveRequest(segments=segments):
            return f"resolve {_words(segments)}"
        case messages.MapProofRequest(key=segments):
            return f"prove {_words(segments)}"
        case messages.ScanRequest(prefix=segments):
            return f"list {_words(segments)}"
        case messages.ReadRequest(query=query):
            return f"read {_selected(query)}"


def _selected(query: _Query) -> str:
    match query:
        case messages.MapKeyQuery(segments=segments):
            return _words(segments)
        case messages.ListIndexQuery(index=index):
            return f"element {index}"
        case messages.ListRangeQuery(start=start, end=end):
            return f"range {start}:{'' if end is UNSET else end}"


def encode(document: object) -> bytes:
    """`document` as JSON. Text that is no UTF-8 (lone surrogates), or an integer past 64 bits, is `InvalidInput`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{error.object!r}: not UTF-8", code="invalid_path") from None
    except OverflowError as error:
        raise InvalidInput(str(error)) from None


def _words(segments: Sequence[str]) -> str:
    return repr("/".join(segments)) if segments else "the root itself"
