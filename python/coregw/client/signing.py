"""Signing what is published under a name: an operator's side of transparency logs (protocol section 9)."""

from __future__ import annotations

from collections.abc import Callable

from coregw.client.operations import publications
from coregw.client.operations.publications import VerifiedPublication
from coregw.client.settings import ClientSettings, ConnectionOptions
from coregw.client.sync import Client
from coregw.errors import Conflict, CoregwError, InvalidInput, ProofError
from coregw.tlog.checkpoint import Checkpoint, Policy, Witness, parse_size
from coregw.tlog.note import Note, Signature, Signer
from coregw.trust import TrustStore

__all__ = ["sign_published"]


def sign_published(
    client: Client,
    scope: str,
    name: str,
    signer: Signer,
    trust: TrustStore,
    *,
    policy: Policy | None = None,
    token: str | None = None,
    connection: ConnectionOptions | None = None,
    failed: Callable[[str, CoregwError], None] | None = None,
) -> VerifiedPublication:
    """Sign the head of a name's log, let witnesses cosign it, and publish it at the gateway.

    What is signed is proven to continue what this trust store knows to be signed last. It is remembered before it
    leaves this machine, so that a gateway never gets signatures of two histories.

    Args:
        client: A client of the gateway.
        scope: The scope of the name.
        name: The name.
        signer: The log's key; its name is the origin.
        trust: Remembers what was signed.
        policy: Its witnesses with URLs are asked to cosign, and its quorum must be reached. None asks nobody.
        token: The bearer token of the gateway's administration routes; None sends the client's own credentials.
        connection: How witnesses are reached.
        failed: Called with the name of a witness that did not cosign, and why.

    Returns:
        The newest revision, with the checkpoint as it is published.

    Raises:
        ProofError: The gateway's log does not continue what was signed before (check ``rollback`` or ``fork``); nothing
            was signed. Or too few witnesses cosigned (``witnesses``): repeat it; nothing was published.
        Conflict: Another process has signed meanwhile.
    """
    origin = signer.key.name
    held = trust.head(origin)
    before = held or _own_checkpoint(client, scope, name, signer)
    known = None if before is None else Checkpoint.parse(Note.parse(before).text)
    head, proof = client.run(publications.head_of_log(client.settings, scope, name, origin, known, token))
    note = Note(head.text(), (signer.sign(head.text()),))
    if before is not None and Note.parse(before).text == note.text:
        keys = [signer.key, *(each.key for each in (policy.witnesses if policy is not None else {}).values())]
        note = Note.parse(before).with_signatures(note.signatures, keys)
    if not trust.advance(origin, held, note.encode()):
        raise Conflict(f"sign {scope}/{name}: another process has signed the log meanwhile; nothing was published")
    held = note.encode()
    for witness_name, witness in (policy.witnesses if policy is not None else {}).items():
        if witness.url is not None and witness.key.verify(note) is None:
            try:
                note = _cosigned(client, (scope, name), note, witness, known, token, connection)
            except CoregwError as error:
                if failed is not None:
                    failed(witness_name, error)
    if policy is not None:
        policy.verify(note)
    trust.advance(origin, held, note.encode())
    client.run(publications.put_checkpoint(client.settings, scope, name, note, token))
    return VerifiedPublication(proof.record, head, note.encode())


def _own_checkpoint(client: Client, scope: str, name: str, signer: Signer) -> str | None:
    """Return what this key has signed before, as the gateway has it: for a machine that signs for the first time."""
    own = Policy((signer.key,), {}, {}, "none")
    try:
        return client.run(publications.verified(client.settings, scope, name, own, None)).note
    except ProofError as error:
        if error.check not in {"signature", "unsigned"}:
            raise
        return None


def _cosigned(
    client: Client,
    named: tuple[str, str],
    note: Note,
    witness: Witness,
    known: Checkpoint | None,
    token: str | None,
    connection: ConnectionOptions | None,
) -> Note:
    """Return the note with a verified cosignature of a witness."""
    head = Checkpoint.parse(note.text)
    old = 0 if known is None else known.size
    with Client(witness.url or "", ClientSettings(retry_seconds=5.0), connection or ConnectionOptions()) as asked:
        try:
            answer = _ask(client, asked, named, note, (old, head.size), token)
        except Conflict as error:
            if error.details is None:
                raise
            old = parse_size(error.details.decode("latin-1"))
            if old > head.size:
                raise InvalidInput(f"it has cosigned {old} leaves of {head.origin}: the log went back") from None
            answer = _ask(client, asked, named, note, (old, head.size), token)
    new = note.with_signatures(answer, [witness.key])
    if not witness.key.verify(new):
        raise ProofError("the answer has no cosignature by its key", check="witnesses")
    return new


def _ask(
    client: Client, asked: Client, named: tuple[str, str], note: Note, sizes: tuple[int, int], token: str | None
) -> tuple[Signature, ...]:
    """Send the checkpoint to a witness, with the proof that it continues the size that it knows."""
    proof = client.run(publications.consistency(client.settings, *named, *sizes, token))
    return asked.run(publications.add_checkpoint(asked.settings, note, sizes[0], proof))
