"""How operations are written: as generators of calls, which a driver sends.

The drivers are `coregw.client.sync_driver` and `coregw.client.aio_driver`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from coregw import _core
from coregw.client.transport.exchange import Answer, Call
from coregw.errors import CoregwError, InvalidInput, ProofError, Unavailable
from coregw.verify import CidLike

__all__ = [
    "PartSize",
    "Steps",
    "Stream",
    "StreamItem",
    "attempt",
    "check_same_cid",
    "in_context",
    "located",
    "map_root",
    "resume",
]

_MIN_BYTES: Final = 128 << 10

_STEP_BYTES: Final = 32 << 10
"""By so much the next part may be longer after one that was acknowledged. On connections that are cut after 3 MB, parts
have some 0.7 MB then, half of which is lost at each cut, on average."""


class PartSize:
    """How long a part may be: half as long after each failure, then slowly longer. Shared by the uploads of a client.

    Attributes:
        limit: The number of bytes; None as long as nothing has failed.
    """

    def __init__(self) -> None:
        self.limit: int | None = None

    def failed(self, size: int) -> bool:
        """Note that a connection did not last for a part of this size, and return whether the next one is shorter."""
        self.limit = max(_MIN_BYTES, min(size, self.limit or size) // 2)
        return size > self.limit

    def succeeded(self) -> None:
        """Note that a part was acknowledged."""
        if self.limit is not None:
            self.limit += _STEP_BYTES


T = TypeVar("T")

Y = TypeVar("Y")


@dataclass(frozen=True, slots=True)
class StreamItem(Generic[T]):
    """A value that a stream yields to its caller, as opposed to a `Call` for the driver."""

    value: T


# An operation yields a `Call`, and is sent the `Answer` or has the gateway's error thrown into it. The send type is
# Any, because a stream is sent answers after calls and None after items.
Steps = Generator[Call, Any, T]

Stream = Generator[Call | StreamItem[T], Any, None]


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


def map_root(root: CidLike) -> _core.Cid:
    """Return the root of a map. Raises `InvalidInput` (code ``kind_mismatch``) if it is another CID."""
    cid = _core.Cid(root)
    if cid.kind != "map":
        raise InvalidInput(f"{cid.text} is not a map root", code="kind_mismatch")
    return cid


def check_same_cid(what: str, claimed: str, computed: str) -> None:
    """Raise `ProofError` unless the gateway's CID is, in lower-case base32, the one that was computed here."""
    if claimed != _core.Cid(computed).text:
        raise ProofError(f"{what}: the gateway's CID is not {computed}, which was computed here", check="cid")


def attempt(
    call: Call, sizes: PartSize, size: int | Callable[[], int], *, is_divisible: bool = True
) -> Steps[Answer | None]:
    """Make a call, and return its answer; None if a connection was lost and shorter requests may get through.

    All other transient failures are attempted again, and so is a request that has the length of the shortest ones.

    Args:
        call: The call. Its body must not be `bytes`, which libcurl would send again by itself.
        sizes: How long requests may be; it notes the outcome.
        size: The number of bytes of the body, or how many of them the last attempt has sent.
        is_divisible: Whether there are shorter requests for the same.
    """
    if not is_divisible:
        answer: Answer = yield call
        return answer
    made = _Attempt(call, sizes, size)
    answer = yield made.divided()
    if made.is_given_up:
        return None
    sizes.succeeded()
    return answer


class _Attempt:
    """A call that is given up when its connection is lost (`coregw.client.transport.exchange.Divided`)."""

    done = 0

    def __init__(self, call: Call, sizes: PartSize, size: int | Callable[[], int]) -> None:
        self._call = call  # without a reference to this, or its body would stay until a garbage collection
        self.is_given_up = False
        self._sizes = sizes
        self._size = size

    def divided(self) -> Call:
        """Return the call, as a part of this."""
        return replace(self._call, divided=self)

    def rest(self, error: CoregwError) -> Call | None:
        if isinstance(error, Unavailable) and error.is_interrupted:
            size = self._size if isinstance(self._size, int) else self._size()
            self.is_given_up = self._sizes.failed(size)
        return None if self.is_given_up else self.divided()
