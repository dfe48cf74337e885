"""Opening the store that the settings name."""

from __future__ import annotations

from coregw.errors import Unavailable
from coregw.gateway.limits.machine import Limits
from coregw.gateway.settings import Settings
from coregw.store.addresses import masked
from coregw.store.collection import CollectableStore
from coregw.store.rocksdb import RocksStore, open_store

__all__ = ["location_of", "open_embedded", "open_settings_store", "open_shared", "shared_variables"]


async def open_settings_store(settings: Settings, limits: Limits) -> CollectableStore:
    """Open the store of a gateway.

    Args:
        settings: The settings.
        limits: The limits that follow from them.

    Raises:
        InvalidInput: If an address is malformed, or the data directory contains something else than a store.
        Unavailable: If the store is in use or does not answer, or its database is not fit for a store.
        StoreDamaged: If the store's files are corrupt.
    """
    return await (open_shared(settings) if settings.is_shared else open_embedded(settings, limits))


async def open_embedded(settings: Settings, limits: Limits) -> RocksStore:
    """Open the RocksDB store in the data directory. Raises as `open_settings_store`."""
    return await open_store(
        settings.data,
        cache_bytes=limits.store_cache_bytes,
        reserve_bytes=settings.reserve_bytes,
        quota_bytes=settings.store_bytes,
        slice_seconds=settings.gc_slice_seconds,
        read_threads=limits.store_threads,
        read_only_if_needed=True,
    )


async def open_shared(settings: Settings, *, adopt: bool = False) -> CollectableStore:
    """Open the store in a database; `adopt` takes its bucket over. Raises as `open_settings_store`.

    The data directory then holds temporary files and the control socket's name; each gateway of a machine has its own.
    """
    from coregw.store.postgres import open_store as open_database  # noqa: PLC0415 - needs an extra of its own

    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"the data directory {settings.data} cannot be created: {error.strerror}") from None
    return await open_database(
        settings.store,
        bucket=None if settings.bucket == "none" else settings.bucket,
        quota_bytes=settings.store_bytes or None,
        slice_seconds=settings.gc_slice_seconds,
        adopt=adopt,
    )


def shared_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables that name the same store to another process; none if it is not shared."""
    if not settings.is_shared:
        return {}
    names = ("store", "bucket")
    return {f"COREGW_{name.upper()}": str(getattr(settings, name)) for name in names}


def location_of(settings: Settings) -> str:
    """Return where the store is, for people, without passwords."""
    if not settings.is_shared:
        return str(settings.data)
    return (
        masked(settings.store)
        if settings.bucket == "none"
        else f"{masked(settings.store)} and {masked(settings.bucket)}"
    )
