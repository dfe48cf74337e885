"""Verification of a published name's revision against a checkpoint (protocol section 9)."""

from __future__ import annotations

from msgspec import UNSET

from coregw._core import Cid
from coregw.errors import InvalidInput, ProofError
from coregw.messages.publication import PublicationProof
from coregw.messages.record import PublishedRecord
from coregw.tlog.checkpoint import Checkpoint, decode_hashes
from coregw.tlog.entry import freeze_entry, publication_entry
from coregw.tlog.tree import verify_consistency, verify_inclusion

__all__ = ["record_roots", "verify_publication"]


def verify_publication(
    scope: str, name: str, answer: PublicationProof, head: Checkpoint, before: Checkpoint | None, revision: int | None
) -> PublishedRecord:
    """Return the record of an answer if the tree of a checkpoint has it, and continues an earlier one. O(log n).

    Args:
        scope: The scope that was asked for.
        name: The name that was asked for.
        answer: The gateway's answer.
        head: The checkpoint, whose signatures are verified.
        before: The newest checkpoint that was verified before; None if this is the first one.
        revision: The revision that was asked for, from 1; None is the newest of the tree.

    Raises:
        ProofError: The tree is older than the one before (check ``rollback``) or does not continue it (``fork``), or
            the record is not in it (``inclusion``), or is not the newest one in it (``newest``).
    """
    record = answer.record
    what = f"{scope}/{name}"
    try:
        if before is not None:
            _check_continues(head, before, answer)
        if (record.scope, record.name) != (scope, name) or revision not in (None, record.revision):
            said = f"{record.scope}/{record.name}, revision {record.revision}"
            raise ProofError(f"the answer is {said}", check="answer")
        if revision is None:
            _check_newest(head, answer)
        verify_inclusion(_entry(record), record.revision - 1, head.size, head.root, decode_hashes(answer.inclusion))
        _check_frozen(head, answer)
    except InvalidInput as error:
        raise ProofError(f"{what}: {error.message}", check="answer") from None
    except ProofError as error:
        raise ProofError(f"{what}: {error.message}", check=error.check) from None
    return record


def _check_continues(head: Checkpoint, before: Checkpoint, answer: PublicationProof) -> None:
    if head.origin != before.origin:
        raise ProofError(f"the checkpoint is of {head.origin!r:.200}, not of {before.origin!r:.200}", check="fork")
    verify_consistency(before.size, before.root, head.size, head.root, decode_hashes(answer.consistency))


def _check_newest(head: Checkpoint, answer: PublicationProof) -> None:
    """Check that no other publication follows: the last leaf is this revision, or its freeze."""
    leaves = answer.record.revision + (answer.freeze is not UNSET)
    if leaves != head.size:
        raise ProofError(
            f"revision {answer.record.revision} is not the newest one of {head.size} leaves", check="newest"
        )


def _check_frozen(head: Checkpoint, answer: PublicationProof) -> None:
    record = answer.record
    if record.frozen != (answer.freeze is not UNSET) or record.frozen != (record.frozen_at is not UNSET):
        raise ProofError("whether it is frozen is not proven", check="freeze")
    if answer.freeze is not UNSET and record.frozen_at is not UNSET:
        entry = freeze_entry(record.scope, record.name, record.revision, record.frozen_at)
        if head.size != record.revision + 1:
            raise ProofError("a freeze that is not the last leaf", check="freeze")
        verify_inclusion(entry, record.revision, head.size, head.root, decode_hashes(answer.freeze))


def _entry(record: PublishedRecord) -> bytes:
    """Return the bytes of a record's leaf."""
    root, previous = record_roots(record)
    return publication_entry(record.scope, record.name, record.revision, root, previous, record.published_at)


def record_roots(record: PublishedRecord) -> tuple[bytes, bytes | None]:
    """Return the root and the previous root of a record in binary.

    Raises:
        InvalidInput: One of them is not a CID in lower-case base32, in which gateways write them.
    """
    return _binary(record.root), None if record.previous_root is None else _binary(record.previous_root)


def _binary(text: str) -> bytes:
    cid = Cid(text)
    if cid.text != text:
        raise InvalidInput(f"the root {text!r:.100} of a record is not in lower-case base32", code="invalid_cid")
    return bytes(cid)
