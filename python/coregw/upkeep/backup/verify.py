"""Verifying a repository: every file against its digest, and the newest generation as a store."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coregw.errors import StoreDamaged
from coregw.upkeep.backup.check import check_store
from coregw.upkeep.backup.files import digest, using
from coregw.upkeep.backup.manifest import Generation, StoredFile
from coregw.upkeep.backup.repository import Repository
from coregw.upkeep.backup.track import Track
from coregw.upkeep.backup.working import link_generation

__all__ = ["Verified", "compare", "linked", "verify"]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying.

    Attributes:
        generations: How many generations there are; all of their files were compared with their digests.
        files: How many files they consist of together.
        size_bytes: Their size.
        roots: How many roots the newest generation holds.
        pages: How many pages of it were compared with their digests.
        payloads: How many payloads of it were compared with their digests.
        seconds: How long it took.
    """

    generations: int
    files: int
    size_bytes: int
    roots: int
    pages: int
    payloads: int
    seconds: float


def verify(source: Path, track: Track) -> Verified:
    """Read all of a repository, and check that it can be restored. Changes nothing.

    Needs space in the temporary directory for the log of the newest generation, at most some 64 MiB.

    Raises:
        InvalidInput: The directory is not a repository.
        NotFound: It has no complete backup.
        StoreDamaged: A file is damaged or missing, or the newest generation is not a sound store.
        Unavailable: It cannot be read, or is being changed by another process.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    with repository.locked(shared=True):
        newest = repository.newest()
        files = list(repository.stored())
        size = sum(file.size for file in files)
        compare(repository, files, track)
        with tempfile.TemporaryDirectory(prefix="coregw-verify-") as scratch, using(Path(scratch)):
            checked = check_store(linked(repository, newest, Path(scratch)), track)
        return Verified(
            generations=len(repository.numbers()),
            files=len(files),
            size_bytes=size,
            roots=checked.roots,
            pages=checked.pages,
            payloads=checked.payloads,
            seconds=round(time.monotonic() - began, 3),
        )


def compare(repository: Repository, files: Sequence[StoredFile], track: Track) -> None:
    """Compare files of a repository with their checksums.

    Raises:
        StoreDamaged: One is damaged or missing.
        Unavailable: It cannot be read.
    """
    track.begin("comparing files with their checksums", sum(file.size for file in files))
    for file in files:
        place = repository.file(file.sha256)
        with using(repository.path):
            if digest(place, file.size, track.advance) != file.sha256:
                raise StoreDamaged(_damaged(repository, place))


def linked(repository: Repository, generation: Generation, scratch: Path) -> Path:
    """Return a data directory of a generation that can be opened, in an empty directory. Raises `OSError`."""
    data = scratch / "data"
    data.mkdir(mode=0o700)
    link_generation(repository, generation, data)
    return data


def _damaged(repository: Repository, place: Path) -> str:
    affected = [
        str(number)
        for number in repository.numbers()
        if any(file.sha256 == place.name for file in repository.generation(number).files)
    ]
    return f"{place} is damaged (generations {', '.join(affected)}); delete it, and back up again"
