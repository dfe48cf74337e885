"""What several commands share: the gateway option, the clients, progress on stderr, and text safe for a terminal.

Leaves out errors and exit codes, which are the group's (``coregw.cli``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from coregw.client import AsyncClient, Client

__all__ = ["async_client", "client", "counted", "gateway_option", "printable", "progress"]

F = TypeVar("F", bound=Callable[..., Any])


def gateway_option(command: F) -> F:
    """Adds ``--gateway URL``; the environment variable COREGW_GATEWAY does as well."""
    return click.option(
        "--gateway",
        metavar="URL",
        envvar="COREGW_GATEWAY",
        show_envvar=True,
        default="http://127.0.0.1:8080",  # as coregw.client.settings.DEFAULT_GATEWAY, which would load the HTTP client
        show_default=True,
        help="Address of the gateway.",
    )(command)


def client(gateway: str) -> Client:
    """A blocking client of the gateway at this address."""
    from coregw.client import Client

    return Client(gateway)


def async_client(gateway: str) -> AsyncClient:
    """An asyncio client of the gateway at this address."""
    from coregw.client import AsyncClient

    return AsyncClient(gateway)


def printable(text: str) -> str:
    """A name as it may be shown on a terminal: control characters and the backslash as escapes."""
    from coregw.client.exchange import printable as one_line

    return one_line(text.replace("\\", "\\\\"), limit=1 << 16)


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 file``, ``2,450 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def progress(words: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A progress bar of bytes on stderr, if that is a terminal; gives ``set_total`` and ``advance``."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(words, total=None)
        yield lambda total: bar.update(task, total=total), lambda count: bar.advance(task, count)
