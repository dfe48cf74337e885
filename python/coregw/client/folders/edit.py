"""Changing single files and folders of a root: put, remove, move. Both maps of a folder change together (section 7).

Each function returns a candidate root, derived locally from the changes. The root that it started from stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

from coregw._core import Cid, Map, encode_attributes
from coregw.client.folders.names import check_new_path
from coregw.client.folders.paths import decoded_record, folder_record, folder_tree
from coregw.client.sync import Client
from coregw.errors import Conflict, InvalidInput, PathNotFound
from coregw.folders.tree import ATTRIBUTES_PATH, RESERVED_NAME, FolderEntry, attributes_root
from coregw.text import printable

__all__ = ["change_folder", "is_folder", "move_path", "put_tree", "remove_paths"]

Path = tuple[str, ...]
Targets = Mapping[Path, str | None]
"""What paths are bound to; None for what is removed."""

_MAX_CHANGES: Final = 16_384
"""Changes of a map in one request; more make intermediate roots."""


def change_folder(client: Client, root: str, files: Targets, records: Targets) -> str:
    """Bind and remove paths of a folder's two maps, and return the new root. O(changes x depth).

    Args:
        client: The client.
        root: The folder's root.
        files: Targets of files, and of nested maps.
        records: Targets of attributes; without a path, of the folder itself. Removing what has none changes nothing.

    Raises:
        InvalidInput: A path is reserved, or bound though it can't be that of a file, such as ``a/..``; or the folder's
            attributes are not a map of its suite.
        PathNotFound: A file that is removed is proven to be absent.
        ProofError: An answer is not proven.
    """
    for path in (*files, *records):
        if path[:1] == (RESERVED_NAME,):
            raise InvalidInput(f"{_shown(path)}: {RESERVED_NAME} is reserved", code="invalid_path")
        if path and (files.get(path) is not None or records.get(path) is not None):
            check_new_path(path)
    (target,) = client.prove_keys(root, [ATTRIBUTES_PATH])
    known = attributes_root(root, target)
    suite = Cid(root).suite or "sha2-256"
    new: dict[Path, str | None] = dict(files)
    records = {path or (RESERVED_NAME,): target for path, target in records.items()}
    after = _changed_records(client, known, suite, records)
    if after != known:
        new[ATTRIBUTES_PATH] = after
    return _updated(client, root, new)


def put_tree(client: Client, root: str, path: Sequence[str], added: str, *, name: str | None = None) -> str:
    """Bind what another root has to a path of a folder, and return the new root. What is there is replaced or kept.

    If a whole folder is put, what is recorded of that folder itself is recorded of the path.

    Args:
        client: The client.
        root: The folder's root.
        path: Where to; not empty unless a whole folder is put.
        added: The root of what is put, of the same suite, held by the gateway.
        name: The name of the file in `added` that is put at `path` itself; None puts its whole tree below `path`.

    Raises:
        Conflict: A folder would replace a file or a link, or the other way round. Nothing is changed.
        InvalidInput: A path is reserved, or below something that is not a folder; or `added` has nothing to put.
        ProofError: An answer is not proven.
    """
    base = tuple(path)
    _check_parents(client, root, base)
    existing = {entry.segments: entry.kind for entry in folder_tree(client, root, base)}
    folders = {each[:length] for each in existing for length in range(len(base), len(each))}
    files: dict[Path, str | None] = {}
    records: dict[Path, str | None] = {}
    own = folder_record(client, added, ()) if name is None and existing.get(base) != "map" else None
    top = [FolderEntry((), "folder", None, own)] if own is not None else []
    for entry in (*top, *folder_tree(client, added)):
        if name is not None and entry.segments != (name,):
            continue
        at = base if name is not None else base + entry.segments
        was = existing.get(at, "folder" if at in folders else None)
        if was is not None and (was in ("folder", "map")) != (entry.kind in ("folder", "map")):
            raise Conflict(f"{_shown(at)} is a {was}, and would become a {entry.kind}")
        for length in range(len(base), len(at)):
            if existing.get(at[:length], "folder") not in ("folder", "map"):
                raise Conflict(f"{_shown(at[:length])} is a {existing[at[:length]]}, and would become a folder")
        if entry.target is not None or was in ("file", "map"):
            files[at] = entry.target
        if entry.attributes is not None or was is not None:
            records[at] = None if entry.attributes is None else encode_attributes(*entry.attributes)[0]
    if not files and not records:
        what = "it is an empty folder" if name is None else f"it has no {printable(name)}"
        raise InvalidInput(f"{added}: nothing to put at {_shown(base)!r}: {what}", code="invalid_path")
    return change_folder(client, root, files, records)


def remove_paths(client: Client, root: str, paths: Iterable[Sequence[str]], *, recursive: bool = False) -> str:
    """Remove files, links and folders of a folder, and return the new root. O(what is removed x depth).

    Args:
        client: The client.
        root: The folder's root.
        paths: What to remove.
        recursive: Whether folders are removed, with all that is below them.

    Raises:
        InvalidInput: A path is a folder or a nested map, and `recursive` is False.
        PathNotFound: A path is neither a file nor a folder.
        ProofError: An answer is not proven.
    """
    files: dict[Path, str | None] = {}
    records: dict[Path, str | None] = {}
    for path in paths:
        entries = _entries(client, root, path)
        if not recursive and not (len(entries) == 1 and entries[0].kind in ("file", "link")):
            raise InvalidInput(f"{_shown(path)} is a folder: remove it with --recursive", code="kind_mismatch")
        for entry in entries:
            if entry.target is not None:
                files[entry.segments] = None
            if entry.attributes is not None:
                records[entry.segments] = None
    return change_folder(client, root, files, records)


def move_path(client: Client, root: str, old: Sequence[str], new: Sequence[str]) -> str:
    """Move a file, a link or a folder to another path, and return the new root. O(what is moved x depth).

    Args:
        client: The client.
        root: The folder's root.
        old: What is moved.
        new: Where to. If that is a folder, into it, under its own name. A file or link there is replaced.

    Raises:
        Conflict: There is a folder of that name in the folder `new`, or a folder would replace a file.
        InvalidInput: A folder would be moved into itself, or `new` is below something that is not a folder.
        PathNotFound: There is nothing at `old`.
        ProofError: An answer is not proven.
    """
    source, place = tuple(old), tuple(new)
    entries = _entries(client, root, source)
    is_folder = not (len(entries) == 1 and entries[0].kind in ("file", "link"))
    there = [*folder_tree(client, root, place)]
    if _is_folder(there, place):
        place = (*place, source[-1])
        there = [entry for entry in there if entry.segments[: len(place)] == place]
    if place == source:
        raise InvalidInput(f"{_shown(source)} already exists", code="invalid_path")
    if place[: len(source)] == source:
        raise InvalidInput(f"{_shown(source)} can't be moved into itself", code="invalid_path")
    if there and (is_folder or _is_folder(there, place)):
        raise Conflict(f"{_shown(place)} already exists")
    _check_parents(client, root, place)
    files: dict[Path, str | None] = {}
    records: dict[Path, str | None] = {}
    for entry in there:  # one file or link
        records[entry.segments] = None
        if entry.target is not None:
            files[entry.segments] = None
    for entry in entries:
        at = place + entry.segments[len(source) :]
        if entry.target is not None:
            files[entry.segments], files[at] = None, entry.target
        if entry.attributes is not None:
            records[entry.segments], records[at] = None, encode_attributes(*entry.attributes)[0]
    return change_folder(client, root, files, records)


def is_folder(client: Client, root: str, path: Sequence[str]) -> bool:
    """Return whether a path of a folder is a folder or a nested map. O(depth).

    Raises:
        ProofError: An answer is not proven.
    """
    first = next(iter(folder_tree(client, root, path)), None)
    return first is not None and _is_folder([first], tuple(path))


def _entries(client: Client, root: str, path: Sequence[str]) -> list[FolderEntry]:
    """Return what is at and below a path, which is proven to be complete."""
    entries = [*folder_tree(client, root, path)] if path else []
    if not entries:
        _check_parents(client, root, path)
        raise PathNotFound(f"{_shown(path)}: there is no such file or folder")
    return entries


def _is_folder(entries: Sequence[FolderEntry], path: Path) -> bool:
    """Whether a path is a folder or a nested map, given what is at and below it."""
    return bool(entries) and (entries[0].segments != path or entries[0].kind in ("folder", "map"))


def _check_parents(client: Client, root: str, path: Sequence[str]) -> None:
    """Raise `InvalidInput` if something above a path is a file, a link, or a nested map."""
    above = [tuple(path[:length]) for length in range(1, len(path))]
    if not above:
        return
    for at, target in zip(above, client.prove_keys(root, above), strict=True):
        if target is not None:
            what = "a nested map, whose root has to be changed" if Cid(target).kind == "map" else "a file"
            _refuse_parent(at, what)
    (known,) = client.prove_keys(root, [ATTRIBUTES_PATH])
    records = attributes_root(root, known)
    if records is None:
        return
    for at, target in zip(above, client.prove_keys(records, above), strict=True):
        if target is not None and decoded_record(client, target).kind == "link":
            _refuse_parent(at, "a symbolic link")


def _refuse_parent(path: Path, what: str) -> NoReturn:
    raise InvalidInput(f"{_shown(path)} is {what}", code="invalid_path")


def _changed_records(client: Client, known: str | None, suite: str, records: Targets) -> str | None:
    """Return the map of attributes after changes; None if nothing is left in it."""
    if known is None:
        new = {"/".join(path): target for path, target in records.items() if target is not None}
        return client.create_root(new, suite) if new else None
    removed = [path for path, target in records.items() if target is None]
    held = client.prove_keys(known, removed) if removed else []
    stale = [path for path, target in zip(removed, held, strict=True) if target is not None]
    bound = {path: target for path, target in records.items() if target is not None}
    after = _updated(client, known, {**bound, **dict.fromkeys(stale)})
    return None if after == Map({}, suite).root else after


def _updated(client: Client, root: str, targets: Targets) -> str:
    """Return the root of a map after changes."""
    items = [*targets.items()]
    for first in range(0, len(items), _MAX_CHANGES):
        part = items[first : first + _MAX_CHANGES]
        bound = {"/".join(path): target for path, target in part if target is not None}
        root = client.update(root, bound, [path for path, target in part if target is None])
    return root


def _shown(path: Sequence[str]) -> str:
    return printable("/".join(path), 1000)
