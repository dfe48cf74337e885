"""The store that a command works on without a gateway: in a directory, or the one that ``COREGW_STORE`` names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coregw.store.collection import CollectableStore

__all__ = ["SharedStore", "is_shared", "opened_database", "opened_store", "shared_store"]

T = TypeVar("T")


def is_shared() -> bool:
    """Whether ``COREGW_STORE`` names a store in PostgreSQL; then the data directory holds none."""
    from coregw.gateway.settings import Settings

    return Settings.load(strict=False).is_shared


@asynccontextmanager
async def opened_store(data: Path, *, reads_only: bool = False) -> AsyncIterator[CollectableStore]:
    """Open the store that ``COREGW_STORE`` names, or the one in a directory.

    Args:
        data: The directory.
        reads_only: Whether a store in a directory is only read: then it is a snapshot, of which nothing is kept.

    Raises:
        InvalidInput, Unavailable, StoreDamaged: As `coregw.upkeep.offline.opened_directory`.
    """
    from coregw.gateway.settings import Settings
    from coregw.gateway.stores import open_shared

    settings = Settings.load(strict=False, data=data)
    if settings.is_shared:
        shared = await open_shared(settings, 1)
        try:
            yield shared
        finally:
            await shared.close()
        return
    from coregw.upkeep.offline import opened_directory, opened_snapshot

    async with (opened_snapshot if reads_only else opened_directory)(data) as store:
        yield store


@asynccontextmanager
async def opened_database(
    url: str, bucket: str | None, option: str, expected: str = "postgresql://USER@HOST/DATABASE"
) -> AsyncIterator[CollectableStore]:
    """Open the store in a database whose address an option names. Raises as `coregw.store.postgres.open_store`.

    Args:
        url: The address.
        bucket: The bucket of the store, if it has one.
        option: The option.
        expected: What it takes, for the message if this is no address of a database.
    """
    from coregw.cli.framework import click
    from coregw.gateway.settings import Settings

    if not url.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter(f"expected {expected}", param_hint=option)
    from coregw.store.postgres import open_store
    from coregw.store.postgres.checks import parse_unsafe

    unsafe = parse_unsafe(Settings.load(strict=False).store_unsafe)
    async with await open_store(url, bucket=bucket, unsafe=unsafe) as database:
        yield database


class SharedStore:
    """A store in PostgreSQL for a command without an event loop: it is used in a loop of another thread.

    Attributes:
        loop: The event loop.
        store: The store.
    """

    def __init__(self, portal: BlockingPortal, store: CollectableStore) -> None:
        self._portal = portal
        self.loop: asyncio.AbstractEventLoop = portal.call(asyncio.get_running_loop)
        self.store = store

    def call(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which runs in the event loop; ^C cancels it."""
        future = self._portal.start_task_soon(lambda: call)
        try:
            result: T = future.result()
        except BaseException:
            future.cancel()
            raise
        return result


@contextmanager
def shared_store(data: Path) -> Iterator[SharedStore]:
    """Open the store that ``COREGW_STORE`` names while the context is active. Raises as `open_shared`."""
    from anyio.from_thread import start_blocking_portal

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened_store(data)) as store:
        yield SharedStore(portal, store)
