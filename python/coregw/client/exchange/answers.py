"""Meaning of answers: the value of a successful one, and the exception for an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from coregw.client.exchange.call import Answer, Call
from coregw.errors import ERROR_CODES, CoregwError, ProofError, StorageFull, Unavailable
from coregw.text import printable
from coregw.undecodable import UNDECODABLE

__all__ = ["NO_DOCUMENT", "decode", "error_from", "is_retryable", "unproven"]

NO_DOCUMENT: Final = "without an error document"
"""In the message of every error that is no gateway's answer, but perhaps that of a proxy."""

_MAX_NUMBER_BYTES: Final = 20
"""Longest body that is a number: the size of a log, as witnesses answer it."""

_T = TypeVar("_T")

# The codes for answers without a known one, such as those of proxies. All other statuses are "internal".
_CODE_BY_STATUS: Mapping[int, str] = {
    401: "unauthorized",
    403: "unauthorized",
    404: "route_not_found",
    407: "unauthorized",
    409: "invalid_change",
    413: "too_large",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
    507: "storage_full",
}


class _ErrorBody(msgspec.Struct):
    """``{error, message, details?}``; decoded leniently, since proxies answer too."""

    error: str
    message: str
    details: msgspec.Raw = msgspec.Raw()


def error_from(call: Call, status: int, body: bytes) -> CoregwError:
    """Return the exception for an error answer: by its code if that is known, else by its status.

    Args:
        call: The call, for the message.
        status: The HTTP status, not a success.
        body: The whole body.
    """
    fallback = _CODE_BY_STATUS.get(status, "internal")
    try:
        problem = msgspec.json.decode(body, type=_ErrorBody)
    except UNDECODABLE:
        number = body.strip() if len(body) <= _MAX_NUMBER_BYTES and body.strip().isdigit() else None
        why = f"the gateway answered {status} {NO_DOCUMENT}: it may be another server, or a proxy"
        return _exception(call, why, fallback, number)
    code = problem.error if problem.error in ERROR_CODES else fallback
    if code == "path_not_found" and not call.may_be_absent:
        return unproven(call.what)
    details = bytes(problem.details) if problem.details else None
    return _exception(call, f"{printable(problem.message)} ({code})", code, details)


def unproven(what: str) -> ProofError:
    """Return the exception for a claimed absence that the protocol requires a proof of."""
    return ProofError(f"{what}: an absence without a proof", check="absence")


def _exception(call: Call, why: str, code: str, details: bytes | None) -> CoregwError:
    error = ERROR_CODES[code].exception(f"{call.what}: {why}", code=code, details=details)
    error.path = call.path
    return error


def is_retryable(error: BaseException) -> bool:
    """Return whether the same request may succeed shortly after. A full store will still be full."""
    return isinstance(error, Unavailable) and not isinstance(error, StorageFull)


def decode(call: Call, answer: Answer, kind: type[_T]) -> _T:
    """Return the answer's body as a `kind`.

    Raises:
        ProofError: The body is not a valid `kind`, so nothing in it may be trusted.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except UNDECODABLE as error:
        why = printable(str(error), 120)
        raise ProofError(f"{call.what}: the answer is not a valid {kind.__name__}: {why}", check="answer") from None
