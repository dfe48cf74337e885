"""One call of a method by either client, for tests that expect the same of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coregw.client import AsyncClient, Client, ClientSettings, ConnectionOptions

__all__ = ["Call", "both_clients"]

Call = Callable[..., object]


def blocking(
    url: str | list[str],
    settings: ClientSettings,
    method: str,
    *arguments: object,
    connection: ConnectionOptions | None = None,
) -> object:
    with Client(url, settings, connection) as client:
        return getattr(client, method)(*arguments)


def with_asyncio(
    url: str | list[str],
    settings: ClientSettings,
    method: str,
    *arguments: object,
    connection: ConnectionOptions | None = None,
) -> object:
    async def call() -> object:
        async with AsyncClient(url, settings, connection) as client:
            return await getattr(client, method)(*arguments)

    return asyncio.run(call())


both_clients = pytest.mark.parametrize("call", [blocking, with_asyncio])
