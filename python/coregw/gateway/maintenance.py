"""The maintenance routes of the management server: status, flush, backup, garbage, check, heal."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, cast
from uuid import UUID

import msgspec
from litestar import Request, post, route

from coregw._core import Cid, __version__
from coregw.errors import CoregwError, InvalidInput, Unavailable
from coregw.gateway.context import Gateway
from coregw.gateway.description import DESCRIPTION, Description
from coregw.gateway.jobs import Job, Jobs, RunningJob
from coregw.gateway.limits.machine import gc_filter_bytes
from coregw.gateway.metrics import Source
from coregw.gateway.replies import Reply, json_reply
from coregw.gateway.requests import query_parameters
from coregw.gateway.stores import shared_variables
from coregw.messages import Message, decode, encode
from coregw.messages.management import (
    CheckRequest,
    CollectRequest,
    GarbageCollected,
    PinnedRoot,
    PinnedRoots,
    PinRequest,
    Progress,
    ProgressCallback,
    UnpinRequest,
)
from coregw.store.collection import CollectableStore
from coregw.store.rocksdb import RocksStore
from coregw.text import display_name
from coregw.upkeep.backup import DEFAULT_KEEP, BackedUp, back_up
from coregw.upkeep.check import check_in_process
from coregw.upkeep.findings import CheckResult
from coregw.upkeep.gc import collect_garbage
from coregw.upkeep.heal import HealResult, restore
from coregw.upkeep.pins import Pins
from coregw.upkeep.repair import HEALING

if TYPE_CHECKING:
    from msgspec import Struct

__all__ = ["BackupRequest", "Flushed", "HealRequest", "Management", "Status", "handlers", "run_on_schedule"]


@dataclass(frozen=True, slots=True)
class Management:
    """The management of one store.

    Attributes:
        gateway: The engine over the store, the settings, and the reader of request bodies.
        jobs: The jobs in progress.
        addresses: Where the management server listens.
        urls: Where clients are served, once they are.
        sources: The sources of metrics.
        started: When it started, in seconds of `time.monotonic`.
    """

    gateway: Gateway
    jobs: Jobs = field(default_factory=Jobs)
    addresses: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, request: Request[Any, Any, Any]) -> Self:
        """Return the management to which Litestar's request was sent."""
        return cast("Self", request.app.state["management"])

    @property
    def store(self) -> RocksStore:
        """The RocksDB store.

        Raises:
            Unavailable: If the gateway has a store of another kind.
        """
        store = self.gateway.engine.store
        if not isinstance(store, RocksStore):
            raise Unavailable("this gateway's store is not in RocksDB, and has no such maintenance")
        return store

    @property
    def collectable(self) -> CollectableStore:
        """The store, if its garbage can be collected, and all of it listed.

        Raises:
            Unavailable: If another process owns it.
        """
        store = self.gateway.engine.store
        if not isinstance(store, CollectableStore):
            raise Unavailable("this gateway's store is maintained by the process that owns it")
        return store


_MAX_NAME_BYTES: Final = 255  # NAME_MAX of Linux and macOS

_MAX_BODY_BYTES: Final = 64 << 10


class BackupRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/backup``.

    Attributes:
        destination: The absolute path of the repository; created if it is missing.
        keep: How many generations to keep.
        adopt: Whether the store takes the place of another incarnation of it, whose backups the repository has.
    """

    destination: str
    keep: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_KEEP
    adopt: bool = False


@post(
    "/backup",
    opt={
        DESCRIPTION: Description(
            "Backs the store up to a directory of the gateway's machine; by the control socket only.",
            request=BackupRequest,
            result=BackedUp,
            codes=("unauthorized", "too_large", "unsupported_media_type", "storage_full"),
            is_controlled=True,
        )
    },
)
async def backup(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/backup``."""
    management = Management.of(request)
    async with management.gateway.json_body(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, BackupRequest)
    destination = Path(asked.destination)
    longest = max(len(os.fsencode(part)) for part in destination.parts or ("",))
    if not destination.is_absolute() or "\0" in asked.destination or longest > _MAX_NAME_BYTES:
        raise InvalidInput(f"destination: {asked.destination!r:.200} is not an absolute path")
    store = management.collectable

    async def run(report: ProgressCallback) -> BackedUp:
        return await back_up(store, destination, asked.keep, report, adopt=asked.adopt)

    return management.jobs.stream(request.scope, "backup", run)


class Flushed(Message, frozen=True, kw_only=True):
    """The result of ``POST /admin/v1/maintenance/flush``."""

    flushed: bool = True


@post(
    "/flush",
    opt={
        DESCRIPTION: Description(
            "Flushes the memtables, so that the next start replays no log.", result=Flushed, codes=("unauthorized",)
        )
    },
)
async def flush(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/flush``. The body is ignored."""
    query_parameters(request.scope)
    management = Management.of(request)
    store = management.store

    async def run(report: ProgressCallback) -> Flushed:
        report(Progress(step="flushing the memtables"))
        await store.flush()
        return Flushed()

    return management.jobs.stream(request.scope, "flush", run)


@post(
    "/fsck",
    opt={
        DESCRIPTION: Description(
            "Checks the whole store, and names everything that is damaged.",
            request=CheckRequest,
            is_body_required=False,
            result=CheckResult,
            codes=("unauthorized", "too_large"),
        )
    },
)
async def fsck(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/fsck``. Without a body, it reads as fast as it can."""
    query_parameters(request.scope)
    management = Management.of(request)
    async with management.gateway.bodies.whole(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, CheckRequest) if body else CheckRequest()
    settings = management.gateway.settings
    data = settings.data if settings.is_shared else management.store.path

    async def run(report: ProgressCallback) -> CheckResult:
        return await check_in_process(data, asked.bytes_per_second, report, shared_variables(settings))

    return management.jobs.stream(request.scope, "fsck", run)


logger = logging.getLogger("coregw.gc")

_MAX_COLLECT_BYTES: Final = 1 << 20
"""As many roots as a trust store has names take less."""

_UNCACHED: Final = {"Cache-Control": "no-store"}

_BODY_CODES: Final = ("unauthorized", "too_large", "unsupported_media_type")


@post(
    "/gc",
    opt={
        DESCRIPTION: Description(
            "Removes what no published, pinned or recent root needs.",
            request=CollectRequest,
            is_body_required=False,
            result=GarbageCollected,
            codes=("unauthorized", "too_large"),
        )
    },
)
async def gc(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/gc``. Without a body, everything is as the settings say."""
    query_parameters(request.scope)
    management = Management.of(request)
    async with management.gateway.bodies.whole(request.scope, request.receive, _MAX_COLLECT_BYTES) as body:
        asked = decode(body, CollectRequest) if body else CollectRequest()
    return management.jobs.stream(request.scope, "gc", _collecting(management, asked))


@route(
    "/pins",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("The pins, by name.", answer=PinnedRoots, codes=("unauthorized",))},
)
async def pins(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/maintenance/pins``."""
    query_parameters(request.scope)
    return _reply(PinnedRoots(pins=await Pins(Management.of(request).gateway.engine.store).all()))


@post(
    "/pins",
    opt={
        DESCRIPTION: Description(
            "Pins a held root, so that no garbage collection removes it.",
            request=PinRequest,
            answer=PinnedRoot,
            codes=(*_BODY_CODES, "invalid_cid", "kind_mismatch", "root_not_found", "storage_full"),
        )
    },
)
async def pin(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/pins``."""
    management = Management.of(request)
    async with management.gateway.json_body(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, PinRequest)
    return _reply(await Pins(management.gateway.engine.store).add(asked.root, asked.name, asked.expires_at))


@post(
    "/pins/remove",
    opt={
        DESCRIPTION: Description(
            "Removes a pin.", request=UnpinRequest, answer=PinnedRoot, codes=(*_BODY_CODES, "record_not_found")
        )
    },
)
async def unpin(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/pins/remove``."""
    management = Management.of(request)
    async with management.gateway.json_body(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, UnpinRequest)
    return _reply(await Pins(management.gateway.engine.store).remove(asked.name))


async def run_on_schedule(management: Management) -> None:
    """Collect garbage every ``gc_seconds`` until cancelled. Failures are logged; the next attempt may succeed."""
    seconds = management.gateway.settings.gc_seconds
    while True:
        await asyncio.sleep(seconds)
        try:
            job = _collecting(management, CollectRequest())
            result = cast("GarbageCollected", await management.jobs.run("gc", job))
        except CoregwError as error:
            logger.error("no garbage was collected: %s", error)
        except Exception:
            logger.exception("garbage collection failed")
        else:
            removed = ", ".join(
                f"{count} of {total} {kind}"
                for count, total, kind in (
                    (result.roots_removed, result.roots, "roots"),
                    (result.pages_removed, result.pages, "pages"),
                    (result.payloads_removed, result.payloads, "payloads"),
                )
            )
            logger.info("collected garbage in %.1f s: %s; %d bytes on disk", result.seconds, removed, result.disk_bytes)


def _collecting(management: Management, asked: CollectRequest) -> Job:
    settings, store = management.gateway.settings, management.collectable
    grace = settings.gc_grace_seconds if asked.grace_seconds is None else asked.grace_seconds
    revisions = settings.gc_revisions if asked.revisions is None else asked.revisions
    if grace < 0 or revisions < 0:
        raise InvalidInput("grace_seconds and revisions must not be negative")
    keep = [bytes(Cid(root)) for root in asked.keep]

    async def run(report: ProgressCallback) -> GarbageCollected:
        return await collect_garbage(
            store,
            grace_seconds=grace,
            revisions=revisions,
            dry_run=asked.dry_run,
            report=report,
            folder=settings.data if settings.data.is_dir() else None,
            keep=keep,
            ask_seconds=asked.ask_seconds,
            filter_bytes=gc_filter_bytes(settings),
        )

    return run


def _reply(message: Struct) -> Reply:
    return json_reply(encode(message), headers=_UNCACHED)


_MAX_HEAL_BODY_BYTES: Final = 1 << 10

_NAME: Final = re.compile(re.escape(HEALING) + "[A-Za-z0-9_-]{1,64}")


class HealRequest(Message, frozen=True, kw_only=True):
    """The body of ``POST /admin/v1/maintenance/heal``: the name of a directory in the data directory."""

    directory: str


@post(
    "/heal",
    opt={
        DESCRIPTION: Description(
            "Restores what the store has lost, from files that `coregw heal` has put into the data directory.",
            request=HealRequest,
            result=HealResult,
            codes=("unauthorized", "too_large", "unsupported_media_type", "storage_full"),
        )
    },
)
async def heal(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/heal``. Everything is checked against its CID."""
    management = Management.of(request)
    async with management.gateway.json_body(request.scope, request.receive, _MAX_HEAL_BODY_BYTES) as body:
        name = decode(body, HealRequest).directory
    directory = management.gateway.settings.data / name
    if _NAME.fullmatch(name) is None or not directory.is_dir():
        raise InvalidInput(f"directory: {name!r:.100} is not a directory that `coregw heal` has made")

    async def run(report: ProgressCallback) -> HealResult:
        return await restore(management.gateway.engine, directory, report)

    return management.jobs.stream(request.scope, "heal", run)


class Status(Message, frozen=True, kw_only=True):
    """The answer to ``GET /admin/v1/maintenance/status``.

    Attributes:
        version: The version of coregw.
        pid: The process.
        seconds: How long it has been running.
        data: The data directory.
        store: Which store it is; null if that is not known.
        incarnation: Which incarnation of it: each restore and each copy begins another one.
        healthy: Whether the store can be read and written.
        urls: Where clients are served; empty until they are.
        addresses: Where the management server listens.
        jobs: The jobs in progress.
    """

    version: str
    pid: int
    seconds: float
    data: str
    store: UUID | None
    incarnation: UUID | None
    healthy: bool
    urls: list[str]
    addresses: list[str]
    jobs: list[RunningJob]


@route(
    "/status",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: Description(
            "Version, process, addresses, and the jobs in progress.",
            answer=Status,
            codes=("unauthorized",),
        )
    },
)
async def status(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /admin/v1/maintenance/status``."""
    query_parameters(request.scope)
    management = Management.of(request)
    settings = management.gateway.settings
    identity = getattr(management.gateway.engine.store, "identity", None)
    answer = Status(
        version=__version__,
        pid=os.getpid(),
        seconds=round(time.monotonic() - management.started, 3),
        data=display_name(settings.data.absolute()),
        store=None if identity is None else identity.store,
        incarnation=None if identity is None else identity.incarnation,
        healthy=await management.gateway.engine.healthy(),
        urls=management.urls,
        addresses=management.addresses,
        jobs=management.jobs.running(),
    )
    return json_reply(encode(answer), headers={"Cache-Control": "no-store"})


handlers: Final = (status, flush, backup, gc, pins, pin, unpin, fsck, heal)
