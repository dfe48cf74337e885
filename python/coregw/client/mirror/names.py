"""Copies of what is published under a name, and its publication at the destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio.to_thread

from coregw.client.mirror.copy import Mirrored, mirror
from coregw.client.mirror.side import Side
from coregw.client.operations.publication import published
from coregw.client.operations.record import publish
from coregw.errors import Conflict, RecordNotFound
from coregw.messages.record import PublishedRecord

__all__ = ["MirroredName", "mirror_published"]


@dataclass(frozen=True, slots=True)
class MirroredName:
    """What a copy of a published name has done.

    Attributes:
        record: What is published at the source.
        mirrored: What was copied.
        published: What is published at the destination now; None without a token for that.
    """

    record: PublishedRecord
    mirrored: Mirrored
    published: PublishedRecord | None


async def mirror_published(
    source: Side,
    destination: Side,
    scope: str,
    name: str,
    tokens: tuple[str | None, str | None] = (None, None),
    *,
    payloads: bool = True,
    progress: Callable[[int], None] = lambda count: None,
    observed: Callable[[PublishedRecord], PublishedRecord] = lambda record: record,
) -> MirroredName:
    """Copy the root that is published under a name, by what differs from the versions before.

    At the destination it is published when all of it is held there, if there is a token; revisions there are counted
    there. What names a root is what the source says: nothing proves it.

    Args:
        source: The gateway or static tree to copy from.
        destination: The gateway to copy to.
        scope: The scope of the name.
        name: The name.
        tokens: The bearer tokens of the source and of the destination; None for a side that needs none.
        payloads: Whether payloads are copied, too.
        progress: Called with further numbers of bytes that are sent to the destination.
        observed: Called with the record of the source in a thread; raises if it contradicts an earlier one.

    Raises:
        RecordNotFound: Nothing is published under the name.
        Unauthorized: A token is missing or wrong.
        Conflict: The name is frozen at the destination, or somebody else publishes under it.
        CoregwError: As `coregw.client.mirror.copy.mirror`.
    """
    record = await source.run(published(source.settings, scope, name, tokens[0]))
    await anyio.to_thread.run_sync(observed, record)
    before = None if tokens[1] is None else await _published(destination, scope, name, tokens[1])
    versions = [before.root if before is not None else None, record.previous_root]
    bases = [root for root in versions if root is not None]
    line = f"{scope}/{name}"
    done = await mirror(source, destination, record.root, bases=bases, payloads=payloads, line=line, progress=progress)
    after = None if tokens[1] is None else await _publish(destination, record, before, tokens[1])
    return MirroredName(record, done, after)


async def _published(side: Side, scope: str, name: str, token: str) -> PublishedRecord | None:
    try:
        return await side.run(published(side.settings, scope, name, token))
    except RecordNotFound:
        return None


async def _publish(
    side: Side, record: PublishedRecord, before: PublishedRecord | None, token: str
) -> PublishedRecord | None:
    """Publish a root unless it is published already. A repeated request may find that the first one had succeeded."""
    if before is not None and before.root == record.root:
        return before
    revision = 0 if before is None else before.revision
    try:
        return await side.run(publish(side.settings, record.scope, record.name, record.root, token, revision))
    except Conflict:
        after = await _published(side, record.scope, record.name, token)
        if after is None or after.root != record.root:
            raise
        return after
