"""Connections to whichever of several servers has what is wanted.

asyncpg tries the servers of an address one after the other within one time limit, and gives up at the first that
accepts a connection and closes it again. So one machine without power, or one proxy without a server, would keep a
gateway from the others. Here each server is tried in a task of its own: first the one that answered last, and the
others when it fails, or does not answer within `_HEAD_START_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

__all__ = ["Hosts", "hosts_of"]

_HEAD_START_SECONDS: Final = 0.5

Connect = Callable[..., Awaitable[Any]]
Host = tuple[str, int | None]
"""A name or address, and a port; None for the default."""


def hosts_of(url: str) -> list[Host]:
    """Return the servers of an address that names several; none if asyncpg has to find out which it is.

    Raises:
        ValueError: A port is not a number.
    """
    parts = urlsplit(url)
    names = parts.netloc.rpartition("@")[2].split(",")
    if len(names) < 2 or {"host", "port"} & {name for name, _ in parse_qsl(parts.query)}:
        return []
    hosts: list[Host] = []
    for name in names:
        host, colon, port = name.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = name, ""
        hosts.append((unquote(host.removeprefix("[").removesuffix("]")), int(port) if port else None))
    return hosts


class Hosts:
    """The servers of one address. For tasks of one event loop.

    Args:
        hosts: What `hosts_of` returned.
        connect: Connects to the server that is given by the keywords ``host`` and ``port``, or without them to that of
            the address. Raises if it does not answer in time, or has not what is wanted.
    """

    def __init__(self, hosts: list[Host], connect: Connect) -> None:
        self._hosts = hosts
        self._connect = connect
        self._last = 0

    async def connect(self) -> Any:  # noqa: ANN401 - a connection of asyncpg
        """Connect to the first server that can be connected to.

        Raises what `connect` raised for the server that answered last, or for another one if that is down.
        """
        if not self._hosts:
            return await self._connect()
        order = [*range(self._last, len(self._hosts)), *range(self._last)]
        tasks: dict[asyncio.Task[Any], int] = {}
        errors: list[Exception] = []
        try:
            while order or tasks:
                if order:
                    number = order.pop(0)
                    tasks[asyncio.ensure_future(self._connect_to(number))] = number
                patience = _HEAD_START_SECONDS if order else None
                done, _ = await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    number = tasks.pop(task)
                    if (error := task.exception()) is None:
                        self._last = number
                        return _result(task, done - {task})
                    if not isinstance(error, Exception):
                        raise error
                    errors.append(error)
        finally:
            for task in tasks:
                task.cancel()
                task.add_done_callback(_drop)
        raise min(errors, key=lambda error: isinstance(error, asyncpg.TargetServerAttributeNotMatched))

    async def _connect_to(self, number: int) -> Any:  # noqa: ANN401
        host, port = self._hosts[number]
        return await self._connect(host=host, **({} if port is None else {"port": port}))


def _result(task: asyncio.Task[Any], others: set[asyncio.Task[Any]]) -> Any:  # noqa: ANN401
    """Return the connection of a task, and drop those of others that were as fast."""
    for other in others:
        _drop(other)
    return task.result()


def _drop(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()
