"""Verifiers of malt-core's operations on KZG roots: resolve, read, map proof.

`coregw.verify` calls them. Each first checks that the result answers the request and that the proofs have the right
structure, then all openings together; so a result that answers something else costs no pairing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw._core import ReadOutcome
from coregw.errors import InvalidInput, ProofError
from coregw.kzg.cid import KzgRoot, cid_bytes, cid_text
from coregw.kzg.lists import Metadata, check_index, check_range
from coregw.kzg.maps import check_key
from coregw.kzg.messages import (
    MapProofRequest,
    MapProofResult,
    Prooflist,
    ReadRequest,
    ReadResult,
    ResolveRequest,
    ResolveResult,
    Step,
)
from coregw.kzg.opening import Openings
from coregw.messages.common import decode
from coregw.messages.query import ListIndexQuery, ListRangeQuery, MapKeyQuery

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["verify_map_proof", "verify_read", "verify_resolve"]

T = TypeVar("T")

ReadQuery: TypeAlias = MapKeyQuery | ListIndexQuery | ListRangeQuery

_PAYLOAD: Final = "@payload"


def verify_resolve(request: Buffer | str, result: Buffer | str) -> str:
    """Verify the target of a path through the maps of KZG roots; see `coregw.verify.verify_resolve`.

    Raises:
        InvalidInput: The request is malformed, or its root is not a KZG root.
        ProofError: The result does not prove its target.
    """
    asked = decode(_bytes(request), ResolveRequest)
    root, path = _cid(asked.root, "root"), _path(asked.segments)
    if path:
        KzgRoot.parse(asked.root)
    got = _result(result, ResolveResult)
    target = _proven_cid(got.target, "target")
    _check_prooflist(got.prooflist, root, path)
    if not asked.segments:
        if got.prooflist.steps or target != root:
            raise ProofError("the target of no segments is the root itself, without steps", check="steps")
        return cid_text(target)
    openings, at, parts = Openings(), root, []
    for number, step in enumerate(got.prooflist.steps):
        key = _check_map_step(openings, number, step, at)
        parts.append(key)
        at = _link(step, number)
    if "/".join(parts) != path or at != target:
        raise ProofError(f"the steps lead along {'/'.join(parts)!r:.200}, not to the target of the path", check="path")
    openings.check()
    return cid_text(target)


def verify_read(request: Buffer | str, result: Buffer | str) -> ReadOutcome:
    """Verify what a key, an index or a range of a KZG root has; see `coregw.verify.verify_read`.

    Of the absence of a key or index, there is no proof in this form: `verify_map_proof` proves that of a key.

    Raises:
        InvalidInput: The request is malformed, or its root is not a KZG root.
        ProofError: The result is not proven.
    """
    asked = decode(_bytes(request), ReadRequest)
    root = KzgRoot.parse(asked.root)
    _check_query(asked.query)
    got = _result(result, ReadResult)
    openings = Openings()
    outcome = _outcome(openings, root, asked.query, got)
    if got.range_segments is not UNSET and not isinstance(asked.query, ListRangeQuery):
        raise ProofError("range_segments: only a range has any", check="segments")
    openings.check()
    return outcome


def verify_map_proof(request: Buffer | str, result: Buffer | str) -> str | None:
    """Verify whether a map of a KZG root has a key; see `coregw.verify.verify_map_proof`.

    Raises:
        InvalidInput: The request is malformed, or its root is not a KZG root.
        ProofError: The result is not proven.
    """
    asked = decode(_bytes(request), MapProofRequest)
    root, key = KzgRoot.parse(asked.root), _key_of(asked.key, "key")
    got = _result(result, MapProofResult)
    step = _only_step(got.prooflist, bytes(root), key)
    target = None if got.target is UNSET else _proven_cid(got.target, "target")
    linked = None if step.target is None else _link(step, 0)
    if got.present != (target is not None) or linked != target or (step.kind == "map_absence") == got.present:
        raise ProofError("steps[0]: the result is another than the step proves", check="target", step=0)
    openings = Openings()
    if _check_map_step(openings, 0, step, bytes(root)) != key:
        raise ProofError("steps[0]: another key", check="path", step=0)
    openings.check()
    return None if target is None else cid_text(target)


def _check_map_step(openings: Openings, number: int, step: Step, at: bytes) -> str:
    """Check a step that follows one key of a map. Returns the key."""
    place = f"steps[{number}]"
    if _proven_cid(step.from_.cid, f"{place}.from") != at:
        raise ProofError(f"{place}: does not start where the step before ends", check="from", step=number)
    key = step.path
    kinds = {"payload_binding"} if key == _PAYLOAD else {"map_step"}
    if key is UNSET or step.kind not in kinds | {"map_absence"}:
        raise ProofError(f"{place}: kind {step.kind} does not fit the path", check="kind", step=number)
    explicit = step.evidence_kind == "explicit" and step.kind != "map_absence"
    proof, other = (step.evidence, step.proof) if explicit else (step.proof, step.evidence)
    if not explicit and (step.evidence_kind, step.evidence_backend) != ("structure", "map"):
        raise ProofError(f"{place}: the evidence is not that of a map", check="kind", step=number)
    target = None if step.kind == "map_absence" else _link(step, number)
    if (step.target is None) != (target is None):
        raise ProofError(f"{place}: an absent key has no target", check="target", step=number)
    with _at_step(number):
        check_key(openings, _proven_root(at, place), key, target, _only(proof, other, place), place)
    return key


def _check_query(query: ReadQuery) -> None:
    """Check a query of a read. Raises `InvalidInput`."""
    if isinstance(query, MapKeyQuery):
        _key_of(query.segments, "query.segments")
    elif isinstance(query, ListRangeQuery) and query.end is not UNSET and query.end <= query.start:
        raise InvalidInput("query.end: a range of a KZG root is not empty")


def _outcome(openings: Openings, root: KzgRoot, query: ReadQuery, got: ReadResult) -> ReadOutcome:
    target = _proven_cid(got.target, "target")
    match query:
        case MapKeyQuery(segments=segments):
            return _key(openings, got.prooflist, root, segments, target)
        case ListIndexQuery(index=index):
            return _index(openings, _only_step(got.prooflist, bytes(root), f"list:{index}"), root, index, target)
        case ListRangeQuery(start=start, end=end):
            words = f"range:{start}:{'' if end is UNSET else end}"
            return _range(openings, _only_step(got.prooflist, bytes(root), words), root, query, got, target)


def _key(
    openings: Openings, prooflist: Prooflist, root: KzgRoot, segments: Sequence[str], target: bytes
) -> ReadOutcome:
    key = _path(segments)
    step = _only_step(prooflist, bytes(root), key)
    if _check_map_step(openings, 0, step, bytes(root)) != key or _link(step, 0) != target:
        raise ProofError("steps[0]: another key or target", check="path", step=0)
    return ReadOutcome(True, cid_text(target), None, None, None, None, None)


def _index(openings: Openings, step: Step, root: KzgRoot, index: int, target: bytes) -> ReadOutcome:
    length = step.length
    fits = (step.kind, step.evidence_kind, step.evidence_backend) == ("list_index", "structure", "list")
    if not fits or length is UNSET or step.index != index or _link(step, 0) != target:
        raise ProofError("steps[0]: another index or target", check="index", step=0)
    with _at_step(0):
        proof = _only(step.proof, step.evidence, "steps[0]")
        check_index(openings, root, index, length, target, proof, "steps[0]")
    return ReadOutcome(True, cid_text(target), None, None, None, length, None)


def _range(
    openings: Openings, step: Step, root: KzgRoot, query: ListRangeQuery, got: ReadResult, target: bytes
) -> ReadOutcome:
    fits = (step.kind, step.evidence_kind, step.evidence_backend) == ("list_range", "structure", "measured_list")
    if not fits or (step.start, step.end) != (query.start, query.end) or not _link(step, 0) == target == bytes(root):
        raise ProofError("steps[0]: another range or list", check="range", step=0)
    links = [] if step.segments is UNSET else [link.cid for link in step.segments]
    named = [] if got.range_segments is UNSET else got.range_segments
    targets = [_proven_cid(text, f"steps[0].segments[{at}]") for at, text in enumerate(links)]
    if targets != [_proven_cid(text, f"range_segments[{at}]") for at, text in enumerate(named)]:
        raise ProofError("range_segments: others than the step proves", check="segments", step=0)
    length, size, chunk = step.child_count, step.total_size, step.chunk_size
    if length is UNSET or size is UNSET or chunk is UNSET:
        raise ProofError("steps[0]: a range has child_count, total_size and chunk_size", check="length", step=0)
    with _at_step(0):
        proof = _only(step.proof, step.evidence, "steps[0]")
        metadata = Metadata.of(length, size, chunk)
        end = None if query.end is UNSET else query.end
        first = check_range(openings, root, query.start, end, metadata, targets, proof, "steps[0]")
    sizes = [min(chunk, size - index * chunk) for index in range(first, first + len(targets))]
    texts = [cid_text(each) for each in targets]
    return ReadOutcome(True, root.text, texts, sizes, first * chunk if texts else None, length, size)


@contextmanager
def _at_step(number: int) -> Iterator[None]:
    """Add the number of the step to a `ProofError`."""
    try:
        yield
    except ProofError as error:
        error.step = number
        raise


def _check_prooflist(prooflist: Prooflist, root: bytes, query: str) -> None:
    if _proven_cid(prooflist.root.cid, "prooflist.root") != root:
        raise ProofError("prooflist.root: another root", check="root")
    if (prooflist.query or "") != query:
        raise ProofError(f"prooflist.query: {prooflist.query!r:.200} instead of {query!r:.200}", check="query")


def _only_step(prooflist: Prooflist, root: bytes, query: str) -> Step:
    _check_prooflist(prooflist, root, query)
    if len(prooflist.steps) != 1 or _proven_cid(prooflist.steps[0].from_.cid, "steps[0].from") != root:
        raise ProofError("prooflist.steps: not one step from the root", check="steps")
    return prooflist.steps[0]


def _only(proof: str | UnsetType, other: str | UnsetType, place: str) -> str:
    if proof is UNSET or other is not UNSET:
        raise ProofError(f"{place}: a step has one proof, of its kind of evidence", check="proof")
    return proof


def _link(step: Step, number: int) -> bytes:
    if step.target is None:
        raise ProofError(f"steps[{number}]: without a target", check="target", step=number)
    return _proven_cid(step.target.cid, f"steps[{number}].target")


def _proven_cid(text: str, place: str) -> bytes:
    try:
        return cid_bytes(text)
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="cid") from None


def _proven_root(binary: bytes, place: str) -> KzgRoot:
    try:
        return KzgRoot.parse(binary)
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="kind") from None


def _cid(text: str, place: str) -> bytes:
    try:
        return cid_bytes(text)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error.message}", code=error.code) from None


def _path(segments: Sequence[str]) -> str:
    if segments:
        _core.encode_key(segments)
    return "/".join(segments)


def _key_of(segments: Sequence[str], place: str) -> str:
    if not segments:
        raise InvalidInput(f"{place}: a key has at least one segment", code="invalid_path")
    return _path(segments)


def _result(result: Buffer | str, kind: type[T]) -> T:
    try:
        return decode(_bytes(result), kind)
    except InvalidInput as error:
        raise ProofError(f"result: {error.message}", check="result") from None


def _bytes(text: Buffer | str) -> bytes:
    if not isinstance(text, str):
        return bytes(text)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("not UTF-8") from None
