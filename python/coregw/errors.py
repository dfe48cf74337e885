"""The whole exception tree of coregw. Imports nothing; the Rust extension raises these classes.

Every exception carries ``code``, the machine-readable word of the protocol's error table (section 5), so that a
gateway turns it into a status by one table (``coregw.gateway.problems``) and a client turns a status back into it.
"""

from __future__ import annotations

__all__ = [
    "Conflict",
    "CoregwError",
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
]


class CoregwError(Exception):
    """Anything that coregw refuses or fails at.

    Attributes:
        message: One sentence that names the place and the reason.
        code: The error code of protocol section 5, such as ``"invalid_cid"``.
        details: JSON text (UTF-8 bytes) of the error's ``details`` member, or None.
    """

    default_code = "internal"

    def __init__(self, message: str, *, code: str | None = None, details: bytes | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.details = details

    def __str__(self) -> str:
        return self.message


class InvalidInput(CoregwError, ValueError):
    """A request, path, CID or argument that the protocol does not allow; nothing was done."""

    default_code = "invalid_request"


class TooLarge(InvalidInput):
    """An input, or an answer asked for, that is past a stated limit."""

    default_code = "too_large"


class ProofError(CoregwError):
    """An answer that is not proven. Nothing in it may be believed.

    Attributes:
        check: The check that failed, as a short phrase.
        step: Index of the prooflist step concerned (from 0), or None.
        offset: Byte offset in the proof where the check failed, or None.
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
    """Something asked for is not there."""

    default_code = "path_not_found"


class PathNotFound(NotFound, KeyError):
    """A map has no such key, or a path leads nowhere."""

    default_code = "path_not_found"


class IndexNotFound(NotFound, IndexError):
    """A list is shorter than the index asked for."""

    default_code = "path_not_found"


class RootNotFound(NotFound, KeyError):
    """The store has no record of this root."""

    default_code = "root_not_found"


class PayloadNotFound(NotFound, KeyError):
    """The store has no payload with this CID."""

    default_code = "payload_not_found"


class RecordNotFound(NotFound, KeyError):
    """No root is published under this scope and name."""

    default_code = "record_not_found"


class Conflict(CoregwError):
    """A change that does not fit what is there; nothing was changed."""

    default_code = "invalid_change"


class Unauthorized(CoregwError):
    """A bearer token is missing or wrong."""

    default_code = "unauthorized"


class StoreDamaged(CoregwError):
    """Stored bytes are not what their digest says, or are missing."""

    default_code = "internal"


class Unavailable(CoregwError):
    """The store or the gateway cannot answer now; trying again later may help."""

    default_code = "unavailable"


class StorageFull(Unavailable):
    """There is no room left to store what was sent; nothing of it was acknowledged."""

    default_code = "storage_full"
