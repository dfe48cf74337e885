"""Exception classes, and the table of error codes (protocol section 5, *Errors*).

The gateway, the client, the OpenAPI document and the documentation all use `ERROR_CODES`. The Rust extension raises
the classes defined here, so this module imports nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = [
    "ERROR_CODES",
    "Conflict",
    "CoregwError",
    "ErrorCode",
    "IndexNotFound",
    "InvalidInput",
    "NotFound",
    "PathNotFound",
    "PayloadNotFound",
    "ProofError",
    "RecordNotFound",
    "RootNotFound",
    "StorageFull",
    "StoreDamaged",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "UnprovenAbsence",
    "UpstreamDamaged",
]


class CoregwError(Exception):
    """Base class of all exceptions that coregw raises on purpose.

    Attributes:
        message: One sentence that names the place and the reason.
        code: A key of `ERROR_CODES`, such as ``"invalid_cid"``, or ``"invalid_proof"`` for a `ProofError`.
        details: The error's ``details`` member as JSON text (UTF-8), or None.
        gateway: In a client, the address of the gateway whose answer, or silence, it is about; otherwise None.
        path: In a client, the path of the request that was answered with this error; otherwise None.
    """

    default_code = "internal"
    gateway: str | None = None
    path: str | None = None

    def __init__(self, message: str, *, code: str | None = None, details: bytes | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.details = details

    def __str__(self) -> str:
        return self.message


class InvalidInput(CoregwError, ValueError):
    """A malformed request, path, CID or argument. Nothing was changed."""

    default_code = "invalid_request"


class TooLarge(InvalidInput):
    """An input, or a requested result, that exceeds a documented limit."""

    default_code = "too_large"


class ProofError(CoregwError):
    """A result whose proof failed verification. No part of the result can be trusted.

    Attributes:
        check: The check that failed: of a proof, in a sentence; otherwise a word, which docs/exceptions.md lists.
        step: Index of the prooflist step, counting from 0, or None.
        offset: Byte offset in the proof at which the check failed, or None.
    """

    default_code = "invalid_proof"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: bytes | None = None,
        check: str = "",
        step: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.check = check
        self.step = step
        self.offset = offset


class NotFound(CoregwError):
    """Base class for everything that is not found; also a route that does not exist."""

    default_code = "path_not_found"


class PathNotFound(NotFound, KeyError):
    """A key that is not in its map, or a path that does not resolve; a client raises it only if that is proven."""

    default_code = "path_not_found"


class IndexNotFound(NotFound, IndexError):
    """An index at or past the end of its list; a client raises it only if that is proven."""

    default_code = "path_not_found"


class UnprovenAbsence(NotFound):
    """A path that does not resolve, as a gateway claims without a proof. It may exist, so this is not a `KeyError`."""

    default_code = "path_not_found"


class RootNotFound(NotFound, KeyError):
    """A root that the store does not hold."""

    default_code = "root_not_found"


class PayloadNotFound(NotFound, KeyError):
    """A payload that the store does not hold."""

    default_code = "payload_not_found"


class RecordNotFound(NotFound, KeyError):
    """A scope and name under which no root has been published."""

    default_code = "record_not_found"


class Conflict(CoregwError):
    """A change that does not apply to the current state. Nothing was changed."""

    default_code = "invalid_change"


class Unauthorized(CoregwError):
    """A missing or wrong bearer token."""

    default_code = "unauthorized"


class StoreDamaged(CoregwError):
    """Stored bytes that are missing or do not match their digest."""

    default_code = "internal"


class UpstreamDamaged(StoreDamaged):
    """Bytes that an upstream sent under a name that they do not have. They were neither used nor kept."""


class Unavailable(CoregwError):
    """A store or gateway that cannot answer at the moment; retrying later may succeed.

    Attributes:
        retry_after: Seconds after which the gateway asks for another attempt, or None.
        is_lasting: Whether waiting does not help, as with a certificate that is not trusted.
        is_interrupted: Whether a connection was established, and failed before the answer was complete.
    """

    default_code = "unavailable"
    retry_after: float | None = None
    is_lasting: bool = False
    is_interrupted: bool = False


class StorageFull(Unavailable):
    """A store without space for what was sent. None of it was acknowledged."""

    default_code = "storage_full"


class ErrorCode(NamedTuple):
    """A row of `ERROR_CODES`.

    Attributes:
        status: The HTTP status of a response with this code.
        exception: What the client raises for such a response. Several classes may share a code.
        meaning: One sentence for the documentation.
    """

    status: int
    exception: type[CoregwError]
    meaning: str


ERROR_CODES: Final[Mapping[str, ErrorCode]] = MappingProxyType(
    {
        "invalid_request": ErrorCode(400, InvalidInput, "The request, or a member of its body, is malformed."),
        "invalid_cid": ErrorCode(400, InvalidInput, "A CID or root in the request does not parse."),
        "invalid_path": ErrorCode(400, InvalidInput, "A path is empty, has an empty segment, or is too long."),
        "invalid_codec": ErrorCode(400, InvalidInput, "The codec is not a multicodec that payloads may have."),
        "unknown_profile": ErrorCode(400, InvalidInput, "The profile is not the one of this route."),
        "kind_mismatch": ErrorCode(400, InvalidInput, "A CID is not of the kind that its position requires."),
        "unauthorized": ErrorCode(401, Unauthorized, "The bearer token is missing or wrong."),
        "forbidden_origin": ErrorCode(403, InvalidInput, "A web page of this origin may not write to the gateway."),
        "read_only": ErrorCode(403, InvalidInput, "The gateway or static tree accepts no writes."),
        "root_not_found": ErrorCode(404, RootNotFound, "The gateway does not hold the root."),
        "path_not_found": ErrorCode(404, UnprovenAbsence, "The path, key or index does not exist below the root."),
        "page_not_found": ErrorCode(404, NotFound, "The gateway does not hold the page."),
        "payload_not_found": ErrorCode(404, PayloadNotFound, "The gateway does not hold the payload."),
        "record_not_found": ErrorCode(404, RecordNotFound, "No root is published under this scope and name."),
        "route_not_found": ErrorCode(404, NotFound, "No route has this path."),
        "method_not_allowed": ErrorCode(405, InvalidInput, "The route exists, but not for this method."),
        "before_mismatch": ErrorCode(409, Conflict, "The current target differs from the `before` of a change."),
        "expected_root_mismatch": ErrorCode(409, Conflict, "The result of a delta differs from its `expected_root`."),
        "revision_mismatch": ErrorCode(409, Conflict, "The newest revision differs from `expected_revision`."),
        "checkpoint_mismatch": ErrorCode(
            409, Conflict, "The signed checkpoint is older than the newest one, or of another tree."
        ),
        "record_frozen": ErrorCode(409, Conflict, "The published root is frozen."),
        "invalid_change": ErrorCode(409, Conflict, "A change cannot be applied to its map or list."),
        "precondition_failed": ErrorCode(412, Conflict, "What the URL names does not meet If-Match or If-None-Match."),
        "too_large": ErrorCode(413, TooLarge, "The body, or the requested result, exceeds a limit."),
        "unsupported_media_type": ErrorCode(415, InvalidInput, "The body's type or content coding is not supported."),
        "range_not_satisfiable": ErrorCode(416, InvalidInput, "The range starts after the end of the payload."),
        "misdirected_request": ErrorCode(421, InvalidInput, "The Host is not a name of this gateway."),
        "internal": ErrorCode(500, CoregwError, "The gateway failed; its log has the reason."),
        "unavailable": ErrorCode(503, Unavailable, "The gateway cannot answer at the moment; retry later."),
        "storage_full": ErrorCode(507, StorageFull, "The store has no space left for the request."),
    }
)
"""Every code that a response can carry, in the order of the protocol's table."""
