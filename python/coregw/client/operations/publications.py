"""Published names: their records, and their verified log."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET, Struct, UnsetType

from coregw._core import Cid, check_integer
from coregw.client.operations.steps import Steps, Stream, StreamItem
from coregw.client.query import encode
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Call, decode
from coregw.errors import Conflict, InvalidInput, NotFound, ProofError, RecordNotFound, TooLarge
from coregw.messages.common import check_names
from coregw.messages.management import PublishedRecord, PublishedRecords, PublishRequest, RecordHistory
from coregw.messages.query import PublicationProof, SignedCheckpoint, UnsignedPublication
from coregw.text import printable
from coregw.tlog.checkpoint import Checkpoint, Policy, record_roots, verify_publication
from coregw.tlog.note import MAX_NOTE_BYTES, Note, Signature, parse_signatures
from coregw.tlog.tree import EMPTY_ROOT
from coregw.verify import CidLike

__all__ = [
    "Policy",
    "VerifiedPublication",
    "add_checkpoint",
    "consistency",
    "decode_publication",
    "freeze",
    "head_of_log",
    "history_of_scope",
    "newest",
    "publish",
    "publish_next",
    "published",
    "put_checkpoint",
    "require_name",
    "verified",
]

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
    check_names(scope, name)
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
    check_names(scope, name)
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
    """Steps of `AsyncPublications.publish`, which describes arguments and errors."""
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
    """Steps of `AsyncPublications.freeze`, which describes arguments and errors."""
    check_names(scope, name)
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
    """Steps of `AsyncClient.history_of_scope`, which describes arguments and errors."""
    check_names(scope)
    records = f"{_SCOPES}/{scope}/roots"
    left = settings.max_entries
    last = ""
    while True:
        names = yield from _page(settings, records, token, last, PublishedRecords)
        for name in names.records:
            check_names(scope, name.name)
            left = yield from _history(settings, scope, name.name, token, left)
        if not isinstance(names.next, str):
            return
        _require_order(records, bool(names.records) and names.next > last)
        last = names.next


def _history(
    settings: ClientSettings, scope: str, name: str, token: str, left: int
) -> Generator[Call | StreamItem[PublishedRecord], Any, int]:
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
            yield StreamItem(record)
        if not page.records:  # of such answers there might be no end
            raise ProofError(f"list {path}: a page without revisions", check="answer")
        if not isinstance(page.next, int):
            return left
        _require_order(path, page.next > last)
        last = page.next


def _page(
    settings: ClientSettings, path: str, token: str, after: str, kind: type[Page]
) -> Generator[Call | StreamItem[PublishedRecord], Any, Page]:
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


_MAX_ANSWER_BYTES: Final = 1 << 20


class VerifiedPublication(NamedTuple):
    """A published revision that is proven by a signed log.

    Attributes:
        record: The revision.
        checkpoint: The tree head.
        note: The signed note with it.
    """

    record: PublishedRecord
    checkpoint: Checkpoint
    note: str


def verified(
    settings: ClientSettings, scope: str, name: str, policy: Policy, before: str | None, revision: int | None = None
) -> Steps[VerifiedPublication]:
    """Steps of `AsyncPublications.verified`, which describes arguments and errors.

    `before` is the newest checkpoint that was verified before, as a signed note; None for the first time.
    """
    check_names(scope, name)
    if revision is not None:
        revision = check_integer(revision, "revision", 1)
    known = None if before is None else Checkpoint.parse(Note.parse(before).text)
    params = {"old": str(known.size if known is not None else 0)}
    if revision is not None:
        params["revision"] = str(revision)
    what = f"verify {scope}/{name}"
    call = Call("GET", _path(scope, name), _MAX_ANSWER_BYTES, what, params=params)
    answer: Answer = yield call
    found = decode_publication(call, answer)
    if isinstance(found, UnsignedPublication):
        raise ProofError(f"{what}: the gateway has no signed checkpoint of it", check="unsigned")
    if found.checkpoint is UNSET:
        raise ProofError(f"{what}: the answer has no checkpoint", check="answer")
    try:
        note = Note.parse(found.checkpoint)
        head = policy.verify(note)
        record = verify_publication(scope, name, found, head, known, revision)
    except InvalidInput as error:
        raise ProofError(f"{what}: {error.message}", check="answer") from None
    except ProofError as error:
        evidence = encode({"seen": before, "answer": found.checkpoint}) if error.check in {"fork", "rollback"} else None
        raise ProofError(f"{what}: {error.message}", check=error.check, details=evidence) from None
    return VerifiedPublication(record, head, note.encode())


class _Marked(Struct):
    """The member that tells an unsigned publication from a proof."""

    status: str | UnsetType = UNSET


def decode_publication(call: Call, answer: Answer) -> PublicationProof | UnsignedPublication:
    """Return the answer to ``GET /v1/publications/{scope}/{name}``; nothing in it is verified.

    Raises:
        ProofError: It is neither of the two.
    """
    if decode(call, answer, _Marked).status is UNSET:
        return decode(call, answer, PublicationProof)
    return decode(call, answer, UnsignedPublication)


def published(settings: ClientSettings, scope: str, name: str, token: str | None = None) -> Steps[PublishedRecord]:
    """Steps of `AsyncPublications.get`, which describes arguments and errors."""
    if token is not None:
        try:
            return (yield from newest(settings, scope, name, token))
        except NotFound as error:  # the address, or a proxy, serves no administration
            if error.code != "route_not_found":
                raise
    check_names(scope, name)
    call = Call("GET", _path(scope, name), _MAX_ANSWER_BYTES, f"look up {scope}/{name}")
    answer: Answer = yield call
    return require_name(call, decode_publication(call, answer).record, scope, name)


def head_of_log(
    settings: ClientSettings, scope: str, name: str, origin: str, before: Checkpoint | None, token: str | None
) -> Steps[tuple[Checkpoint, PublicationProof]]:
    """Return the head of a name's whole log, for an operator to sign it: it is proven to continue an earlier one.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        origin: The origin of the log.
        before: What was signed before; None if nothing was.
        token: The bearer token of the gateway's administration routes; None sends the client's own credentials.

    Raises:
        ProofError: As `verified`.
        Unauthorized: The token is wrong, or the gateway has no administration routes.
    """
    old = before if before is not None else Checkpoint(origin, 0, EMPTY_ROOT)
    call, found = yield from _proof(settings, scope, name, old.size, None, token)
    try:
        head = Checkpoint.parse(f"{origin}\n{found.size}\n{found.root_hash}\n")
    except InvalidInput as error:
        raise ProofError(f"{call.what}: {error.message}", check="answer") from None
    verify_publication(scope, name, found, head, old, None)
    return head, found


def add_checkpoint(settings: ClientSettings, note: Note, old: int, proof: list[str]) -> Steps[tuple[Signature, ...]]:
    """Send a checkpoint to a witness (c2sp.org/tlog-witness), and return the signatures of its answer, not verified.

    Args:
        settings: The client's settings.
        note: The signed checkpoint.
        old: The size that the witness has cosigned last.
        proof: The consistency proof from that size, in base64.

    Raises:
        Conflict: The witness has cosigned another size; ``details`` is it in decimal.
        ProofError: The answer has no signature lines.
    """
    body = "".join([f"old {old}\n", *(f"{each}\n" for each in proof), "\n", note.encode()]).encode()
    limit = min(MAX_NOTE_BYTES, settings.max_result_bytes)
    call = Call("POST", "/add-checkpoint", limit, "add a checkpoint", content=body, content_type="text/plain")
    answer: Answer = yield call
    try:
        return parse_signatures(answer.body.decode())
    except (InvalidInput, UnicodeDecodeError):
        raise ProofError(f"{call.what}: the answer has no signature lines", check="answer") from None


def consistency(
    settings: ClientSettings, scope: str, name: str, old: int, size: int, token: str | None
) -> Steps[list[str]]:
    """Return a consistency proof of two sizes in base64, not verified: a witness does that. Raises as `head_of_log`."""
    _, found = yield from _proof(settings, scope, name, old, size, token)
    return found.consistency


def put_checkpoint(settings: ClientSettings, scope: str, name: str, note: Note, token: str | None) -> Steps[None]:
    """Publish a signed checkpoint of a name's log at the gateway. Idempotent.

    Raises:
        Conflict: The gateway has a newer one, or another log (code ``checkpoint_mismatch``).
        Unauthorized: The token is wrong, or the gateway has no administration routes.
    """
    check_names(scope, name)
    path = f"/admin/v1/scopes/{scope}/roots/{name}/checkpoint"
    content = encode(SignedCheckpoint(checkpoint=note.encode()))
    call = Call("POST", path, _MAX_ANSWER_BYTES, f"sign {scope}/{name}", content=content, token=token)
    answer: Answer = yield call
    decode(call, answer, PublicationProof)


def _path(scope: str, name: str) -> str:
    return f"/v1/publications/{scope}/{name}"


def _proof(
    settings: ClientSettings, scope: str, name: str, old: int, size: int | None, token: str | None
) -> Steps[tuple[Call, PublicationProof]]:
    check_names(scope, name)
    path = f"/admin/v1/scopes/{scope}/roots/{name}/proof"
    params = {"old": str(old)} | ({} if size is None else {"size": str(size)})
    limit = min(_MAX_ANSWER_BYTES, settings.max_result_bytes)
    call = Call("GET", path, limit, f"prove {scope}/{name}", params=params, token=token)
    answer: Answer = yield call
    return call, decode(call, answer, PublicationProof)
