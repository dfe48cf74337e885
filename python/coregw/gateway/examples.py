"""The examples of the OpenAPI document: requests, and what a new gateway answers them with, from ``examples.json``.

They are in the order in which they work. `tests/gateway/renew_document.py` sends the requests and writes the answers
down; a test sends them again. Leaves out where they stand in the document (`openapi`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = ["Example", "all_examples"]


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
