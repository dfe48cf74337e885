"""Published names (``/admin/v1/scopes/{scope}/roots``). They are what an operator says: nothing proves them."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final, TypeVar

from coregw._core import Cid
from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.steps import Item, Steps, Stream
from coregw.client.query import CidLike, encode
from coregw.client.settings import ClientSettings
from coregw.errors import Conflict, InvalidInput, ProofError, RecordNotFound, TooLarge
from coregw.messages.record import PublishedRecord, PublishedRecords, PublishRequest, RecordHistory
from coregw.text import printable
from coregw.tlog.proof import record_roots

__all__ = [
    "check_name",
    "freeze",
    "history_of_scope",
    "newest",
    "publish",
    "publish_next",
    "require_name",
]

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_SCOPES: Final = "/admin/v1/scopes"

Page = TypeVar("Page", PublishedRecords, RecordHistory)


def newest(settings: ClientSettings, scope: str, name: str, token: str | None = None) -> Steps[PublishedRecord]:
    """Return the newest revision of a name from the administration routes, whether it is signed or not.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        token: The bearer token of the gateway's administration routes; None sends the client's own credentials.

    Raises:
        InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, or is ``.`` or ``..``.
        RecordNotFound: Nothing is published under the name.
        Unauthorized: The token is wrong.
        ProofError: The answer is not the record of this name.
    """
    check_name(scope, name)
    path = f"{_SCOPES}/{scope}/roots/{name}"
    call = Call("GET", path, settings.max_result_bytes, f"look up {scope}/{name}", token=token)
    answer: Answer = yield call
    return require_name(call, decode(call, answer, PublishedRecord), scope, name)


def publish(
    settings: ClientSettings, scope: str, name: str, root: CidLike, token: str | None, expected_revision: int
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
    record = require_name(call, decode(call, answer, PublishedRecord), scope, name)
    if record.root != text:
        raise ProofError(f"{what}: the gateway published {printable(record.root, 200)}", check="answer")
    return record


def publish_next(
    settings: ClientSettings, scope: str, name: str, root: CidLike, token: str | None = None
) -> Steps[PublishedRecord]:
    """Publish a root as the revision that follows the newest one, whichever that is.

    It is conditional on the revision that was found, so that a repetition after a lost answer publishes nothing twice.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        root: The CID of a map or list that the gateway holds.
        token: The bearer token of the gateway's administration routes; None sends the client's own credentials.

    Raises:
        Conflict: Somebody else publishes under the name at the same time, or it is frozen. Otherwise as `publish`.
    """
    try:
        before = (yield from newest(settings, scope, name, token)).revision
    except RecordNotFound:
        before = 0
    try:
        return (yield from publish(settings, scope, name, root, token, before))
    except Conflict:
        after = yield from newest(settings, scope, name, token)
        if (after.revision, after.root) != (before + 1, Cid(root).text):
            raise
        return after


def freeze(settings: ClientSettings, scope: str, name: str, token: str | None = None) -> Steps[PublishedRecord]:
    """Freeze what is published under a name for good. Idempotent.

    Raises:
        InvalidInput: `scope` or `name` is malformed.
        Unauthorized: The token is wrong, or the gateway has no administration routes.
        RecordNotFound: Nothing is published under the name.
        ProofError: The answer is not the frozen record of this name.
    """
    check_name(scope, name)
    path, what = f"{_SCOPES}/{scope}/roots/{name}/freeze", f"freeze {scope}/{name}"
    call = Call("POST", path, settings.max_result_bytes, what, token=token)
    answer: Answer = yield call
    record = require_name(call, decode(call, answer, PublishedRecord), scope, name)
    if not record.frozen:
        raise ProofError(f"{what}: the gateway did not freeze it", check="answer")
    return record


def require_name(call: Call, record: PublishedRecord, scope: str, name: str) -> PublishedRecord:
    """Return the record of an answer. Raises `ProofError` if it is that of another name than the call asked for."""
    if (record.scope, record.name) != (scope, name):
        said = printable(f"{record.scope}/{record.name}", 300)
        raise ProofError(f"{call.what}: the answer is the record of {said}", check="answer")
    _require_roots(call.what, record)
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
        ProofError: An answer is malformed, has a record of another name, or its pages are not in order.
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
            left = yield from _history(settings, scope, name.name, token, left)
        if not isinstance(names.next, str):
            return
        _require_order(records, bool(names.records) and names.next > last)
        last = names.next


def _history(
    settings: ClientSettings, scope: str, name: str, token: str, left: int
) -> Generator[Call | Item[PublishedRecord], Any, int]:
    """Yield the revisions of a name, and return how many more there may be of others."""
    path = f"{_SCOPES}/{scope}/roots/{name}/history"
    last = 0
    while True:
        page = yield from _page(settings, path, token, str(last or ""), RecordHistory)
        for record in page.records:
            if (record.scope, record.name) != (scope, name):
                said = printable(f"{record.scope}/{record.name}", 300)
                raise ProofError(f"list {path}: the answer has a record of {said}", check="answer")
            _require_roots(f"list {path}", record)
            left -= 1
            if left < 0:
                raise TooLarge(f"list {path}: more than {settings.max_entries:,} revisions")
            yield Item(record)
        if not page.records:  # of such answers there might be no end
            raise ProofError(f"list {path}: a page without revisions", check="answer")
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


def _require_roots(what: str, record: PublishedRecord) -> None:
    """Raise `ProofError` unless the roots of a record are in lower-case base32, which bounds the record's size."""
    try:
        record_roots(record)
    except InvalidInput as error:
        raise ProofError(f"{what}: {error.message}", check="answer") from None


def _require_order(path: str, is_next_greater: bool) -> None:
    if not is_next_greater:
        raise ProofError(f"list {path}: the next page does not follow this one", check="answer")


def check_name(scope: str, *names: str) -> None:
    """Raise `InvalidInput` if a scope or name can't be part of the path of a record."""
    for what, value in (("scope", scope), *(("name", name) for name in names)):
        if not _NAME.fullmatch(value) or value in (".", ".."):
            raise InvalidInput(f"{what} {value!r:.200}: expected 1 to 128 of A-Z a-z 0-9 . _ -, not . or ..")
