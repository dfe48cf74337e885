"""The examples of the OpenAPI document: requests and a new gateway's responses, from ``examples.json``.

They are in an order in which they work. ``tests/documented.py`` sends the requests and records the responses; a test
replays them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = ["Example", "all_examples"]


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request, and the response that it gets from a new gateway after all earlier examples.

    Attributes:
        operation: The operation's id.
        name: Its name among the operation's examples.
        about: What it shows, in a line.
        parameters: Values of path, query and header parameters.
        body: The JSON body of the request, if any.
        text: The body of the request, if it is not JSON.
        status: The status of the response.
        answer: The JSON body of the response, if any.
        answer_text: The body of the response, if it is not JSON.
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
        """The body of the response."""
        return self.answer if self.answer is not UNSET else self.answer_text if self.answer_text is not UNSET else None

    @property
    def code(self) -> str | None:
        """The error code of the response; None for a success."""
        if self.status < 400 or self.answer is UNSET:
            return None
        error: str = msgspec.json.decode(self.answer)["error"]
        return error

    def document(self, value: object) -> dict[str, Any]:
        """Return an example object of OpenAPI."""
        return {"summary": self.about, "value": value}


@cache
def all_examples() -> tuple[Example, ...]:
    """Return all examples in the order in which they work."""
    text = (files("coregw.gateway.docs") / "examples.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Example, ...])
