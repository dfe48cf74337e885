"""Backing up the store of a running gateway to a directory of its machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, post

from coregw.errors import InvalidInput
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.maintenance.context import Management
from coregw.messages import Message, decode
from coregw.messages.progress import ProgressCallback
from coregw.upkeep.backup import DEFAULT_KEEP, BackedUp, back_up

__all__ = ["BackupRequest", "handlers"]

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
        )
    },
)
async def backup(request: Request[Any, Any, Any]) -> Reply:
    """``POST /admin/v1/maintenance/backup``.

    Only on the control socket: it writes where the caller says, with the rights of the gateway. Who can use the socket
    has these rights anyway; who has the token for administration by TCP need not.
    """
    management = Management.of(request)
    if request.scope.get("client"):  # a Unix socket has none
        raise InvalidInput("a backup is started by the control socket, not by TCP")
    async with management.gateway.json_body(request.scope, request.receive, _MAX_BODY_BYTES) as body:
        asked = decode(body, BackupRequest)
    destination = Path(asked.destination)
    longest = max(len(os.fsencode(part)) for part in destination.parts or ("",))
    if not destination.is_absolute() or "\0" in asked.destination or longest > _MAX_NAME_BYTES:
        raise InvalidInput(f"destination: {asked.destination!r:.200} is not an absolute path")
    store = management.collectable

    async def run(report: ProgressCallback) -> BackedUp:
        return await back_up(store, destination, asked.keep, report, adopt=asked.adopt)

    return management.operations.stream(request.scope, "backup", run)


handlers: Final = (backup,)
