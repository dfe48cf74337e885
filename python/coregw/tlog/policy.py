"""Trust policies (c2sp.org/tlog-policy): whose signature, and how many cosignatures, a checkpoint needs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from coregw.errors import InvalidInput, ProofError
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.note import COSIGNATURE, Note, VerifierKey

__all__ = ["MAX_POLICY_BYTES", "Policy", "Witness"]

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
