"""The examples of the OpenAPI document: requests, and what a new gateway answers them with, from ``examples.json``.

They are in the order in which they work. `tests/gateway/renew_document.py` sends the requests and writes the answers
down; a test sends them again. Leaves out where they stand in the document (`openapi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = ["SAYINGS", "Example", "all_examples"]

SAYINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "invalid_request": "not a message of this route: Object contains unknown field `colour`",
        "invalid_cid": "this is no CID",
        "invalid_path": "a segment is empty",
        "invalid_codec": "there is no multicodec of this name",
        "unknown_profile": "this is not the profile of the route",
        "kind_mismatch": "this is not the root of a map",
        "unauthorized": "this route needs a bearer token",
        "root_not_found": "the root is not held here",
        "path_not_found": "the path leads nowhere",
        "payload_not_found": "the payload is not held here",
        "record_not_found": "nothing was published under this name",
        "route_not_found": "there is nothing at '/v1/cas/a/b'",
        "method_not_allowed": "GET is not one of OPTIONS, POST",
        "before_mismatch": "the target before the change is another one",
        "expected_root_mismatch": "the result of the delta is another root",
        "revision_mismatch": "the newest revision is another one",
        "record_frozen": "the record is frozen",
        "invalid_change": "the change removes what is not there",
        "too_large": "the body is longer than 1048576 bytes",
        "unsupported_media_type": "the body comes as 'text/plain'; send it with Content-Type: application/json",
        "range_not_satisfiable": "there are 5 bytes",
        "internal": "something went wrong in the gateway; its log says what",
        "unavailable": "too many large requests at once; try again",
        "storage_full": "the disk has too little room left",
    }
)
"""What an error of each code may say, where no request of the examples brings it about."""


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request that works when it is sent in its turn, and its answer.

    Attributes:
        operation: The operation's id in the document.
        name: Its name among the examples of the operation.
        about: What it shows, in a line.
        parameters: Values of path, query and header parameters.
        body: The JSON body that is sent, if any.
        text: The body that is sent, where it is no JSON.
        status: The status of the answer.
        answer: The JSON body of the answer, if any.
        answer_text: The body of the answer, where it is no JSON.
    """

    operation: str
    name: str
    about: str
    parameters: dict[str, str | int] = {}
    body: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    status: int = 0
    answer: msgspec.Raw | UnsetType = UNSET
    answer_text: str | UnsetType = UNSET

    @property
    def sent(self) -> msgspec.Raw | str | None:
        """The body of the request."""
        return self.body if self.body is not UNSET else self.text if self.text is not UNSET else None

    @property
    def answered(self) -> msgspec.Raw | str | None:
        """The body of the answer."""
        return self.answer if self.answer is not UNSET else self.answer_text if self.answer_text is not UNSET else None

    @property
    def code(self) -> str | None:
        """The error code of the answer; None for a success."""
        if self.status < 400 or self.answer is UNSET:
            return None
        error: str = msgspec.json.decode(self.answer)["error"]
        return error

    def document(self, value: object) -> dict[str, Any]:
        """An example object of OpenAPI."""
        return {"summary": self.about, "value": value}


@cache
def all_examples() -> tuple[Example, ...]:
    """All examples in the order in which they work."""
    text = (files("coregw.gateway") / "examples.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Example, ...])
