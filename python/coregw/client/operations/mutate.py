"""Mutations of maps and lists (``/v1/roots/{root}/mutations``). The new root is always derived here.

The derivation itself is ``coregw.verify_transition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.exchange import Answer, Call, decode
from coregw.client.operations.paths import prove_keys
from coregw.client.operations.steps import Steps, check_same_cid, in_context
from coregw.client.query import CidLike, PathLike, encode, map_proof, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, PathNotFound, ProofError
from coregw.messages import Change, Delta, Endpoint, MutationReceipt, MutationRequest, TransitionRequest

__all__ = ["change_root", "mutate", "update"]


def mutate(settings: ClientSettings, root: CidLike, deltas: Sequence[Delta]) -> Steps[MutationReceipt]:
    """Apply deltas to maps and lists, and derive every result from them and the receipt's transition proofs.

    The base root and its tree stay as they are; the new root is a candidate.

    Args:
        settings: The client's settings.
        root: The base root, which the caller trusts.
        deltas: At least one delta (protocol section 5, *mutate*).

    Returns:
        The verified receipt. O(changes x depth).

    Raises:
        InvalidInput: The protocol does not allow these changes.
        Conflict: A delta does not match the current content; nothing was changed.
        RootNotFound: The gateway says that it does not hold the base root, or an object of a delta.
        ProofError: The receipt does not follow from the changes.
    """
    base = _core.Cid(root).text
    what = f"change {base}"
    body = encode(MutationRequest(deltas=list(deltas), prove=True))
    call = Call("POST", f"/v1/roots/{base}/mutations", settings.max_result_bytes, what, content=body)
    answer: Answer = yield call
    request = encode(TransitionRequest(root=base, deltas=list(deltas), prove=True))
    with in_context(what):
        _core.verify_transition(request, answer.body)
    return decode(call, answer, MutationReceipt)


def change_root(
    settings: ClientSettings, root: CidLike, changes: Sequence[Change], expected_root: CidLike | None = None
) -> Steps[str]:
    """Apply changes to a map or list, and return the root that the gateway says it has stored; nothing proves that.

    For a caller who knows what must result: the answer has no proof.

    Args:
        settings: The client's settings.
        root: The base root.
        changes: The changes, at least one.
        expected_root: The root that must result, or else nothing is stored.

    Raises:
        Conflict: A change does not match the current content, or another root results; nothing was changed.
        RootNotFound: The gateway says that it does not hold the base root.
        ProofError: The answer is not a root of the kind and suite of the base root, or not the expected root.
    """
    base = _core.Cid(root)
    expected = None if expected_root is None else _core.Cid(expected_root).text
    kind: Literal["map", "list"] = "list" if base.kind == "list" else "map"
    delta = Delta(kind=kind, changes=list(changes), expected_root=UNSET if expected is None else expected)
    body = encode(MutationRequest(deltas=[delta]))
    what = f"change {base.text}"
    call = Call("POST", f"/v1/roots/{base.text}/mutations", settings.max_result_bytes, what, content=body)
    answer: Answer = yield call
    new_root = decode(call, answer, MutationReceipt).new_root
    if expected is not None:
        check_same_cid(what, new_root, expected)
        return expected
    try:
        new = _core.Cid(new_root)
    except InvalidInput as error:
        raise ProofError(f"{what}: the gateway's root is not a CID: {error.message}", check="root") from None
    if (new.kind, new.suite) != (base.kind, base.suite):
        raise ProofError(f"{what}: the gateway's root {new.text} is of another kind or suite", check="root")
    return new.text


def update(
    settings: ClientSettings,
    root: CidLike,
    set: Mapping[str, CidLike],
    remove: Iterable[PathLike] = (),
) -> Steps[str]:
    """Bind and remove paths of one map, whatever their current targets, and return the proven new root.

    Costs a multiproof of the current targets, a request for each 1,000 paths or so, and one mutation.

    Args:
        settings: The client's settings.
        root: The map's root, which the caller trusts.
        set: The new target of each path (text form). A path that has this target already is left out.
        remove: The paths to remove.

    Raises:
        InvalidInput: A path or CID is not valid, or a path is named twice.
        PathNotFound: A path to remove is proven absent.
        Conflict: The gateway reports a concurrent change, which an honest one can't for an immutable root.
        ProofError: An answer is not proven.
    """
    wanted: dict[str, str | None] = {}
    bindings: list[tuple[PathLike, CidLike | None]] = [*set.items(), *((path, None) for path in remove)]
    for path, cid in bindings:
        text = "/".join(segments_of(path))
        target = None if cid is None else _target(text, cid)
        if not text:
            raise InvalidInput("the path to change is empty; it needs at least one segment", code="invalid_path")
        if text in wanted:
            raise InvalidInput(f"{text}: named twice", code="invalid_path")
        wanted[text] = target
    changes = []
    held = yield from prove_keys(settings, root, wanted)
    for (path, target), current in zip(wanted.items(), held, strict=True):
        if current is None and target is None:
            raise PathNotFound(f"{map_proof(root, path).what}: proven absent, so it can't be removed")
        if current != target:
            changes.append(Change(path=path, before=_endpoint(current), after=_endpoint(target)))
    if not changes:
        return _core.Cid(root).text
    receipt = yield from mutate(settings, root, [Delta(kind="map", changes=changes)])
    return receipt.new_root


def _target(path: str, cid: CidLike) -> str:
    """Return the text form of a target. As there may be many, an error names the path."""
    try:
        return _core.Cid(cid).text
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}", code=error.code) from None


def _endpoint(target: str | None) -> Endpoint | UnsetType:
    return UNSET if target is None else Endpoint(target=target)
