"""PostgreSQL's errors as coregw's exceptions, by SQLSTATE (appendix A of its manual)."""

from __future__ import annotations

from enum import Enum
from typing import Final

import asyncpg

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable

__all__ = ["Retry", "UnconfirmedWrite", "retry_of", "translated"]


class UnconfirmedWrite(Exception):
    """A write was committed with a warning: it may be durable on this server alone."""


class Retry(Enum):
    """What to do with a call that failed."""

    NEVER = 0
    CONFLICT = 1
    """Repeat it soon: another call was in the way, and nothing was written."""
    CONNECTION = 2
    """Repeat it on another connection; it is not known whether it was completed."""


_CONFLICTS: Final = frozenset({"40001", "40P01"})  # serialization_failure, deadlock_detected
_LOST: Final = frozenset(
    {
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now: starting up or shutting down
        "57P05",  # idle_session_timeout
        "53300",  # too_many_connections
        "25006",  # read_only_sql_transaction: the server is a standby now
        "57014",  # query_canceled, by an administrator; the gateway cancels no write
        "0A000",  # a plan that a migration has outdated (feature_not_supported)
    }
)
_DAMAGED: Final = frozenset({"XX001", "XX002", "58P01"})  # data_corrupted, index_corrupted, undefined_file
_DROPPED: Final = "CG001"
"""Raised by `coregw.store.postgres.schema`: an upload was given up before its commit."""


def retry_of(error: BaseException) -> Retry:
    """Return whether a call that raised `error` is repeated."""
    if isinstance(error, asyncpg.PostgresError):
        code = str(getattr(error, "sqlstate", None) or "")
        if code in _CONFLICTS:
            return Retry.CONFLICT
        return Retry.CONNECTION if code in _LOST or code.startswith("08") else Retry.NEVER
    lost = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, UnconfirmedWrite)
    return Retry.CONNECTION if isinstance(error, lost) else Retry.NEVER


def translated(error: BaseException) -> CoregwError:
    """Return what a call raises that is not repeated, or was repeated in vain."""
    if isinstance(error, CoregwError):
        return error
    if isinstance(error, asyncpg.DiskFullError):
        return StorageFull("the disk of the database is full")
    if isinstance(error, TimeoutError):
        return Unavailable("the database does not answer in time")
    text = str(error) or type(error).__name__
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        text = "no server of its address is the primary"
    if isinstance(error, asyncpg.PostgresError):
        code = str(getattr(error, "sqlstate", None) or "")
        if code in _DAMAGED:
            return StoreDamaged(f"the database is damaged: {text}")
        if code == _DROPPED:
            return Unavailable("the upload made no progress for too long and was dropped; try again")
        if retry_of(error) is Retry.NEVER:
            return Unavailable(f"the database refuses a call (SQLSTATE {code}): {text}")
    return Unavailable(f"the database does not answer: {text}")
