"""Publications that are verified by the signed log of their name, and what an operator signs (protocol section 9)."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.record import check_name, newest, require_name
from coregw.client.operations.steps import Steps
from coregw.client.query import encode
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, NotFound, ProofError
from coregw.messages.publication import PublicationProof, SignedCheckpoint, UnsignedPublication
from coregw.messages.record import PublishedRecord
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.note import MAX_NOTE_BYTES, Note, Signature, parse_signatures
from coregw.tlog.policy import Policy
from coregw.tlog.proof import verify_publication
from coregw.tlog.tree import EMPTY_ROOT

__all__ = [
    "VerifiedPublication",
    "add_checkpoint",
    "consistency",
    "decode_publication",
    "head_of_log",
    "published",
    "put_checkpoint",
    "verified",
]

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
    """Return a revision of a published name, verified by the name's log. One request, of O(log n) bytes.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        policy: Whose signatures the log's checkpoints must have.
        before: The newest checkpoint that was verified before, as a signed note; None for the first time.
        revision: The revision, from 1; None is the newest one.

    Raises:
        InvalidInput: `scope` or `name` is malformed, or `revision` is less than 1.
        RecordNotFound: Nothing is published under the name, as the gateway says.
        ProofError: The gateway has no checkpoint of the name (check ``unsigned``), or one that does not meet the policy
            (``signature`` or ``witnesses``), is older than the one before (``rollback``) or contradicts it (``fork``;
            the details have both notes), or the revision is not proven to be in it, or to be its newest one.
    """
    check_name(scope, name)
    if revision is not None and revision < 1:
        raise InvalidInput(f"revision {revision}: revisions count from 1")
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
    """Return what is published under a name, as the gateway says: of a signed name, the newest revision that is signed.

    With a token it is the newest revision in any case, as `coregw.client.operations.record.newest` returns it, unless
    the address serves no administration.

    Args:
        settings: The client's settings.
        scope: The scope of the name.
        name: The name.
        token: The bearer token of the gateway's administration routes.

    Raises:
        InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, or is ``.`` or ``..``.
        RecordNotFound: Nothing is published under the name.
        Unauthorized: The token is wrong.
        ProofError: The answer is not the record of this name.
    """
    if token is not None:
        try:
            return (yield from newest(settings, scope, name, token))
        except NotFound as error:  # the address, or a proxy, serves no administration
            if error.code != "route_not_found":
                raise
    check_name(scope, name)
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
    check_name(scope, name)
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
    check_name(scope, name)
    path = f"/admin/v1/scopes/{scope}/roots/{name}/proof"
    params = {"old": str(old)} | ({} if size is None else {"size": str(size)})
    limit = min(_MAX_ANSWER_BYTES, settings.max_result_bytes)
    call = Call("GET", path, limit, f"prove {scope}/{name}", params=params, token=token)
    answer: Answer = yield call
    return call, decode(call, answer, PublicationProof)
