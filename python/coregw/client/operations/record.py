"""Published names (``/admin/v1/scopes/{scope}/roots/{name}``). They are what an operator says: nothing proves them."""

from __future__ import annotations

import re

from coregw.client.exchange import Answer, Call, decode
from coregw.client.operations.steps import Steps
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, ProofError
from coregw.messages.record import PublishedRecord

__all__ = ["check_name", "published"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def published(settings: ClientSettings, scope: str, name: str) -> Steps[PublishedRecord]:
    """Return what is published under a name: for example, the root that is the current one for its publisher.

    A static tree answers everybody, a gateway only on its management addresses or with a token.

    Raises:
        InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``.
        RecordNotFound: Nothing is published under the name.
        ProofError: The answer is not the record of this name.
    """
    check_name(scope, name)
    path = f"/admin/v1/scopes/{scope}/roots/{name}"
    call = Call("GET", path, settings.max_result_bytes, f"look up {scope}/{name}")
    answer: Answer = yield call
    record = decode(call, answer, PublishedRecord)
    if (record.scope, record.name) != (scope, name):
        raise ProofError(f"{call.what}: the answer is the record of {record.scope}/{record.name}", check="answer")
    return record


def check_name(scope: str, name: str) -> None:
    """Raise `InvalidInput` if a scope or name can't be part of the path of a record."""
    for what, value in (("scope", scope), ("name", name)):
        if not _NAME.fullmatch(value) or value in (".", ".."):
            raise InvalidInput(f"{what} {value!r:.200}: expected 1 to 128 of A-Z a-z 0-9 . _ -, not . or ..")
