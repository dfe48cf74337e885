"""Checkpoints, the policy that says whose signatures count, the leaves of a log, and the proof of a publication."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec import UNSET

from coregw._core import Cid, check_integer
from coregw.errors import InvalidInput, ProofError
from coregw.messages.management import PublishedRecord
from coregw.messages.query import PublicationProof
from coregw.tlog.note import COSIGNATURE, Note, VerifierKey, decode_base64
from coregw.tlog.tree import EMPTY_ROOT, HASH_BYTES, MAX_SIZE, verify_consistency, verify_inclusion

__all__ = [
    "MAX_POLICY_BYTES",
    "Checkpoint",
    "Policy",
    "Witness",
    "decode_hashes",
    "encode_hashes",
    "freeze_entry",
    "parse_hash",
    "parse_size",
    "publication_entry",
    "record_roots",
    "verify_publication",
]

_SIZE: Final = re.compile("0|[1-9][0-9]{0,15}")

_MAX_PROOF: Final = 63


class Checkpoint(NamedTuple):
    """A tree head.

    Attributes:
        origin: The name of the log.
        size: The number of leaves.
        root: The root hash.
    """

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parse the text of a note. Extension lines are allowed and ignored. Raises `InvalidInput`."""
        lines = text.split("\n")
        if not text.endswith("\n") or len(lines) < 4 or not all(lines[:-1]):
            raise InvalidInput("checkpoint: expected lines with an origin, a size and a root hash")
        found = cls(lines[0], parse_size(lines[1]), parse_hash(lines[2]))
        if found.size == 0 and found.root != EMPTY_ROOT:
            raise InvalidInput("checkpoint: the root hash is not that of an empty tree")
        return found

    def text(self) -> str:
        """Return the text of the note. Raises `TypeError` if the size is not an int."""
        return f"{self.origin}\n{check_integer(self.size, 'size')}\n{base64.b64encode(self.root).decode()}\n"


def parse_size(text: str) -> int:
    """Parse a number of leaves in decimal. Raises `InvalidInput`."""
    if _SIZE.fullmatch(text) is None or int(text) > MAX_SIZE:
        raise InvalidInput(f"checkpoint: size {text!r:.50}: expected a decimal number below 2^53")
    return int(text)


def parse_hash(text: str) -> bytes:
    """Parse a hash in base64. Raises `InvalidInput`."""
    found = decode_base64(text)
    if len(found) != HASH_BYTES:
        raise InvalidInput(f"hash {text!r:.100}: expected the base64 of {HASH_BYTES} bytes")
    return found


def encode_hashes(hashes: list[bytes]) -> list[str]:
    """Return hashes in base64."""
    return [base64.b64encode(each).decode() for each in hashes]


def decode_hashes(texts: list[str]) -> list[bytes]:
    """Return the hashes of a proof; at most 63. Raises `InvalidInput`."""
    if len(texts) > _MAX_PROOF:
        raise InvalidInput(f"proof: more than {_MAX_PROOF} hashes")
    return [parse_hash(each) for each in texts]


_PUBLICATION: Final = b"\x01"

_FREEZE: Final = b"\x02"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def publication_entry(
    scope: str, name: str, revision: int, root: bytes, previous_root: bytes | None, published_at: datetime
) -> bytes:
    """Return the bytes of the leaf ``revision - 1`` of a name's log.

    Args:
        scope: The scope.
        name: The name.
        revision: The revision, from 1.
        root: The binary root CID.
        previous_root: That of the revision before; None for the first.
        published_at: When it was published; to the microsecond.

    Raises:
        InvalidInput: The time is before 1970, or has no offset from UTC; or `revision` is less than 1.
        TypeError: `revision` is not an int.
    """
    head = _head(_PUBLICATION, scope, name, revision)
    return head + _counted(root) + _counted(previous_root or b"") + _time(published_at)


def freeze_entry(scope: str, name: str, revision: int, frozen_at: datetime) -> bytes:
    """Return the bytes of the last leaf of a frozen name's log, number `revision`. Raises as `publication_entry`."""
    return _head(_FREEZE, scope, name, revision) + _time(frozen_at)


def _head(kind: bytes, scope: str, name: str, revision: int) -> bytes:
    return kind + _counted(scope.encode()) + _counted(name.encode()) + _varint(check_integer(revision, "revision", 1))


def _counted(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _time(moment: datetime) -> bytes:
    if moment.tzinfo is None:
        raise InvalidInput(f"the time {moment.isoformat()} has no offset from UTC")
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    if microseconds < 0:
        raise InvalidInput(f"the time {moment.isoformat()} is before 1970")
    return microseconds.to_bytes(8, "big")


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
        TypeError: `revision` is not an int.
        ProofError: The tree is older than the one before (check ``rollback``) or does not continue it (``fork``), or
            the record is not in it (``inclusion``), or is not the newest one in it (``newest``).
    """
    record = answer.record
    what = f"{scope}/{name}"
    if revision is not None:
        revision = check_integer(revision, "revision")
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


MAX_POLICY_BYTES: Final = 64 << 10

_MAX_LINES: Final = 1000

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_NUMBER: Final = re.compile("[1-9][0-9]{0,3}")


class Witness(NamedTuple):
    """A witness: its key, and the URL where it takes checkpoints, if any."""

    key: VerifierKey
    url: str | None


class _Group(NamedTuple):
    threshold: int
    members: tuple[str, ...]


class Policy:
    """Which logs are known, and which witnesses must have cosigned their checkpoints.

    Attributes:
        logs: The keys of the logs; one whose origin it is has to sign a checkpoint.
        witnesses: The witnesses by the policy's names for them.
    """

    def __init__(
        self, logs: tuple[VerifierKey, ...], witnesses: dict[str, Witness], groups: dict[str, _Group], quorum: str
    ) -> None:
        """Made by `parse`."""
        self.logs = logs
        self.witnesses = witnesses
        self._groups = groups
        self._quorum = quorum

    @property
    def origin(self) -> str:
        """The origin of the only log. `InvalidInput` if there is none, or several."""
        names = {key.name for key in self.logs}
        if len(names) != 1:
            raise InvalidInput(f"policy: it has {len(names)} logs; to verify a name, exactly one is needed")
        return names.pop()

    @classmethod
    def parse(cls, data: str | bytes) -> Policy:
        """Parse a policy file of at most `MAX_POLICY_BYTES`. Raises `InvalidInput`, which names the line.

        A file in octets need not be UTF-8: comments, names and URLs may hold any of 80 to FF, which mean nothing here.
        """
        octets = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        text = octets.decode("utf-8", "surrogateescape")
        if len(octets) > MAX_POLICY_BYTES or text.count("\n") > _MAX_LINES:
            raise InvalidInput(
                f"policy: more than {MAX_POLICY_BYTES:,} bytes or {_MAX_LINES:,} lines", code="too_large"
            )
        parser = _Parser()
        for number, line in enumerate(text.split("\n"), 1):
            words = [word for word in line.replace("\t", " ").split(" ") if word]
            try:
                if _CONTROL.search(line):
                    raise InvalidInput("a control character")
                if words and not words[0].startswith("#"):
                    parser.line(words)
            except InvalidInput as error:
                raise InvalidInput(f"policy, line {number}: {error.message}") from None
        if parser.quorum is None:
            raise InvalidInput("policy: no quorum line")
        return cls(tuple(parser.logs), parser.witnesses, parser.groups, parser.quorum)

    def verify(self, note: Note) -> Checkpoint:
        """Return the checkpoint of a note that meets the policy. O(signatures).

        Raises:
            ProofError: No known log signed it (check ``signature``), a signature by a known key is wrong, or too few
                witnesses cosigned it (check ``witnesses``).
        """
        try:
            found = Checkpoint.parse(note.text)
        except InvalidInput as error:
            raise ProofError(error.message, check="checkpoint") from None
        signed = [key.verify(note) for key in self.logs if key.name == found.origin]
        if not any(each is not None for each in signed):
            raise ProofError(f"checkpoint of {found.origin!r:.200}: no known log has signed it", check="signature")
        if not self.is_witnessed(note):
            raise ProofError(
                f"checkpoint of {found.origin!r:.200} at size {found.size}: too few witnesses have cosigned it "
                f"(quorum {self._quorum})",
                check="witnesses",
            )
        return found

    def is_witnessed(self, note: Note) -> bool:
        """Return whether the quorum has cosigned a note. Raises `ProofError` if a known cosignature is wrong."""
        if self._quorum == "none":
            return True
        met = {name: bool(each.key.verify(note)) for name, each in self.witnesses.items()}
        for name, group in self._groups.items():  # members precede their groups
            met[name] = sum(met[member] for member in group.members) >= group.threshold
        return met[self._quorum]


class _Parser:
    """Takes a policy's lines in order."""

    def __init__(self) -> None:
        self.logs: list[VerifierKey] = []
        self.witnesses: dict[str, Witness] = {}
        self.groups: dict[str, _Group] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()
        self._keys: set[tuple[int, bytes]] = set()

    def line(self, words: list[str]) -> None:
        """Take one line. Raises `InvalidInput`."""
        match words:
            case ["log", key] | ["log", key, _]:
                self.logs.append(self._key(key, is_witness=False))
            case ["witness", name, key] | ["witness", name, key, _]:
                self._new(name)
                self.witnesses[name] = Witness(self._key(key, is_witness=True), words[3] if len(words) == 4 else None)
            case ["group", name, threshold, *members] if members:
                self._new(name)
                self._group(name, threshold, members)
            case ["quorum", name]:
                if self.quorum is not None:
                    raise InvalidInput("a second quorum")
                if name != "none":
                    self._known(name)
                self.quorum = name
            case _:
                raise InvalidInput("expected log, witness, group or quorum, each with its words")

    def _group(self, name: str, threshold: str, members: list[str]) -> None:
        for member in members:
            self._known(member)
            if member in self._members:
                raise InvalidInput(f"{member!r:.100} is a member twice")
            self._members.add(member)
        least = {"all": len(members), "any": 1}.get(threshold)
        if least is None:
            least = int(threshold) if _NUMBER.fullmatch(threshold) else 0
        if not 1 <= least <= len(members):
            raise InvalidInput(f"{threshold!r:.100}: expected all, any or a number from 1 to {len(members)}")
        self.groups[name] = _Group(least, tuple(members))

    def _key(self, text: str, *, is_witness: bool) -> VerifierKey:
        key = VerifierKey.parse(text)
        if (key.kind == COSIGNATURE) != is_witness:
            raise InvalidInput(f"the key {key.name} is not of the type of {'witnesses' if is_witness else 'logs'}")
        if (key.kind, key.public) in self._keys:
            raise InvalidInput(f"the public key of {key.name} is there twice")
        self._keys.add((key.kind, key.public))
        return key

    def _new(self, name: str) -> None:
        if name == "none" or name in self.witnesses or name in self.groups:
            raise InvalidInput(f"the name {name!r:.100} is taken")

    def _known(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise InvalidInput(f"{name!r:.100} is not defined before this line")
