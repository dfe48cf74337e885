"""Work on the store in a directory, without a gateway: as its owner, or on a snapshot of it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pwd
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import ArcSorter
from coregw.engine import Engine
from coregw.errors import InvalidInput, Unavailable
from coregw.messages import RootCreated
from coregw.store.rocksdb import DATABASE, MARKER, RocksStore, open_store
from coregw.store.rocksdb.directory import copy_file
from coregw.upkeep.repair import exclusive
from coregw.upkeep.repository import using

__all__ = ["as_owner", "opened_directory", "opened_snapshot", "store_map"]

_TABLE_FILE: Final = ".sst"
_NOT_COPIED: Final = frozenset({"LOCK", "LOG", "coregw-control.json"})
_PR_GET_SECUREBITS: Final = 27
_PR_SET_SECUREBITS: Final = 28
_NO_SETUID_FIXUP: Final = 1 << 2
_PRIVATE: Final = Path("/var/lib/private")
"""Where systemd keeps the state of services with DynamicUser=yes; only root can enter it."""


@contextmanager
def as_owner(data: Path) -> Iterator[None]:
    """Act as the user to whom a data directory belongs, if this process is root's; whatever it creates is that user's.

    It holds for the whole process, which keeps root's right to read and write: the directory may be in one that only
    root can enter, and so may this program. Nothing happens if the directory does not exist, or is root's.

    Raises:
        Unavailable: The system does not let this process act so. The message says the command that works.
    """
    status = data.stat() if hasattr(os, "geteuid") and os.geteuid() == 0 and data.exists() else None
    if status is None or status.st_uid == 0:
        yield
        return
    with _kept_rights(), ExitStack() as stack:
        try:
            groups, group = os.getgroups(), os.getegid()
            os.setgroups([status.st_gid])
            stack.callback(os.setgroups, groups)
            os.setegid(status.st_gid)
            stack.callback(os.setegid, group)
            os.seteuid(status.st_uid)
            stack.callback(os.seteuid, 0)
        except PermissionError:
            raise Unavailable(_refusal(data, status.st_uid)) from None
        reached = (data.absolute(), os.R_OK | os.W_OK | os.X_OK), (Path(os.__file__), os.R_OK)
        if not all(os.access(path, mode, effective_ids=True) for path, mode in reached):
            raise Unavailable(_refusal(data, status.st_uid))
        yield


@contextmanager
def _kept_rights() -> Iterator[None]:
    """Let this thread, and those that it starts, keep the capabilities of root when its user changes, where possible.

    Python imports modules when they are needed, from wherever root has installed them.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux alone has it
    bits = -1 if prctl is None else prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0)
    if prctl is None or bits < 0 or prctl(_PR_SET_SECUREBITS, bits | _NO_SETUID_FIXUP, 0, 0, 0) != 0:
        yield
        return
    try:
        yield
    finally:
        prctl(_PR_SET_SECUREBITS, bits, 0, 0, 0)


def _refusal(data: Path, user: int) -> str:
    """Say that a command of root cannot act as the owner of a directory, and which one works."""
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"#{user}"
    place = data.resolve()
    command = shlex.join(["coregw", *sys.argv[1:]])
    if _PRIVATE in place.parents:  # of a service with DynamicUser=yes
        state = place.relative_to(_PRIVATE)
        options = f"-p DynamicUser=yes -p User={state.parts[0]} -p StateDirectory={state}"
        works = f"systemd-run --pipe --wait {options} {command}"
    else:
        works = f"sudo -u {shlex.quote(name)} {command}"
    return (
        f"{data} belongs to the user {name}, as whom this process cannot act: what root wrote there would keep the "
        f"gateway from starting, so nothing was changed. This works: {works}"
    )


@asynccontextmanager
async def opened_directory(data: Path) -> AsyncIterator[RocksStore]:
    """Open the RocksDB store in a directory, which must be one, as its owner.

    Raises:
        InvalidInput: The directory is not a store; opening it would make one of it.
        Unavailable: As `as_owner`; also otherwise as `coregw.store.rocksdb.open_store`.
    """
    _require_marker(data)
    with as_owner(data):
        async with await open_store(data, reserve_bytes=0) as store:
            yield store


@asynccontextmanager
async def opened_snapshot(data: Path) -> AsyncIterator[RocksStore]:
    """Open a snapshot of the RocksDB store in a directory, which is not written to. No process may have it open.

    The snapshot is in the temporary directory, and has links to the table files, which RocksDB never changes. The rest,
    at most some 64 MiB of logs, is copied.

    Raises:
        InvalidInput: The directory is not a store.
        Unavailable: Another process has the store open, or it cannot be read.
    """
    _require_marker(data)
    with tempfile.TemporaryDirectory(prefix="coregw-snapshot-") as scratch, exclusive(data):
        await asyncio.to_thread(_link, data, Path(scratch))
        async with await open_store(Path(scratch), reserve_bytes=0) as store:
            yield store


def _require_marker(data: Path) -> None:
    if not (data / MARKER).is_file():
        raise InvalidInput(f"{data} is not a coregw store: it has no {MARKER}")


def _link(data: Path, target: Path) -> None:
    with using(data):
        copy_file(data / MARKER, target / MARKER)
        (target / DATABASE).mkdir(mode=0o700)
        for file in (data / DATABASE).iterdir():
            if file.suffix == _TABLE_FILE:
                (target / DATABASE / file.name).symlink_to(file.resolve())
            elif file.is_file() and file.name not in _NOT_COPIED and not file.name.startswith("LOG."):
                copy_file(file, target / DATABASE / file.name)


def store_map(sorter: ArcSorter, data: str | os.PathLike[str], suite: str) -> str:
    """Store the map of sorted arcs durably, and return its root. Raises as `Builds.store_map` and `open_store`."""

    async def store() -> bytes:
        with as_owner(Path(data)):
            engine = Engine(await open_store(Path(data), reserve_bytes=0))
            try:
                return await engine.builds.store_map(sorter, suite)
            finally:
                await engine.close()

    return msgspec.json.decode(asyncio.run(store()), type=RootCreated).root
