"""Description of a route for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import msgspec

__all__ = ["CAR", "DESCRIPTION", "JSON", "JSON_LINES", "OCTETS", "Body", "Description", "Parameter", "description_of"]

DESCRIPTION: Final = "coregw_description"
"""The key, in a Litestar handler's ``opt``, of its `Description`, or of one `Description` for each method."""

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
CAR: Final = "application/vnd.ipld.car"
JSON_LINES: Final = "application/x-ndjson"

Body = type[msgspec.Struct] | tuple[type[msgspec.Struct] | str, ...] | str
"""The struct of a JSON body, a media type, or several of them of which a body is one."""


class Parameter(NamedTuple):
    """A query, path or header parameter.

    Attributes:
        about: Its meaning.
        schema: The JSON schema of its value.
    """

    about: str
    schema: Mapping[str, object] = {"type": "string"}

    @classmethod
    def integer(cls, about: str, minimum: int, maximum: int) -> Self:
        """Return a parameter that is an integer within bounds, both inclusive."""
        return cls(about, {"type": "integer", "minimum": minimum, "maximum": maximum})


@dataclass(frozen=True, slots=True)
class Description:
    """A route's part of the OpenAPI document.

    Attributes:
        summary: One line.
        status: The status of a success.
        request: The request body, or None.
        streamed: Another media type of the request body, whose examples are text; empty for none.
        answer: The body of a success, or None.
        result: The result of a job, whose response is JSON lines (`coregw.gateway.jobs`).
        structs: Structs that `request` or `answer` refer to by name, besides their fields' types.
        is_body_required: Whether the request must have a body, if it may have one.
        codes: Error codes besides those that every route has.
        query: Query parameters by name: their meaning, or a `Parameter` if they are not plain text.
        request_headers: Names of the request headers that matter; `coregw.gateway.openapi` describes them.
        headers: Response headers of a success, and their meaning.
        others: Further statuses without an error body, and their meaning.
        operation_id: The operation's name, if it is not the handler's.
        writes: Whether it changes what the gateway holds or publishes. A gateway may refuse such requests, or require a
            token for them.
        is_controlled: Whether it uses the rights of the gateway's own user, as only the control socket may.
    """

    summary: str
    status: int = 200
    request: Body | None = None
    streamed: str = ""
    answer: Body | None = None
    result: type[msgspec.Struct] | None = None
    structs: tuple[type[msgspec.Struct], ...] = ()
    is_body_required: bool = True
    codes: tuple[str, ...] = ()
    query: Mapping[str, str | Parameter] = field(default_factory=dict)
    request_headers: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[int, str] = field(default_factory=dict)
    operation_id: str = ""
    writes: bool = False
    is_controlled: bool = False

    @property
    def is_administration(self) -> bool:
        """Whether the route always needs the token of administration routes."""
        return "unauthorized" in self.codes


def description_of(opt: Mapping[str, Any], method: str) -> Description | None:
    """Return what a Litestar handler declares about one of its methods in its `opt`; None for OPTIONS."""
    described = opt.get(DESCRIPTION)
    return described.get(method) if isinstance(described, Mapping) else described
