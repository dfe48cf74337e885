"""Verification of whole operations, from request and result as JSON or as the structs of `coregw.messages`.

A thin front: the checks themselves are in the extension. Holds no state, does no I/O, and imports msgspec only when
it is given a struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from coregw import _core
from coregw._core import Cid, Diff, ReadOutcome, Scan

if TYPE_CHECKING:
    from msgspec import Struct

__all__ = [
    "verify_diff",
    "verify_map_proof",
    "verify_read",
    "verify_resolve",
    "verify_scan_result",
    "verify_transition",
]


# What the extension takes, said again where `help` and documentation can read it.
CidLike: TypeAlias = str | bytes | Cid
PathLike: TypeAlias = str | Sequence[str]


def verify_resolve(request: bytes | str | Struct, result: bytes | str | Struct) -> str:
    """The target that a resolve result proves for the caller's own request (protocol section 5).

    The request names the trusted root and the segments; nothing in the result is believed without its proof. That a
    target was found by the longest arcs, or is the only one, is not proven.

    Args:
        request: The request that was sent, ``{profile, root, segments}``.
        result: The result that came back, ``{profile, target, prooflist}``.

    Returns:
        The target's CID as text. For no segments it is the root itself.

    Raises:
        InvalidInput: The request is no resolve request.
        ProofError: The result does not prove its target. Names the step and the check that failed.

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


def verify_read(request: bytes | str | Struct, result: bytes | str | Struct) -> ReadOutcome:
    """What a read result proves for the caller's own request: a key, an element, or a range (protocol section 5).

    Args:
        request: The request that was sent, ``{profile, root, query}``.
        result: The result, ``{profile, target, range_segments?, prooflist}``; or the ``details`` of a 404,
            ``{prooflist}``, which prove that the key or index is absent.

    Returns:
        The proven answer; ``present`` is False for a proven absence.

    Raises:
        InvalidInput: The request is no read request.
        ProofError: The result does not prove what it says. Names the check that failed.

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


def verify_map_proof(request: bytes | str | Struct, result: bytes | str | Struct) -> str | None:
    """The target that a map proof shows for a key, or None: the key is proven absent (protocol section 5).

    Args:
        request: The request that was sent, ``{profile, root, key}``.
        result: The result, ``{profile, present, target?, prooflist}``.

    Raises:
        InvalidInput: The request is no map proof request.
        ProofError: The result does not prove what it says. Names the check that failed.

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


def verify_scan_result(request: bytes | str | Struct, result: bytes | str | Struct) -> Scan:
    """A proven page of a map's listing: every entry in the window, in key order, none left out (protocol section 5).

    Args:
        request: The request that was sent, ``{profile, root, prefix, after?, limit?}``.
        result: The result, ``{profile, entries, more, prooflist}``.

    Returns:
        The entries, and whether more follow the last of them.

    Raises:
        InvalidInput: The request is no scan request.
        ProofError: The result does not prove what it says. Names the check that failed.

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
    response: bytes | str | Struct,
    prefix: PathLike = (),
    after: PathLike | None = None,
    limit: int = 1000,
) -> Diff:
    """A proven page of the differences between two maps: in key order, none left out (protocol section 5, *diff*).

    Args:
        a: The root of the first map.
        b: The root of the second map, of the same suite.
        response: What came back, ``{entries, more, proofs}``.
        prefix: The path that was asked about, with all below it; empty for the whole maps.
        after: The path behind which was asked, or None.
        limit: How many differences were asked for at most, 1 to 1,000.

    Returns:
        The differences as ``(segments, before, after)``, None for no target, and whether more follow the last of them.

    Raises:
        InvalidInput: A root is no map, the suites differ (code ``kind_mismatch``), or a parameter is none.
        ProofError: The response does not prove what it says. `step` 0 is the proof of `a`, 1 that of `b`.

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


def _json(message: bytes | str | Struct) -> bytes | str:
    if isinstance(message, bytes | str):
        return message
    import msgspec

    return msgspec.json.encode(message)


def verify_transition(request: bytes | str | Struct, receipt: bytes | str | Struct) -> str:
    """The new root of a mutation, derived from the caller's own changes without the data (protocol section 5).

    Args:
        request: The mutation request with the base root that the caller chose, ``{root, deltas}``.
        receipt: The receipt that came back for it, asked for with ``"prove": true``.

    Returns:
        The new root. Accepting it stays the caller's decision.

    Raises:
        InvalidInput: The request is no mutation request, or its root is none.
        Conflict: The changes contradict each other.
        ProofError: The receipt is not what follows from the changes. `step` is the delta concerned.

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
