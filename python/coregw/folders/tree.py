"""The root of a folder, computed offline: its survey, its attributes, and the join of both.

Symbolic links are never followed, so a folder can't refer to files outside itself. File names become path segments
unchanged; a name that is not UTF-8 is an error, as the protocol has no other text.

The folder's map has the files; a second map, bound to `ATTRIBUTES_PATH` in it, has what is known of each path. Symbolic
links and empty folders are in the second one alone. `encode_attributes` and `decode_attributes` are its codec.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from coregw import _core
from coregw._core import Attributes, Cid, Survey, SurveyEntry, decode_attributes, encode_attributes, survey
from coregw.errors import InvalidInput, ProofError
from coregw.text import display_name

__all__ = [
    "ATTRIBUTES_PATH",
    "RESERVED_NAME",
    "Attributes",
    "FolderEntry",
    "HashedTree",
    "Level",
    "Recorded",
    "Skipped",
    "Survey",
    "SurveyEntry",
    "VerifiedTree",
    "attributes_root",
    "check_tree",
    "decode_attributes",
    "encode_attributes",
    "hash_survey",
    "hash_tree",
    "join_folder",
    "skipped_at",
    "survey",
    "unrecorded",
    "verify_tree",
]


class Skipped(NamedTuple):
    """A file or folder that is not added, and the reason."""

    file: Path
    why: str


Level = Literal["all", "whole", "no-times", "exec", "none"]
"""What a root records of each path beside its bytes: everything; everything, of the folder itself as well; all but
times; links and exec bits; nothing."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which attributes of a folder are part of its root (protocol section 7).

    Attributes:
        attributes: The level.
        owner: Whether the numeric ids of owner and group are recorded.
        xattrs: Whether extended attributes are recorded.

    Raises:
        InvalidInput: The level is another word; or owners or extended attributes are to be recorded at a level that
            records neither modes nor times.
    """

    attributes: Level = "all"
    owner: bool = False
    xattrs: bool = False

    def __post_init__(self) -> None:
        if self.attributes not in get_args(Level):
            raise InvalidInput(f"attributes: {self.attributes!r:.80} is not {', '.join(get_args(Level))}")
        if (self.owner or self.xattrs) and self.attributes in ("exec", "none"):
            raise InvalidInput(
                f"attributes: {self.attributes!r} records neither owners nor extended attributes: all and no-times do"
            )


ALL = Recorded()


@dataclass(frozen=True, slots=True)
class HashedTree:
    """The result of `hash_survey`.

    Attributes:
        root: The root of the folder's map.
        attributes: The root of the map of attributes; None if nothing is recorded.
        files: The number of files.
        bytes: Total size of all files.
        skipped: What was left out, and why.
    """

    root: str
    attributes: str | None
    files: int
    bytes: int
    skipped: list[Skipped]


def hash_survey(
    found: Survey,
    suite: str = "sha2-256",
    recorded: Recorded = ALL,
    progress: Callable[[int], object] | None = None,
) -> HashedTree:
    """Hash the files of a survey on all cores, and return the folder's root.

    O(bytes). Each core holds 2 MiB of a file in memory.

    Args:
        found: The files, links and folders.
        suite: The suite of the maps and of the lists: ``sha2-256`` or ``blake3``.
        recorded: Which attributes are part of the root.
        progress: Called with numbers of bytes that were hashed, from time to time.

    Raises:
        InvalidInput: The suite is unknown.
    """
    hashed = _core.hash_survey(found, suite, xattrs=recorded.xattrs, progress=progress)
    root, attributes = hashed.roots(recorded.attributes, recorded.owner)
    return HashedTree(root, attributes, hashed.files, hashed.bytes, skipped_at(hashed, recorded.attributes))


def skipped_at(hashed: _core.HashedFolder | _core.FolderUpload, level: Level) -> list[Skipped]:
    """Return what of a folder, and at the level ``whole`` of the folder itself, is not part of its root, and why."""
    top = hashed.top_skipped if level == "whole" else []
    return [Skipped(*each) for each in (*top, *hashed.skipped)]


def hash_tree(
    path: str | os.PathLike[str],
    suite: str = "sha2-256",
    *,
    attributes: Level = "all",
    owner: bool = False,
    xattrs: bool = False,
    exclude: Sequence[str] = (),
    gitignore: bool = False,
) -> str:
    """Return the root that ``coregw add`` gives a folder or a file, without a gateway.

    O(bytes), on all cores, with the GIL released. The root is that of the map of protocol section 7: from the paths of
    all regular files to their contents, and with a second map of symbolic links, modes, times, sizes and folders. A
    single file has its name as its path. Special files, and files that cannot be read, are left out, as by ``coregw
    add``; so are ``.git`` and what patterns exclude.

    Args:
        path: The folder or file.
        suite: The hash function of the trees: ``sha2-256`` or ``blake3``.
        attributes: What is recorded besides the bytes: ``all``; ``whole``, also of the folder itself;
            ``no-times``; ``exec``, only symbolic links and whether files are executable; or ``none``.
        owner: Whether the numeric ids of owner and group are recorded.
        xattrs: Whether extended attributes are recorded.
        exclude: Patterns of what is left out, in the syntax of ``.gitignore``, relative to `path`. They come before
            those of ``.coregwignore`` files.
        gitignore: Whether ``.gitignore`` files count as well.

    Raises:
        InvalidInput: A name is not UTF-8 or a path too long (code ``invalid_path``; the message names the file), a file
            of patterns cannot be read or parsed, `path` is neither a folder nor a regular file, or an argument is none
            of those above.
        OSError: `path` itself, or the single file, cannot be read.

    >>> import coregw, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "readme").write_bytes(b"hello")
    ...     root = coregw.hash_tree(folder, attributes="none")
    >>> root == coregw.Map({"readme": coregw.payload_cid(b"hello")}).root
    True
    """
    recorded = Recorded(attributes, owner, xattrs)
    hashed = _hashed(Path(path), survey(path, exclude, gitignore), suite, xattrs)
    return hashed.roots(recorded.attributes, recorded.owner)[0]


@dataclass(frozen=True, slots=True)
class VerifiedTree:
    """The result of `check_tree`.

    Attributes:
        level: The level of the root: what was compared beside paths and bytes.
        left_out: What was left out, without what is below it, and why.
    """

    level: Level
    left_out: list[Skipped]


def verify_tree(
    root: str | bytes | _core.Cid,
    path: str | os.PathLike[str],
    *,
    attributes: Level | None = None,
    owner: bool = False,
    xattrs: bool = False,
    exclude: Sequence[str] = (),
    gitignore: bool = False,
    as_added: bool = False,
) -> Level:
    """Check, without a gateway, that a folder or file is the one that a trusted root names.

    O(bytes), on all cores. The root commits to every path and its bytes, to there being no others, and to whatever else
    it records of what is in the folder; at the level ``whole``, to the folder's own mode and time, too. So everything
    that the folder has must be in the root, ``.git`` and special files included, and no file of the folder says
    otherwise: with `as_added`, what `hash_tree` leaves out need not be, but only by patterns in files that the root
    names with the bytes that they have.

    Args:
        root: The trusted root: a map's, as ``coregw add`` and `hash_tree` return it.
        path: The folder or file.
        attributes: What the root must record, as for `hash_tree`; by default, any of the levels.
        owner: As for `hash_tree`: whether the root records owners.
        xattrs: As for `hash_tree`: whether the root records extended attributes.
        exclude: Patterns of what need not be in the root, as for `hash_tree`.
        gitignore: Whether ``.gitignore`` files count as well; only with `as_added`.
        as_added: Whether ``.git``, special files, and what patterns in ``.coregwignore`` files exclude, need not be in
            the root.

    Returns:
        The level of the root: what was compared beside paths and bytes.

    Raises:
        ProofError: The folder has another root, or something in it can't be compared. The message says which, and what
            was skipped, and whether `as_added` would explain it.
        InvalidInput: `root` is not the root of a map (code ``kind_mismatch``), or as `hash_tree`; but names that are
            not UTF-8 are a ``ProofError``.
        OSError: As `hash_tree`.

    >>> import coregw, tempfile
    >>> root = coregw.Map({"readme": coregw.payload_cid(b"hello")}).root
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "readme").write_bytes(b"hello")
    ...     coregw.verify_tree(root, folder)
    'exec'
    """
    verified = check_tree(
        root,
        path,
        attributes=attributes,
        owner=owner,
        xattrs=xattrs,
        exclude=exclude,
        gitignore=gitignore,
        as_added=as_added,
    )
    return verified.level


def check_tree(
    root: str | bytes | _core.Cid,
    path: str | os.PathLike[str],
    *,
    attributes: Level | None = None,
    owner: bool = False,
    xattrs: bool = False,
    exclude: Sequence[str] = (),
    gitignore: bool = False,
    as_added: bool = False,
) -> VerifiedTree:
    """Verify a folder as `verify_tree` does, and return what was left out as well."""
    cid = _core.Cid(root)
    if cid.kind != "map" or cid.suite is None:
        raise InvalidInput(f"root: {cid.text} is not the root of a map", code="kind_mismatch")
    if gitignore and not as_added:
        raise InvalidInput("gitignore: only with as_added, since the folder's own files would say what is verified")
    levels = get_args(Level) if attributes is None else (attributes,)
    candidates = [Recorded(level, owner, xattrs) for level in levels if attributes or _fits(level, owner or xattrs)]
    top = Path(path)
    found = survey(top, exclude, gitignore, "as-added" if as_added else "strict")
    hashed = _hashed(top, found, cid.suite, xattrs)
    verified = _matched(cid, top, found, hashed, candidates, as_added=as_added)
    if verified is not None:
        return verified
    roots = _roots(hashed, candidates)
    wrong = skipped_at(hashed, roots.get(cid.text, "all"))
    if cid.text in roots:
        wrong = [*wrong, *_others(top, found, roots[cid.text])]
        message = f"{display_name(top)}: not all of it is in the root{_without(wrong)}"
    else:
        message = f"{display_name(top)} has the root {next(reversed(roots))}, not {cid.text}{_without(wrong)}"
    if not as_added and (explaining := _explaining(cid, top, exclude, candidates, hashed)):
        file, why = explaining[0]
        message += f"; as_added would verify it, without {display_name(file)} ({why})"
        message += f" and {len(explaining) - 1:,} more" if len(explaining) > 1 else ""
    raise ProofError(message, check="root")


def _matched(
    root: _core.Cid,
    top: Path,
    found: Survey,
    hashed: _core.HashedFolder,
    candidates: Sequence[Recorded],
    *,
    as_added: bool,
) -> VerifiedTree | None:
    """Return how a folder is verified, or None if it has another root, or something that the root does not have."""
    levels = (each.attributes for each in candidates if hashed.roots(each.attributes, each.owner)[0] == root.text)
    level = next(levels, None)
    if level is None or skipped_at(hashed, level):
        return None
    others = _others(top, found, level)
    if others and not as_added:
        return None
    return VerifiedTree(level, sorted([*(Skipped(*each) for each in found.left_out), *others]))


def _explaining(
    root: _core.Cid, top: Path, exclude: Sequence[str], candidates: Sequence[Recorded], hashed: _core.HashedFolder
) -> list[Skipped]:
    """Return what `as_added` leaves out if it verifies a folder whose files are `hashed`; nothing otherwise."""
    targets = {entry.path: (hashed.target(place), entry.size) for place, entry in enumerate(hashed)}
    for gitignore in (False, True):
        found = survey(top, exclude, gitignore, "as-added")
        known: dict[int, tuple[str, int]] = {}
        for place, entry in enumerate(found):
            target, size = targets.get(entry.path, (None, 0))
            if target is not None and entry.kind == "file":
                known[place] = target, size
        again = _core.hash_survey(found, root.suite or "", known, candidates[0].xattrs)
        if (verified := _matched(root, top, found, again, candidates, as_added=True)) is not None:
            return verified.left_out
    return []


def _others(top: Path, found: Survey, level: Level) -> list[Skipped]:
    return [
        Skipped(top / each.path, f"a {each.kind}, which the root does not record") for each in unrecorded(found, level)
    ]


def unrecorded(found: Survey, level: Level) -> Iterator[SurveyEntry]:
    """Yield what no root of a level names: symbolic links without attributes, and folders that nothing is in."""
    kinds = {"exec": ("folder",), "none": ("folder", "link")}.get(level, ())
    entries = iter(found) if kinds else iter(())
    before: SurveyEntry | None = None
    for entry in (*entries, None):
        is_above = before is not None and entry is not None and entry.path.startswith(f"{before.path}/")
        if before is not None and not is_above and before.kind in kinds:
            yield before
        before = entry


def _roots(hashed: _core.HashedFolder, candidates: Sequence[Recorded]) -> dict[str, Level]:
    """Return the root of a folder for each of several levels, the first of them last."""
    return {hashed.roots(each.attributes, each.owner)[0]: each.attributes for each in reversed(candidates)}


def _without(skipped: Sequence[tuple[Path, str]]) -> str:
    """Return which files have no part in a root, as the end of a message: one of them may be why it is another."""
    if not skipped:
        return ""
    file, why = min(skipped)
    more = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
    return f"; skipped {display_name(file)} ({why}){more}"


def _fits(level: str, records_more: bool) -> bool:
    return not records_more or level in ("all", "whole", "no-times")


def _hashed(path: Path, found: Survey, suite: str, xattrs: bool) -> _core.HashedFolder:
    hashed = _core.hash_survey(found, suite, xattrs=xattrs)
    if not hashed.files and hashed.skipped and not path.is_dir():
        raise OSError(f"{display_name(path)}: {hashed.skipped[0][1]}")
    return hashed


ATTRIBUTES_PATH = (".coregw", "attributes")
"""The reserved path of a folder's map whose target is the map of attributes."""

RESERVED_NAME = ".coregw"
"""A file or folder of this name in the top folder is never added. The map of attributes has the record of the folder
itself here."""


class FolderEntry(NamedTuple):
    """A path of a folder, and what is known of it.

    Attributes:
        segments: The path.
        kind: What it is; a ``map`` is a nested map, a folder with attributes of its own; ``other`` is what no root has.
        target: The target in the folder's map; None for a symbolic link or a folder.
        attributes: What is known of it; None if there is no record.
    """

    segments: tuple[str, ...]
    kind: Literal["file", "link", "folder", "map", "other"]
    target: str | None
    attributes: Attributes | None


def attributes_root(root: str | bytes | Cid, target: str | None) -> str | None:
    """Return the root of a folder's map of attributes, given the target at the reserved path of the folder's map.

    Args:
        root: The folder's root.
        target: The target of `ATTRIBUTES_PATH`, or None if that path is proven absent.

    Raises:
        InvalidInput: The target is not a map, or not of the suite of `root` (code ``kind_mismatch``).
    """
    if target is None:
        return None
    cid = Cid(target)
    if cid.kind != "map" or cid.suite != Cid(root).suite:
        raise InvalidInput(
            f"{'/'.join(ATTRIBUTES_PATH)}: {cid.text} is not a map of the folder's suite", code="kind_mismatch"
        )
    return cid.text


def join_folder(
    files: Iterable[tuple[Iterable[str], str]], records: Iterable[tuple[Iterable[str], Attributes]]
) -> Iterator[FolderEntry]:
    """Join the listings of a folder's two maps. Yields every path once, in key order. O(entries), O(depth) memory.

    Args:
        files: Paths and targets of the folder's map, in key order, as it is listed. The reserved path is left out.
        records: Paths and attributes of the map of attributes, in key order. That of the folder itself is left out.

    Raises:
        InvalidInput: A record contradicts the folder's map: a file's record without the file, another's with it, or
            something below a symbolic link (code ``invalid_path``). The message names the path.

    >>> link = decode_attributes(encode_attributes("link", link=b"go")[0])
    >>> [entry.kind for entry in join_folder([(["go"], "bafkqaaa")], [(["now"], link)])]
    ['file', 'link']
    """
    return map(FolderEntry._make, _core.join_folder(files, records))
