"""Changes of maps and lists through a gateway that need not be trusted: the new root is derived here.

Sans-I/O, as ``operations``. Leaves out how a transition is proven, which is ``coregw.verify_transition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.operations import Steps, answered, naming
from coregw.client.questions import CidLike, PathLike, encode, map_proof, segments_of
from coregw.client.settings import ClientSettings
from coregw.client.wire import Answer, Call, decode
from coregw.errors import InvalidInput, PathNotFound
from coregw.messages import Change, Delta, Endpoint, MutationReceipt, MutationRequest, TransitionRequest

__all__ = ["mutate", "update"]


def mutate(settings: ClientSettings, root: CidLike, deltas: Sequence[Delta]) -> Steps[MutationReceipt]:
    """Changes a map or list, and derives every result, and the new root, from the changes and the receipt's proofs.

    What the gateway stored is a candidate: nothing changes for anybody who holds the old root.

    Args:
        settings: The client's settings.
        root: The base root, which the caller trusts.
        deltas: The changes (protocol section 5, *mutate*), at least one.

    Returns:
        The receipt, all of it proven. O(changes x depth).

    Raises:
        InvalidInput: Changes that the protocol does not allow.
        Conflict: A delta does not fit what is there; nothing was changed.
        RootNotFound: The gateway says that it does not have the base root, or an object of a delta.
        ProofError: The receipt is not what follows from the changes.
    """
    base = _core.Cid(root).text
    what = f"change {base}"
    body = encode(MutationRequest(deltas=list(deltas), prove=True))
    call = Call("POST", f"/v1/roots/{base}/mutations", settings.max_result_bytes, what, content=body)
    answer: Answer = yield call
    request = encode(TransitionRequest(root=base, deltas=list(deltas), prove=True))
    with naming(what):
        _core.verify_transition(request, answer.body)
    return decode(call, answer, MutationReceipt)


def update(
    settings: ClientSettings,
    root: CidLike,
    set: Mapping[str, CidLike],
    remove: Iterable[PathLike] = (),
) -> Steps[str]:
    """Binds and removes paths of one map, whatever they lead to now, and returns the proven root of the result.

    What a path leads to now is asked for first, with a proof; so this takes a request for each path, and one more.

    Args:
        settings: The client's settings.
        root: The map's root, which the caller trusts.
        set: The target of each path (text form) to bind. What is bound so already is no change.
        remove: The paths to remove.

    Raises:
        InvalidInput: A path or CID that the protocol does not allow, or a path named twice.
        PathNotFound: A path to remove is proven absent.
        Conflict: The gateway says that another change came in between, which no honest one can of an immutable root.
        ProofError: An answer is not proven.
    """
    wanted: dict[str, str | None] = {}
    named = [(path, _core.Cid(target).text) for path, target in set.items()]
    for path, target in [*named, *((path, None) for path in remove)]:
        text = _text(path)
        if text in wanted:
            raise InvalidInput(f"{text}: named twice", code="invalid_path")
        wanted[text] = target
    changes = []
    for path, target in wanted.items():
        question = map_proof(root, path)
        now = yield from answered(settings, question)
        if now is None and target is None:
            raise PathNotFound(f"{question.what}: proven absent, so it can't be removed")
        if now != target:
            changes.append(Change(path=path, before=_endpoint(now), after=_endpoint(target)))
    if not changes:
        return _core.Cid(root).text
    receipt = yield from mutate(settings, root, [Delta(kind="map", changes=changes)])
    return receipt.new_root


def _text(path: PathLike) -> str:
    """The text form of a path, of which there are many: what is wrong names it."""
    try:
        return "/".join(segments_of(path))
    except InvalidInput as error:
        raise InvalidInput(f"{path!r:.200}: {error.message}", code=error.code) from None


def _endpoint(target: str | None) -> Endpoint | UnsetType:
    return UNSET if target is None else Endpoint(target=target)
