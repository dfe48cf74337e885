"""Garbage collection on a running gateway, on request and on a schedule, and pins."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Request, post, route

from coregw._core import Cid
from coregw.errors import CoregwError, InvalidInput
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.gateway.maintenance.operations import Operation
from coregw.messages import decode, encode
from coregw.messages.maintenance import (
    CollectRequest,
    GarbageCollected,
    PinnedRoot,
    PinnedRoots,
    PinRequest,
    UnpinRequest,
)
from coregw.messages.progress import ProgressCallback
from coregw.upkeep.gc import collect_garbage
from coregw.upkeep.pins import Pins

if TYPE_CHECKING:
    from msgspec import Struct

__all__ = ["handlers", "run_on_schedule"]

logger = logging.getLogger("coregw.gc")

_MAX_BODY_BYTES: Final = 64 << 10
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
    return management.operations.stream(request.scope, "gc", _collecting(management, asked))


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


handlers: Final = (gc, pins, pin, unpin)


async def run_on_schedule(management: Management) -> None:
    """Collect garbage every ``gc_seconds`` until cancelled. Failures are logged; the next attempt may succeed."""
    seconds = management.gateway.settings.gc_seconds
    while True:
        await asyncio.sleep(seconds)
        try:
            operation = _collecting(management, CollectRequest())
            result = cast("GarbageCollected", await management.operations.run("gc", operation))
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


def _collecting(management: Management, asked: CollectRequest) -> Operation:
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
        )

    return run


def _reply(message: Struct) -> Reply:
    return json_reply(encode(message), headers=_UNCACHED)
