"""Mutations of maps and lists (``/v1/roots/{root}/mutations``). The new root is derived here, or known before.

The derivation itself is ``coregw.verify_transition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET, UnsetType

from coregw import _core
from coregw.client.operations.lookup import prove_keys
from coregw.client.operations.steps import PartSize, Steps, attempt, check_same_cid, in_context
from coregw.client.query import encode, map_proof, segments_of
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Call, SentOnce, decode
from coregw.errors import InvalidInput, PathNotFound, ProofError
from coregw.messages import Change, Delta, Endpoint, MutationReceipt, MutationRequest, TransitionRequest
from coregw.verify import CidLike, PathLike

__all__ = ["Changes", "apply_changes", "checked_root", "mutate", "update"]


def mutate(settings: ClientSettings, root: CidLike, deltas: Sequence[Delta]) -> Steps[MutationReceipt]:
    """Steps of `AsyncClient.mutate`, which describes arguments and errors."""
    base = _core.Cid(root).text
    what = f"change {base}"
    body = encode(MutationRequest(deltas=list(deltas), prove=True))
    call = Call("POST", f"/v1/roots/{base}/mutations", settings.max_result_bytes, what, content=body)
    answer: Answer = yield call
    request = encode(TransitionRequest(root=base, deltas=list(deltas), prove=True))
    with in_context(what):
        _core.verify_transition(request, answer.body)
    return decode(call, answer, MutationReceipt)


@dataclass(slots=True)
class Changes:
    """Changes of one map or list.

    Attributes:
        root: The base root; then the root that the acknowledged changes have made, as the gateway says. A map's root as
            the base of a list's changes: they make a new list of its suite.
        kind: What is changed.
        changes: The changes, in an order in which any number of the first ones can be applied.
        expected: The root that results from all of them, if it is known.
        done: The number of changes that were acknowledged.
    """

    root: str
    kind: Literal["map", "list"]
    changes: Sequence[Change]
    expected: str | None = None
    done: int = 0

    def delta(self, count: int) -> Delta:
        """Return the next `count` changes."""
        end = self.done + count
        expected = self.expected if end == len(self.changes) else None
        return Delta(
            kind=self.kind,
            object=self.root if _core.Cid(self.root).kind == self.kind else UNSET,
            changes=list(self.changes[self.done : end]),
            expected_root=UNSET if expected is None else expected,
        )

    def acknowledge(self, what: str, count: int, root: str) -> None:
        """Note that the gateway says that `count` more changes have made `root`. Raises `ProofError` if it can't be."""
        self.done += count
        if self.done == len(self.changes) and self.expected is not None:
            check_same_cid(what, root, self.expected)
        self.root = checked_root(what, root, self.kind, _core.Cid(self.root).suite)


def checked_root(what: str, root: str, kind: str, suite: str | None) -> str:
    """Return what a gateway says is a root, in lower-case base32, which is safe in a URL; nothing else proves it.

    Raises:
        ProofError: It is no root of this kind and suite.
    """
    try:
        cid = _core.Cid(root)
    except InvalidInput as error:
        raise ProofError(f"{what}: the gateway's root is not a CID: {error.message}", check="root") from None
    if (cid.kind, cid.suite) != (kind, suite):
        raise ProofError(f"{what}: the gateway's root {cid.text} is of another kind or suite", check="root")
    if root != cid.text:
        raise ProofError(f"{what}: the gateway's root {root} is not in lower-case base32", check="root")
    return root


def apply_changes(
    settings: ClientSettings, targets: Sequence[Changes], what: str, sizes: PartSize | None = None
) -> Steps[None]:
    """Steps of `AsyncClient.apply_changes`, which describes arguments and errors.

    `sizes` is how long requests may be, as learned from earlier calls.
    """
    sizes = sizes or PartSize()
    while rest := [target for target in targets if target.done < len(target.changes)]:
        taken, body = _next(rest, settings.list_changes, sizes.limit)
        path = f"/v1/roots/{rest[0].root}/mutations"
        call = Call("POST", path, settings.max_result_bytes, what, content=SentOnce(body))
        answer = yield from attempt(call, sizes, len(body), is_divisible=sum(taken) > 1)
        if answer is None:
            continue
        receipt = decode(call, answer, MutationReceipt)
        if len(receipt.deltas) != len(taken):
            raise ProofError(f"{what}: {len(receipt.deltas)} results of {len(taken)} deltas", check="answer")
        results = [*(each.result for each in receipt.deltas[:-1]), receipt.new_root]
        for target, count, result in zip(rest, taken, results, strict=False):
            target.acknowledge(what, count, result)


def _next(targets: Sequence[Changes], at_most: int, limit: int | None) -> tuple[list[int], bytes]:
    """Return how many changes of the first targets are next, and the request with them."""
    taken = [len(target.changes) - target.done for target in targets]
    if max(taken) <= at_most:
        body = _body(targets, taken)
        if limit is None or len(body) <= limit:
            return taken, body
    count = min(taken[0], at_most)
    body = _body(targets, [count])
    while limit is not None and len(body) > limit and count > 1:
        count = max(1, count * limit // len(body))
        body = _body(targets, [count])
    return [count], body


def _body(targets: Sequence[Changes], taken: Sequence[int]) -> bytes:
    return encode(MutationRequest(deltas=[each.delta(count) for each, count in zip(targets, taken, strict=False)]))


def update(
    settings: ClientSettings,
    root: CidLike,
    set: Mapping[str, CidLike],
    remove: Iterable[PathLike] = (),
) -> Steps[str]:
    """Steps of `AsyncClient.update`, which describes arguments and errors."""
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
            place = map_proof(root, path).what.removeprefix("prove ")
            raise PathNotFound(f"{place}: proven absent, so it can't be removed")
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
