"""Published names (``/admin/v1/scopes/{scope}/roots``). They are what an operator says: nothing proves them."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final, TypeVar

from coregw._core import Cid
from coregw.client.exchange import Answer, Call, decode
from coregw.client.operations.steps import Item, Steps, Stream
from coregw.client.query import CidLike, encode
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, ProofError, TooLarge
from coregw.messages.record import PublishedRecord, PublishedRecords, PublishRequest, RecordHistory

__all__ = ["check_name", "history_of_scope", "publish", "published"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SCOPES: Final = "/admin/v1/scopes"

Page = TypeVar("Page", PublishedRecords, RecordHistory)


def published(settings: ClientSettings, scope: str, name: str, token: str | None = None) -> Steps[PublishedRecord]:
    """Return what is published under a name: for example, the root that is the current one for its publisher.

    A static tree answers everybody, a gateway only on its management addresses or with a token.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        token: The bearer token of the gateway's administration routes.

    Raises:
        InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``.
        RecordNotFound: Nothing is published under the name.
        ProofError: The answer is not the record of this name.
    """
    check_name(scope, name)
    path = f"{_SCOPES}/{scope}/roots/{name}"
    call = Call("GET", path, settings.max_result_bytes, f"look up {scope}/{name}", token=token)
    answer: Answer = yield call
    return _record(call, answer, scope, name)


def publish(
    settings: ClientSettings, scope: str, name: str, root: CidLike, token: str, expected_revision: int
) -> Steps[PublishedRecord]:
    """Publish a root under a name, if the newest revision is the expected one; 0 is none.

    Raises:
        InvalidInput: `scope`, `name` or `root` is malformed.
        Unauthorized: The token is wrong, or the gateway has no administration routes.
        RootNotFound: The gateway does not hold the root.
        Conflict: The newest revision is another, or the name is frozen.
        ProofError: The answer is not the record of this name and root.
    """
    check_name(scope, name)
    text = Cid(root).text
    content = encode(PublishRequest(name=name, root=text, expected_revision=expected_revision))
    path, what = f"{_SCOPES}/{scope}/roots", f"publish {text} as {scope}/{name}"
    call = Call("POST", path, settings.max_result_bytes, what, content=content, token=token)
    answer: Answer = yield call
    record = _record(call, answer, scope, name)
    if record.root != text:
        raise ProofError(f"{what}: the gateway published {record.root:.200}", check="answer")
    return record


def _record(call: Call, answer: Answer, scope: str, name: str) -> PublishedRecord:
    record = decode(call, answer, PublishedRecord)
    if (record.scope, record.name) != (scope, name):
        raise ProofError(f"{call.what}: the answer is the record of {record.scope}/{record.name}", check="answer")
    return record


def history_of_scope(settings: ClientSettings, scope: str, token: str) -> Stream[PublishedRecord]:
    """Yield every revision of every name of a scope: names in byte order, the revisions of each oldest first.

    Args:
        settings: The client's.
        scope: The scope.
        token: The bearer token of the gateway's administration routes.

    Raises:
        InvalidInput: `scope` is malformed.
        Unauthorized: The token is wrong, or the gateway has no administration routes.
        ProofError: An answer is malformed, or its pages are not in order.
        TooLarge: There are more than `ClientSettings.max_entries` revisions.
    """
    check_name(scope)
    records = f"{_SCOPES}/{scope}/roots"
    left = settings.max_entries
    last = ""
    while True:
        names = yield from _page(settings, records, token, last, PublishedRecords)
        for name in names.records:
            check_name(scope, name.name)
            left = yield from _history(settings, f"{records}/{name.name}/history", token, left)
        if not isinstance(names.next, str):
            return
        _require_order(records, names.next > last)
        last = names.next


def _history(
    settings: ClientSettings, path: str, token: str, left: int
) -> Generator[Call | Item[PublishedRecord], Any, int]:
    """Yield the revisions of a name, and return how many more there may be of others."""
    last = 0
    while True:
        page = yield from _page(settings, path, token, str(last or ""), RecordHistory)
        for record in page.records:
            left -= 1
            if left < 0:
                raise TooLarge(f"list {path}: more than {settings.max_entries:,} revisions")
            yield Item(record)
        if not isinstance(page.next, int):
            return left
        _require_order(path, page.next > last)
        last = page.next


def _page(
    settings: ClientSettings, path: str, token: str, after: str, kind: type[Page]
) -> Generator[Call | Item[PublishedRecord], Any, Page]:
    params = {"after": after} if after else {}
    call = Call("GET", path, settings.max_result_bytes, f"list {path}", params=params, token=token)
    answer: Answer = yield call
    return decode(call, answer, kind)


def _require_order(path: str, is_next_greater: bool) -> None:
    if not is_next_greater:
        raise ProofError(f"list {path}: the next page does not follow this one", check="answer")


def check_name(scope: str, *names: str) -> None:
    """Raise `InvalidInput` if a scope or name can't be part of the path of a record."""
    for what, value in (("scope", scope), *(("name", name) for name in names)):
        if not _NAME.fullmatch(value) or value in (".", ".."):
            raise InvalidInput(f"{what} {value!r:.200}: expected 1 to 128 of A-Z a-z 0-9 . _ -, not . or ..")
