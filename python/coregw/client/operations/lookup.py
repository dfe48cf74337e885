"""Single queries: send one, verify its answer, return the value (resolve, read, map proof, scan)."""

from __future__ import annotations

from typing import TypeVar

from coregw import _core
from coregw.client.exchange.answers import unproven
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.steps import Steps, located
from coregw.client.query import CidLike, PathLike, Proven, Query, read_index, read_key, read_range
from coregw.client.settings import ClientSettings
from coregw.errors import IndexNotFound, PathNotFound, ProofError, UnprovenAbsence

__all__ = ["call_of", "index_target", "key_target", "prove", "range_outcome", "value", "verified"]

T = TypeVar("T")


def prove(settings: ClientSettings, query: Query[T]) -> Steps[Proven[T]]:
    """Send a query and verify the answer.

    The 404 of a query that proves absence is verified too; its value has ``present`` False.

    Raises:
        ProofError: The answer is not proven, or an absence came without its proof.
        RootNotFound: The gateway says that it does not hold the root; nothing proves that.
        UnprovenAbsence: Only from a resolve: the gateway says that nothing is found; nothing proves that either.
    """
    try:
        answer: Answer = yield call_of(settings, query)
    except UnprovenAbsence as absent:
        if query.absence == "claimed":
            raise
        if absent.details is None:
            raise unproven(query.what) from None
        result = absent.details
    else:
        result = answer.body
    return Proven(verified(query, result), query.request, result)


def call_of(settings: ClientSettings, query: Query[T], preferred_type: str = "") -> Call:
    """Return the call that sends a query; `preferred_type` as in `Call`."""
    return Call(
        "POST",
        query.route,
        settings.max_result_bytes,
        query.what,
        content=query.request,
        preferred_type=preferred_type,
        may_be_absent=query.absence != "result",
    )


def value(settings: ClientSettings, query: Query[T]) -> Steps[T]:
    """Send a query and return the verified value alone; see `prove`."""
    proven = yield from prove(settings, query)
    return proven.value


def verified(query: Query[T], result: bytes) -> T:
    """Return the value that a result proves. Raises `ProofError`, prefixed with the query, if it is not proven."""
    try:
        return query.verify(query.request, result)
    except ProofError as error:
        raise located(query.what, error) from None


def key_target(settings: ClientSettings, root: CidLike, path: PathLike) -> Steps[str]:
    """Return the target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
    query = read_key(root, path)
    proven = yield from prove(settings, query)
    if not proven.value.present or proven.value.target is None:
        raise PathNotFound(f"{query.what}: proven absent", details=proven.result)
    return proven.value.target


def index_target(settings: ClientSettings, root: CidLike, index: int) -> Steps[str]:
    """Return the target of a list element. Raises `IndexNotFound` for a list that is proven to be shorter."""
    query = read_index(root, index)
    proven = yield from prove(settings, query)
    if not proven.value.present or proven.value.target is None:
        raise IndexNotFound(f"{query.what}: the list has {proven.value.length} elements", details=proven.result)
    return proven.value.target


def range_outcome(settings: ClientSettings, root: CidLike, start: int, end: int | None) -> Steps[_core.ReadOutcome]:
    """Return the elements of a list that intersect a range."""
    return (yield from value(settings, read_range(root, start, end)))
