"""Cosigning: the checks of a witness before it cosigns, and what it remembers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from coregw.errors import InvalidInput, ProofError
from coregw.tlog.checkpoint import Checkpoint, parse_hash, parse_size
from coregw.tlog.note import COSIGNATURE, MAX_NOTE_BYTES, Note, Signer, VerifierKey
from coregw.tlog.tree import EMPTY_ROOT, verify_consistency
from coregw.trust.file import LockedFile
from coregw.undecodable import UNDECODABLE

__all__ = ["MAX_REQUEST_BYTES", "Refused", "Witness"]

_MAX_PROOF: Final = 63
MAX_REQUEST_BYTES: Final = MAX_NOTE_BYTES + (_MAX_PROOF + 2) * 64
"""The longest body of ``add-checkpoint``."""


class Refused(Exception):
    """A request that is not fulfilled.

    Attributes:
        status: The HTTP status.
        body: The body of the answer.
        media_type: Its type.
    """

    def __init__(self, status: int, body: str, media_type: str = "text/plain; charset=utf-8") -> None:
        super().__init__(body)
        self.status = status
        self.body = f"{body}\n"
        self.media_type = media_type


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The witness's file: the newest cosigned checkpoint of each log, as a note, by origin."""

    heads: dict[str, str] = {}


_DECODER: Final = msgspec.json.Decoder(_State)


class Witness:
    """Cosigns the checkpoints of known logs.

    It never cosigns two checkpoints of a log of which neither continues the other, also after a crash: what it is about
    to cosign is on disk first. Several processes may share the file.

    Args:
        file: Where the newest checkpoints are kept; created by the first one. Losing it loses this guarantee.
        signer: The witness's key, of the type of cosignatures.
        logs: The keys of the logs, named by their origins.
        clock: Returns the time in POSIX seconds.
    """

    def __init__(
        self, file: Path, signer: Signer, logs: Sequence[VerifierKey], clock: Callable[[], float] = time.time
    ) -> None:
        if signer.key.kind != COSIGNATURE:
            raise InvalidInput(f"the key {signer.key.name} is not of the type of witnesses")
        self._file = LockedFile(file)
        self._signer = signer
        self._logs = tuple(logs)
        self._clock = clock

    def add_checkpoint(self, body: bytes) -> str:
        """Return the line of the cosignature; it blocks for a sync.

        Raises:
            Refused: 400 if the request is malformed, 404 for an unknown log, 403 without a valid signature by it, 409
                if another size was cosigned last, 422 if the checkpoint does not continue it.
            OSError: The file cannot be written; nothing was cosigned.
        """
        old, proof, note, head = _parsed(body)
        keys = [key for key in self._logs if key.name == head.origin]
        if not keys:
            raise Refused(404, "unknown log")
        try:
            signed = [key.verify(note) for key in keys]
        except ProofError as error:
            raise Refused(403, error.message) from None
        if all(each is None for each in signed):
            raise Refused(403, "no signature by a key of the log")
        if old > head.size:
            raise Refused(400, f"old size {old} is above {head.size}")
        with self._file.locked():
            state = self._read()
            known = self._known(state, head.origin)
            if old != known.size:
                raise Refused(409, str(known.size), "text/x.tlog.size")
            try:
                verify_consistency(known.size, known.root, head.size, head.root, proof)
            except ProofError as error:
                raise Refused(422, error.message) from None
            logged = tuple(
                each for each in note.signatures if any((each.name, each.key_id) == (k.name, k.key_id) for k in keys)
            )
            cosigned = self._signer.sign(note.text, max(1, int(self._clock())))
            kept = Note(note.text, logged).with_signatures((cosigned,))
            heads = {**state.heads, head.origin: kept.encode()}
            self._file.replace(msgspec.json.format(msgspec.json.encode(_State(heads)), indent=1))
        return cosigned.line()

    def checkpoint(self, origin_hash: str) -> str:
        """Return the newest cosigned checkpoint of the log whose origin has this SHA-256 (hex). `Refused` without."""
        from hashlib import sha256  # noqa: PLC0415 - rarely asked for

        for origin, note in self._read().heads.items():
            if sha256(origin.encode()).hexdigest() == origin_hash:
                return note
        raise Refused(404, "no cosigned checkpoint of this log")

    def _read(self) -> _State:
        data = self._file.read()
        try:
            return _DECODER.decode(data) if data else _State()
        except UNDECODABLE as error:
            raise InvalidInput(f"{self._file.path}: not the state of a witness: {error}") from None

    def _known(self, state: _State, origin: str) -> Checkpoint:
        """Return what was cosigned last; at first, the empty tree."""
        held = state.heads.get(origin)
        return Checkpoint(origin, 0, EMPTY_ROOT) if held is None else Checkpoint.parse(Note.parse(held).text)


def _parsed(body: bytes) -> tuple[int, list[bytes], Note, Checkpoint]:
    """Parse the body of a request: old size, consistency proof, checkpoint."""
    try:
        if len(body) > MAX_REQUEST_BYTES:
            raise InvalidInput("the request is too long")
        lines, blank, rest = body.decode().partition("\n\n")
        first, *hashes = lines.split("\n")
        word, _, size = first.partition(" ")
        if word != "old" or not blank or len(hashes) > _MAX_PROOF:
            raise InvalidInput(f"expected an old size, up to {_MAX_PROOF} hashes, an empty line and a checkpoint")
        note = Note.parse(rest)
        proof = [parse_hash(each) for each in hashes]
        return parse_size(size), proof, note, Checkpoint.parse(note.text)
    except (InvalidInput, UnicodeDecodeError) as error:
        raise Refused(400, str(error)) from None
