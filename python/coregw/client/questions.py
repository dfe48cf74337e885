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
    segments = segments_of(path)
    request = messages.ResolveRequest(root=_core.Cid(root).text, segments=segments)
    return _question(request, f"resolve {_words(segments)}")


def read_key(root: CidLike, path: PathLike) -> Question[_core.ReadOutcome]:
    """What a map holds under exactly this key, if anything."""
    segments = segments_of(path)
    return _read(root, messages.MapKeyQuery(segments=segments), f"read {_words(segments)}")


def read_index(root: CidLike, index: int) -> Question[_core.ReadOutcome]:
    """Element `index` of a list, from 0, if the list is that long."""
    return _read(root, messages.ListIndexQuery(index=index), f"read element {index}")


def read_range(root: CidLike, start: int, end: int | None = None) -> Question[_core.ReadOutcome]:
    """The elements of a list that meet ``[start, end)``, in units of its measure; no end means the total."""
    query = messages.ListRangeQuery(start=start, end=UNSET if end is None else end)
    return _read(root, query, f"read range {start}:{'' if end is None else end}")


def map_proof(root: CidLike, path: PathLike) -> Question[str | None]:
    """Whether a map holds a key: the value is the target, or None for a proven absence."""
    segments = segments_of(path)
    request = messages.MapProofRequest(root=_core.Cid(root).text, key=segments)
    return _question(request, f"prove {_words(segments)}")


def scan(
    root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
) -> Question[_core.Scan]:
    """One page of the entries of a map at and below `prefix`, in the order of their keys, without a gap."""
    segments = segments_of(prefix)
    request = messages.ScanRequest(
        root=_core.Cid(root).text,
        prefix=segments,
        after=UNSET if after is None else segments_of(after),
        limit=UNSET if limit is None else limit,
    )
    return _question(request, f"list {_words(segments)}")


def saved_question(request: bytes) -> Question[Any]:
    """The question that a saved request asks, by its ``profile``.

    Raises:
        InvalidInput: No JSON, or a profile that nothing here verifies (code ``unknown_profile``).
    """
    try:
        profile = msgspec.json.decode(request, type=_Profile).profile
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the request can't be read: {error}") from None
    if profile not in _PROFILES:
        raise InvalidInput(f"nothing here verifies the profile {profile!r}", code="unknown_profile")
    route, verify, proves_absence = _PROFILES[profile]
    return Question(route, request, verify, proves_absence, profile)


class _Profile(msgspec.Struct):
    profile: str


_Request = messages.ResolveRequest | messages.ReadRequest | messages.MapProofRequest | messages.ScanRequest
_Query = messages.MapKeyQuery | messages.ListIndexQuery | messages.ListRangeQuery

# Each profile: the route that answers it, the verifier, and whether a 404 must carry a proof.
_PROFILES: Mapping[str, tuple[str, Callable[[bytes, bytes], Any], bool]] = {
    "core.resolve/v0alpha1": ("/v1/resolve", _core.verify_resolve, False),
    "core.read/v0alpha1": ("/v1/read", _core.verify_read, True),
    "core.map-proof/v0alpha1": ("/v1/map-proof", _core.verify_map_proof, False),
    "core.scan/v0alpha1": ("/v1/scan", _core.verify_scan_result, False),
}


def _read(root: CidLike, query: _Query, what: str) -> Question[_core.ReadOutcome]:
    return _question(messages.ReadRequest(root=_core.Cid(root).text, query=query), what)


def _question(request: _Request, what: str) -> Question[Any]:
    route, verify, proves_absence = _PROFILES[request.profile]
    return Question(route, encode(request, what), verify, proves_absence, f"{what} in {request.root}")


def encode(document: object, what: str) -> bytes:
    """`document` as JSON. Text that is no UTF-8 (lone surrogates) is `InvalidInput`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what!r}: not UTF-8: {error.reason}", code="invalid_path") from None
    except OverflowError:
        raise InvalidInput(f"{what}: a number is too large") from None


def _words(segments: Sequence[str]) -> str:
    return repr("/".join(segments)) if segments else "the root itself"
