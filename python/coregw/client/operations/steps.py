"""The generator protocol of operations: calls out, answers in, and checked values at the end.

The drivers are ``Client._run`` and ``AsyncClient._run``, and their ``_stream`` counterparts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from coregw import _core
from coregw.client.exchange import Answer, Call
from coregw.errors import CoregwError, InvalidInput, ProofError

__all__ = ["Item", "Steps", "Stream", "check_same_cid", "in_context", "located", "resume"]

T = TypeVar("T")
Y = TypeVar("Y")


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """A value that a stream yields to its caller, as opposed to a `Call` for the driver."""

    value: T


# An operation yields a `Call`, and is sent the `Answer` or has the gateway's error thrown into it. The send type is
# Any, because a stream is sent answers after calls and None after items.
Steps = Generator[Call, Any, T]
Stream = Generator[Call | Item[T], Any, None]


def resume(
    steps: Generator[Y, Any, object],
    outcome: Answer | CoregwError,
    refused: Callable[[ProofError, str | None], None] | None = None,
) -> Y:
    """Continue an operation with the outcome of its call. Raises `StopIteration`, with the value, at its end.

    Args:
        steps: The operation.
        outcome: The answer, or the error.
        refused: Called with the error, and the address of the gateway, if the outcome is not proven; None if this
            operation is part of another one.
    """
    try:
        return steps.throw(outcome) if isinstance(outcome, CoregwError) else steps.send(outcome)
    except ProofError as error:
        if refused is not None:
            refused(error, outcome.gateway)
        raise


@contextmanager
def in_context(what: str) -> Iterator[None]:
    """Prefix the message of a `ProofError` with what was requested."""
    try:
        yield
    except ProofError as error:
        raise located(what, error) from None


def located(what: str, error: ProofError) -> ProofError:
    """Return the error with what was requested before its message."""
    why = error.message.removeprefix("not proven: ")  # the exception's class says so already
    return ProofError(f"{what}: {why}", check=error.check, step=error.step, offset=error.offset)


def check_same_cid(what: str, claimed: str, computed: str) -> None:
    """Raise `ProofError` unless the gateway's CID equals the one that was computed here."""
    try:
        same = _core.Cid(claimed) == _core.Cid(computed)
    except InvalidInput:
        same = False
    if not same:
        raise ProofError(f"{what}: the gateway's CID is not {computed}, which was computed here", check="cid")
