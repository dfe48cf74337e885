"""Verifiers of whole operations: request and result as JSON text, or as structs of `coregw.messages`.

The verification itself is in the extension; this module adds documentation and accepts structs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, TypeGuard

from coregw import _core
from coregw._core import Cid, Diff, ReadOutcome, Scan

if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer  # noqa: PLC0414 - for other modules, not for programs
elif sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:  # Python 3.11 has no name for objects with the buffer protocol
    Buffer = bytes | bytearray | memoryview

__all__ = [
    "CidLike",
    "Message",
    "MessageStruct",
    "PathLike",
    "verify_diff",
    "verify_map_proof",
    "verify_read",
    "verify_resolve",
    "verify_scan_result",
    "verify_transition",
]

# Repeated from the stub of the extension, so that `help` and pdoc can resolve them.
CidLike: TypeAlias = str | Buffer | Cid
PathLike: TypeAlias = str | Sequence[str]


class MessageStruct(Protocol):
    """A struct of `coregw.messages`, without importing msgspec."""

    __struct_fields__: ClassVar[tuple[str, ...]]


Message: TypeAlias = Buffer | str | Mapping[str, object] | MessageStruct


def verify_resolve(request: Message, result: Message) -> str:
    """Verify a resolve result against the caller's own request, and return the proven target (protocol section 5).

    The request names the trusted root and the segments. It is not proven that the target is the only one, or that
    the longest arcs were taken.

    Args:
        request: The request that was sent, ``{profile, root, segments}``.
        result: The result that was received, ``{profile, target, prooflist}``.

    Returns:
        The target's CID as text. For no segments, it is the root itself.

    Raises:
        InvalidInput: The request is malformed.
        ProofError: The result does not prove its target. The error names the step and the check that failed.

    Linear in the length of the result.

    >>> import base64, coregw, json
    >>> cid = coregw.payload_cid(b"hello")
    >>> m = coregw.Map({"docs/readme": cid})
    >>> request = {"profile": "core.resolve/v0alpha1", "root": m.root, "segments": ["docs", "readme"]}
    >>> step = {"kind": "map_step", "from": {"/": m.root}, "target": {"/": cid}, "path": "docs/readme",
    ...         "evidence_kind": "tree", "evidence_backend": "sha2-256",
    ...         "proof": base64.b64encode(m.prove("docs/readme")).decode()}
    >>> prooflist = {"root": {"/": m.root}, "query": "docs/readme", "steps": [step]}
    >>> result = {"profile": "core.resolve/v0alpha1", "target": cid, "prooflist": prooflist}
    >>> coregw.verify_resolve(json.dumps(request), json.dumps(result)) == cid
    True
    >>> result["target"] = coregw.payload_cid(b"another")
    >>> coregw.verify_resolve(json.dumps(request), json.dumps(result))
    Traceback (most recent call last):
    ...
    coregw.errors.ProofError: ...
    """
    return _core.verify_resolve(_json(request), _json(result))


def verify_read(request: Message, result: Message) -> ReadOutcome:
    """Verify a read of a key, an element or a range against the caller's own request (protocol section 5).

    Args:
        request: The request that was sent, ``{profile, root, query}``.
        result: The result, ``{profile, target, range_segments?, prooflist}``; or the ``details`` of a 404,
            ``{prooflist}``, which prove that the key or index is absent.

    Returns:
        The proven answer; ``present`` is False for a proven absence.

    Raises:
        InvalidInput: The request is malformed.
        ProofError: The result is not proven. The error names the check that failed.

    Linear in the length of the result.

    >>> import base64, coregw, json
    >>> chunks = coregw.List([coregw.payload_cid(b"hello"), coregw.payload_cid(b" world")], sizes=[5, 6])
    >>> query = {"kind": "list_index", "index": 2}
    >>> request = {"profile": "core.read/v0alpha1", "root": chunks.root, "query": query}
    >>> step = {"kind": "list_index", "from": {"/": chunks.root}, "target": None, "index": 2, "length": 2,
    ...         "evidence_kind": "tree", "evidence_backend": "sha2-256",
    ...         "proof": base64.b64encode(chunks.prove(2)).decode()}
    >>> details = {"prooflist": {"root": {"/": chunks.root}, "query": "list:2", "steps": [step]}}
    >>> outcome = coregw.verify_read(json.dumps(request), json.dumps(details))
    >>> outcome.present, outcome.length
    (False, 2)
    """
    return _core.verify_read(_json(request), _json(result))


def verify_map_proof(request: Message, result: Message) -> str | list[str | None] | None:
    """Verify a map proof, and return the key's target, or None if the key is proven absent (protocol section 5).

    For a request with several keys, return a list of what is proven of each, in their order.

    Args:
        request: The request that was sent, ``{profile, root, key}`` or ``{profile, root, keys}``.
        result: The result, ``{profile, present, target?, prooflist}`` or ``{profile, targets, prooflist}``.

    Raises:
        InvalidInput: The request is malformed.
        ProofError: The result is not proven. The error names the check that failed.

    Linear in the length of the result.

    >>> import base64, coregw, json
    >>> m = coregw.Map({"docs/readme": coregw.payload_cid(b"hello")})
    >>> request = {"profile": "core.map-proof/v0alpha1", "root": m.root, "key": ["docs"]}
    >>> step = {"kind": "map_absence", "from": {"/": m.root}, "target": None, "path": "docs",
    ...         "evidence_kind": "tree", "evidence_backend": "sha2-256",
    ...         "proof": base64.b64encode(m.prove("docs")).decode()}
    >>> prooflist = {"root": {"/": m.root}, "query": "docs", "steps": [step]}
    >>> result = {"profile": "core.map-proof/v0alpha1", "present": False, "prooflist": prooflist}
    >>> coregw.verify_map_proof(json.dumps(request), json.dumps(result)) is None
    True
    """
    return _core.verify_map_proof(_json(request), _json(result))


def verify_scan_result(request: Message, result: Message) -> Scan:
    """Verify a page of a map's listing: all entries of the window, in key order, without gaps (protocol section 5).

    Args:
        request: The request that was sent, ``{profile, root, prefix, after?, limit?}``.
        result: The result, ``{profile, entries, more, prooflist}``.

    Returns:
        The entries, and whether more follow the last one.

    Raises:
        InvalidInput: The request is malformed.
        ProofError: The result is not proven. The error names the check that failed.

    Linear in the length of the result.

    >>> import base64, coregw, json
    >>> cid = coregw.payload_cid(b"hello")
    >>> m = coregw.Map({"docs/readme": cid})
    >>> request = {"profile": "core.scan/v0alpha1", "root": m.root, "prefix": ["docs"]}
    >>> proof = base64.b64encode(m.scan(["docs"]).proof).decode()
    >>> step = {"kind": "map_scan", "from": {"/": m.root}, "target": {"/": m.root}, "prefix": ["docs"], "limit": 1000,
    ...         "more": False, "evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": proof}
    >>> prooflist = {"root": {"/": m.root}, "query": "scan:docs", "steps": [step]}
    >>> entries = [{"segments": ["docs", "readme"], "target": cid}]
    >>> result = {"profile": "core.scan/v0alpha1", "entries": entries, "more": False, "prooflist": prooflist}
    >>> coregw.verify_scan_result(json.dumps(request), json.dumps(result)).entries == [(["docs", "readme"], cid)]
    True
    """
    return _core.verify_scan_result(_json(request), _json(result))


def verify_diff(
    a: CidLike,
    b: CidLike,
    response: Message,
    prefix: PathLike = (),
    after: PathLike | None = None,
    limit: int = 1000,
) -> Diff:
    """Verify a page of the differences between two maps: in key order, without gaps (protocol section 5, *diff*).

    Args:
        a: The root of the first map.
        b: The root of the second map, of the same suite.
        response: The response, ``{entries, more, proofs}``.
        prefix: The requested prefix; empty for the whole maps.
        after: The requested path to continue after, or None.
        limit: The requested maximum number of differences, 1 to 1,000.

    Returns:
        The differences as ``(segments, before, after)``, None for no target, and whether more follow the last one.

    Raises:
        InvalidInput: A root is not a map root, the suites differ (both with code ``kind_mismatch``), or a parameter is
            not valid.
        ProofError: The response is not proven. `step` 0 is the proof of `a`, 1 that of `b`.

    Linear in the length of the response.

    >>> import base64, coregw, json
    >>> old, new = coregw.payload_cid(b"old"), coregw.payload_cid(b"new")
    >>> a, b = coregw.Map({"docs/readme": old}), coregw.Map({"docs/readme": new})
    >>> proofs = [base64.b64encode(m.prove("docs/readme")).decode() for m in (a, b)]
    >>> entry = {"segments": ["docs", "readme"], "before": old, "after": new}
    >>> response = {"entries": [entry], "more": False, "proofs": {"a": proofs[0], "b": proofs[1]}}
    >>> found = coregw.verify_diff(a.root, b.root, json.dumps(response))
    >>> found.entries == [(["docs", "readme"], old, new)], found.more
    (True, False)
    >>> coregw.verify_diff(a.root, b.root, json.dumps(response | {"entries": []}))
    Traceback (most recent call last):
    ...
    coregw.errors.ProofError: ...
    """
    return _core.verify_diff(a, b, _json(response), prefix, after, limit)


def verify_transition(request: Message, receipt: Message) -> str:
    """Verify a mutation receipt, and return the new root, derived from the caller's own changes (protocol section 5).

    Args:
        request: The mutation request with the base root that the caller chose, ``{root, deltas}``.
        receipt: The receipt that was received, requested with ``"prove": true``.

    Returns:
        The new root. Whether to trust it is the caller's decision.

    Raises:
        InvalidInput: The request is malformed, or its root is not a root.
        Conflict: The changes contradict each other.
        ProofError: The receipt does not follow from the changes. `step` is the delta concerned.

    Linear in the length of the receipt.

    >>> import base64, coregw, json
    >>> base = coregw.Map({"docs/readme": coregw.payload_cid(b"hello")})
    >>> new, proof = base.apply([coregw.Change("docs/new", None, coregw.payload_cid(b"world"))])
    >>> changes = [{"path": "docs/new", "after": {"target": coregw.payload_cid(b"world")}}]
    >>> request = {"root": base.root, "deltas": [{"kind": "map", "changes": changes}]}
    >>> delta = {"object": base.root, "result": new.root, "proof": base64.b64encode(proof).decode()}
    >>> receipt = {"base_root": base.root, "new_root": new.root, "delta_count": 1, "arc_count": 1, "deltas": [delta]}
    >>> coregw.verify_transition(json.dumps(request), json.dumps(receipt)) == new.root
    True
    """
    return _core.verify_transition(_json(request), _json(receipt))


def _json(message: Message) -> Buffer | str:
    if isinstance(message, str) or _is_buffer(message):
        return message
    try:
        import msgspec
    except ModuleNotFoundError as error:
        from coregw.extras import missing_extra

        raise missing_extra(error, f"a {type(message).__name__} instead of JSON text", "client") from error
    return msgspec.json.encode(message)


def _is_buffer(message: object) -> TypeGuard[Buffer]:
    try:
        memoryview(message)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return False
    return True
