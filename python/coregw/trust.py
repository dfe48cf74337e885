"""State that a client trusts: names of accepted roots, and the publications and tree heads that it saw last.

The trust store keeps it in one file, a JSON document that is read strictly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from coregw._core import Cid, check_integer
from coregw.durability import replace_durably
from coregw.errors import InvalidInput, ProofError, Unavailable
from coregw.extras import missing_extra
from coregw.messages.common import is_name
from coregw.undecodable import UNDECODABLE

try:
    import msgspec
    from msgspec import Meta
    from msgspec.structs import replace
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.trust", "client") from None

__all__ = ["PATH_VARIABLE", "AcceptedRoot", "Followed", "TrustStore", "TrustedName", "default_path", "is_cid"]

MAX_NAMES: Final = 10_000
"""The maximum number of names, of publications and of tree heads in a trust store."""

MAX_HISTORY: Final = 1_000
"""The maximum number of accepted roots that are remembered for a name; the oldest ones are dropped."""

_MAX_REVISION: Final = (1 << 53) - 1
"""The greatest revision, as in the messages of a gateway."""

_Revision = Annotated[int, Meta(ge=1, le=_MAX_REVISION)]


class AcceptedRoot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A root that was accepted for a name.

    Attributes:
        root: Its CID.
        accepted_at: When; in UTC.
        revision: The revision as which it was published; None if it was not looked up under a published name.
        forced: Whether it was accepted although that was a rollback.
    """

    root: str
    accepted_at: datetime
    revision: _Revision | None = None
    forced: bool = False


class Followed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The published name from which new roots of a trusted name come.

    Attributes:
        scope: Its scope.
        name: Its name there.
        policy: The text of the policy that its tree heads must meet; None if the gateway is believed.
    """

    scope: str
    name: str
    policy: str | None = None


class TrustedName(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A name and the roots that were accepted for it.

    Attributes:
        history: The accepted roots, oldest first; at least one. The last one is what the name stands for.
        follows: Where new roots are looked up; None if they are only given by hand.
    """

    history: Annotated[list[AcceptedRoot], Meta(min_length=1, max_length=MAX_HISTORY)]
    follows: Followed | None = None

    @property
    def root(self) -> str:
        """What the name stands for."""
        return self.history[-1].root


class SeenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The newest revision of a published name that was seen at one source."""

    revision: _Revision
    root: str
    frozen: bool = False


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file.

    Attributes:
        version: The version of this form.
        names: The trusted names.
        seen: Published revisions by source, scope and name, see `coregw.trust.TrustStore.observe`.
        heads: The newest verified checkpoint of each transparency log, as a signed note, by origin.
    """

    version: Literal[1]
    names: Annotated[dict[str, TrustedName], Meta(max_length=MAX_NAMES)] = {}
    seen: Annotated[dict[str, SeenRecord], Meta(max_length=MAX_NAMES)] = {}
    heads: Annotated[dict[str, str], Meta(max_length=MAX_NAMES)] = {}


_DECODER: Final = msgspec.json.Decoder(Document)


def decode_document(data: bytes, place: str) -> Document:
    """Decode the bytes of a file; none are an empty document. `InvalidInput` names the place."""
    if not data:
        return Document(version=1)
    try:
        found = _DECODER.decode(data)
        for name in found.names.values():
            for each in name.history:
                Cid(each.root)
    except (*UNDECODABLE, InvalidInput) as error:
        raise InvalidInput(f"{place}: not a trust store: {error}") from None
    return found


def encode_document(document: Document) -> bytes:
    """Encode a document, indented for people."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"


PATH_VARIABLE: Final = "COREGW_TRUST"
"""The environment variable with the path of the default store."""


_MAX_FILE_BYTES: Final = 16 << 20

_LOCK_SECONDS: Final = 30.0
"""How long a change waits for those of other processes."""

T = TypeVar("T")


def default_path() -> Path:
    """Return the path of the user's trust store: `PATH_VARIABLE`, else ``trust.json`` in the platform's data folder."""
    given = os.environ.get(PATH_VARIABLE)
    if given:
        return Path(given)
    from platformdirs import user_data_path  # noqa: PLC0415 - a fast start without names

    return user_data_path("coregw", appauthor=False) / "trust.json"


class TrustStore:
    """Names that stand for accepted roots, in a file which any number of processes may use.

    No gateway's answer changes what a name stands for: only `trust`, `accept` and `forget` do. A change is durable when
    it returns. The file is private to its user (mode 0600), and checked strictly whenever it is read.

    Args:
        path: The file; None is `default_path`. It is created by the first change.

    Example::

        >>> import coregw, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = coregw.TrustStore(f"{folder.name}/trust.json")
        >>> first, second = coregw.Map({"a": coregw.payload_cid(b"1")}).root, coregw.Map({}).root
        >>> store.trust("docs", first)
        >>> store.accept("docs", second)
        >>> store.root("docs") == second
        True
        >>> store.accept("docs", first)
        Traceback (most recent call last):
        ...
        coregw.errors.ProofError: docs: ... was accepted before ...: a rollback
        >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._file = _LockedFile(default_path() if path is None else Path(path))

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    # --- names --------------------------------------------------------------------------------------------------------

    def root(self, name: str) -> str:
        """Return the root that a name stands for. Reads the file: O(its size).

        Raises:
            InvalidInput: There is no such name, or the file is malformed.
            OSError: The file cannot be read.
        """
        return self.name(name).root

    def name(self, name: str) -> TrustedName:
        """Return a name with its history. Raises as `root`."""
        return self._existing(self._read(), name)

    def names(self) -> Mapping[str, TrustedName]:
        """Return all names in order, with their histories."""
        return dict(sorted(self._read().names.items()))

    def trust(self, name: str, root: str, *, revision: int | None = None, follows: Followed | None = None) -> None:
        """Add a name for a root that the caller trusts.

        Args:
            name: 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, the first neither ``.`` nor ``-``; not a CID.
            root: The CID of a map or list.
            revision: The revision as which it is published, from 1.
            follows: Where later roots are looked up.

        Raises:
            InvalidInput: The name is malformed or taken by another root, `root` is not a root, or `revision` is less
                than 1.
            TypeError: `revision` is not an int.
        """
        _check_name(name)
        accepted = _accepted(root, revision)

        def add(document: Document) -> Document:
            held = document.names.get(name)
            if held is not None:
                if (held.root, held.follows) == (accepted.root, follows):
                    return document
                raise InvalidInput(f"{name}: stands for {held.root} already; accept another root, or forget it first")
            return replace(document, names={**document.names, name: TrustedName([accepted], follows)})

        self._change(add)

    def accept(self, name: str, root: str, *, revision: int | None = None, force: bool = False) -> None:
        """Let a name stand for another root from now on. The same root again changes nothing.

        Args:
            name: The name.
            root: The CID of a map or list.
            revision: The revision as which it is published, from 1; None if it was not looked up.
            force: Whether a rollback is accepted, too.

        Raises:
            InvalidInput: There is no such name, `root` is not a root, or `revision` is less than 1.
            TypeError: `revision` is not an int.
            ProofError: It is a rollback (check ``rollback``): `revision` is older than that of an accepted root, or the
                root is one that was replaced before, and `revision` is not newer than all that were accepted. Or
                another root was accepted as the same revision (check ``fork``). Nothing was changed.
        """
        accepted = _accepted(root, revision)

        def add(document: Document) -> Document:
            held = self._existing(document, name)
            last = held.history[-1]
            if last.root == accepted.root and accepted.revision in (None, last.revision):
                return document
            refusal = _refusal(name, held, accepted)
            if refusal is not None and not force:
                raise refusal
            new = replace(accepted, forced=refusal is not None)
            history = [*held.history, new][-MAX_HISTORY:]
            return replace(document, names={**document.names, name: replace(held, history=history)})

        self._change(add)

    def forget(self, name: str) -> None:
        """Remove a name with its history. What was seen of published names stays. `InvalidInput` if it is absent."""

        def remove(document: Document) -> Document:
            self._existing(document, name)
            return replace(document, names={key: each for key, each in document.names.items() if key != name})

        self._change(remove)

    # --- publications -------------------------------------------------------------------------------------------------

    def observe(
        self, source: str, scope: str, name: str, revision: int, root: str, *, frozen: bool = False, force: bool = False
    ) -> None:
        """Remember what a gateway says of a published name, and refuse what contradicts an earlier answer.

        No name in this store changes.

        Args:
            source: Who counts the revisions: the gateway's address, or the origin of a transparency log.
            scope: The scope of the published name.
            name: Its name.
            revision: The newest revision, from 1.
            root: The CID that is published.
            frozen: Whether it is frozen.
            force: Whether what contradicts an earlier answer replaces it.

        Raises:
            InvalidInput: `root` is not a CID, or `revision` is less than 1.
            TypeError: `revision` is not an int.
            ProofError: An older revision than one that was seen (check ``rollback``), another root for the same one, or
                a change after a freeze (check ``fork``).
        """
        revision = check_integer(revision, "revision", 1)
        key = f"{source} {scope}/{name}"
        new = SeenRecord(revision, Cid(root).text, frozen)
        held = self._read().seen.get(key)
        if held == new:
            return

        def note(document: Document) -> Document:
            held = document.seen.get(key)
            if held is not None and not force:
                _check_newer(f"{source}: {scope}/{name}", held, new)
            return replace(document, seen={**document.seen, key: new})

        self._change(note)

    def seen(self, source: str, scope: str, name: str) -> SeenRecord | None:
        """Return the newest revision of a published name that was seen at a source; None if none was."""
        return self._read().seen.get(f"{source} {scope}/{name}")

    # --- transparency logs --------------------------------------------------------------------------------------------

    def head(self, origin: str) -> str | None:
        """Return the newest verified checkpoint of a log, as a signed note; None if none is known."""
        return self._read().heads.get(origin)

    def advance(self, origin: str, expected: str | None, note: str) -> bool:
        """Remember a checkpoint of a log, which the caller has verified against the expected one.

        Args:
            origin: The log.
            expected: What `head` has returned.
            note: The new checkpoint.

        Returns:
            False if another process has remembered another one meanwhile; nothing was changed.
        """
        if note == expected:
            return self.head(origin) == expected
        done = False

        def set_head(document: Document) -> Document:
            nonlocal done
            done = document.heads.get(origin) == expected
            return replace(document, heads={**document.heads, origin: note}) if done else document

        self._change(set_head)
        return done

    # --- the file -----------------------------------------------------------------------------------------------------

    def _read(self) -> Document:
        return decode_document(self._file.read(), str(self.path))

    def _change(self, change: Callable[[Document], Document]) -> None:
        """Replace the document by what `change` makes of it, under the lock; nothing is written if it is the same."""
        with self._file.locked():
            before = self._read()
            after = change(before)
            if after is before:
                return
            for what in ("names", "seen", "heads"):
                if len(getattr(after, what)) > MAX_NAMES:
                    raise InvalidInput(f"{self.path}: more than {MAX_NAMES:,} {what}; nothing was changed")
            self._file.replace(encode_document(after))

    def _existing(self, document: Document, name: str) -> TrustedName:
        found = document.names.get(name)
        if found is None:
            raise InvalidInput(f"{name!r:.200} is not a name in {self.path}")
        return found


def _check_name(name: str) -> None:
    if not is_name(name) or name[0] in ".-":
        raise InvalidInput(f"name {name!r:.200}: expected 1 to 128 of A-Z a-z 0-9 . _ -, the first not . or -")
    if is_cid(name):
        raise InvalidInput(f"name {name!r:.200}: it is a CID")


def is_cid(text: str) -> bool:
    """Whether a text is a CID, which no name is. O(length)."""
    try:
        Cid(text)
    except InvalidInput:
        return False
    return True


def _accepted(root: str, revision: int | None) -> AcceptedRoot:
    cid = Cid(root)
    if cid.kind == "cas":
        raise InvalidInput(f"{cid.text} is a payload; only the root of a map or a list can be trusted")
    if revision is not None:
        revision = check_integer(revision, "revision", 1)
    return AcceptedRoot(cid.text, datetime.now(UTC), revision)


def _refusal(name: str, held: TrustedName, new: AcceptedRoot) -> ProofError | None:
    """Return why a root is not accepted without force; None if it is."""
    if new.revision is not None:
        newest = max(each.revision or 0 for each in held.history)
        if new.revision < newest:
            return ProofError(
                f"{name}: revision {new.revision} is older than the accepted {newest}: a rollback", check="rollback"
            )
        for each in held.history:
            if each.revision == new.revision and each.root != new.root:
                return ProofError(
                    f"{name}: revision {new.revision} is {new.root}, but {each.root} was accepted as it: a fork",
                    check="fork",
                )
        if new.revision > newest > 0:
            return None  # a root may be published again
    if new.root == held.root:
        return None
    for each in held.history:
        if each.root == new.root:
            return ProofError(
                f"{name}: {new.root} was accepted before {held.root}, at {each.accepted_at:%Y-%m-%d %H:%M}: a rollback",
                check="rollback",
            )
    return None


def _check_newer(what: str, held: SeenRecord, new: SeenRecord) -> None:
    """Raise `ProofError` if a record contradicts one that was seen."""
    if new.revision < held.revision:
        raise ProofError(f"{what}: revision {new.revision}, but {held.revision} was seen: a rollback", check="rollback")
    if new.revision == held.revision and new.root != held.root:
        raise ProofError(
            f"{what}: revision {new.revision} is {new.root}, but was {held.root} when it was seen: a fork", check="fork"
        )
    if held.frozen and (new.revision > held.revision or not new.frozen):
        raise ProofError(f"{what}: it was frozen at revision {held.revision}: a fork", check="fork")


class _LockedFile:
    """A file of at most `_MAX_FILE_BYTES`, with a lock beside it (``.lock``).

    Readers take no lock: they see the file before or after a change, never a part of it. A replacement is durable when
    it returns: the new bytes are synced, renamed over the old ones, and the directory is synced.

    Args:
        path: The file. A symbolic link is followed, so that the file may be kept elsewhere.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def read(self) -> bytes:
        """Return the bytes, none if there is no file.

        Raises:
            InvalidInput: The file is too large.
            OSError: It cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return b""
        if len(data) > _MAX_FILE_BYTES:
            raise InvalidInput(f"{self.path}: larger than {_MAX_FILE_BYTES:,} bytes")
        return data

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes and threads from changing the file. Not reentrant across instances.

        Raises:
            Unavailable: Others have held the lock for `_LOCK_SECONDS`.
            OSError: The directory cannot be created or written.
        """
        try:
            from filelock import FileLock, Timeout  # noqa: PLC0415 - readers start faster without
        except ModuleNotFoundError as error:
            raise missing_extra(error, "changing a trust store", "client") from error
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            raise Unavailable(f"{self.path}: another process has kept it locked for {_LOCK_SECONDS:g} s") from None
        try:
            yield
        finally:
            lock.release()

    def replace(self, data: bytes) -> None:
        """Replace the bytes, durably; call it within `locked`. After a crash the file has the old or the new bytes.

        Raises:
            InvalidInput: There are too many bytes; nothing was changed.
            OSError: They cannot be written; nothing was changed.
        """
        if len(data) > _MAX_FILE_BYTES:
            raise InvalidInput(f"{self.path}: it would be larger than {_MAX_FILE_BYTES:,} bytes; nothing was changed")
        replace_durably(self.path, data)
