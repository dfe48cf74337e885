"""Writes that an edge passes on: what the upstream has acknowledged is acknowledged, and its errors keep their codes.

Bodies are checked and limited as on every gateway. Streamed ones are spooled, since a failed request is sent again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Body, Call
from coregw.client.operations.batch import OCTETS
from coregw.client.operations.car import CAR_TYPE
from coregw.client.operations.root import LINES_TYPE
from coregw.client.spooled import SpooledBody
from coregw.client.static.upstream import HttpUpstream
from coregw.engine import Builds, Cars, Payloads
from coregw.engine.spool import joined
from coregw.errors import StorageFull
from coregw.messages import CasCreated

__all__ = ["UPSTREAM_WRITE_TOKEN_VARIABLE", "PassedBuilds", "PassedCars", "PassedPayloads", "UpstreamWrites"]

UPSTREAM_WRITE_TOKEN_VARIABLE: Final = "GATEWAY_UPSTREAM_WRITE_TOKEN"  # noqa: S105 - the variable's name

_MAX_ANSWER_BYTES: Final = 48 << 20
_MEMORY_BYTES: Final = 1 << 20


class UpstreamWrites:
    """Sends writes to an upstream. Each is idempotent, so it is sent again if an answer is lost.

    Args:
        upstream: The upstream.
        spool: The folder of spooled bodies; None is the system's folder for temporary files.
        reserve_bytes: Free space on that disk below which nothing more is spooled.
        token: The bearer token that the upstream requires of writers; None if it requires none.
    """

    def __init__(
        self, upstream: HttpUpstream, spool: Path | None, reserve_bytes: int, token: str | None = None
    ) -> None:
        self._upstream = upstream
        self._spool = spool
        self._reserve_bytes = reserve_bytes
        self._token = token

    async def send(
        self,
        path: str,
        content: bytes | Body | None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request by POST, and return the body of the answer. Raises as the upstream, with its codes."""
        return (await self._upstream.send(self._call(path, content, content_type, params))).body

    async def send_payload(self, content: bytes | Body, params: Mapping[str, str]) -> str:
        """Store a payload, and return its CID. Raises as `send`."""
        call = self._call("/v1/cas", content, OCTETS, params)
        return decode(call, await self._upstream.send(call), CasCreated).cid

    @asynccontextmanager
    async def spooled(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[Body, None]:
        """Spool a body that arrives in chunks. What the iterator raises passes through.

        Raises:
            StorageFull: There is no room for temporary files.
        """
        with SpooledBody(_MEMORY_BYTES, self._spool) as body:
            async with aclosing(joined(chunks)) as parts:
                async for part in parts:
                    await asyncio.to_thread(self._write, body, part)
            yield body

    def _call(self, path: str, content: bytes | Body | None, kind: str, params: Mapping[str, str] | None) -> Call:
        what = f"{self._upstream.url}{path}"
        return Call(
            "POST",
            path,
            _MAX_ANSWER_BYTES,
            what,
            content=content,
            content_type=kind,
            params=params or {},
            token=self._token,
        )

    def _write(self, body: SpooledBody, data: bytes) -> None:
        if self._spool is not None:
            disk = os.statvfs(self._spool)
            if disk.f_bavail * disk.f_frsize < self._reserve_bytes + len(data):
                raise StorageFull("there is not enough disk space to pass the request on")
        body.write(data)


class PassedPayloads(Payloads):
    """Payloads that are stored at the upstream, ``engine.payloads`` of an edge that takes writes."""

    def __init__(self, writes: UpstreamWrites, *parts: Any) -> None:  # noqa: ANN401 - those of `Payloads`
        super().__init__(*parts)
        self._writes = writes

    async def put(self, chunks: AsyncIterator[bytes], codec: str, hash_name: str) -> str:
        """Store a payload at the upstream, and return its CID."""
        async with self._writes.spooled(chunks) as body:
            return await self._writes.send_payload(body, {"codec": codec, "hash": hash_name})

    async def put_whole(self, body: AbstractAsyncContextManager[bytes], codec: str, hash_name: str) -> str:
        """Store a short payload at the upstream, and return its CID."""
        async with body as data:
            return await self._writes.send_payload(data, {"codec": codec, "hash": hash_name})

    async def batch(self, request: bytes, largest: int) -> bytes:
        """Store the payloads of a batch at the upstream, or return which ones are held there."""
        return await self._writes.send("/v1/cas/batch", request)

    async def batch_held(self, request: bytes) -> bytes:
        """Return which payloads of a batch are held at the upstream."""
        return await self._writes.send("/v1/cas/has", request)

    async def held(self, request: bytes) -> bytes:
        """Return which payloads are held at the upstream, since a client will not send these."""
        return await self._writes.send("/v1/cas/has", request, OCTETS)


class PassedCars(Cars):
    """CARs that are imported at the upstream, ``engine.cars`` of an edge that takes writes."""

    def __init__(self, writes: UpstreamWrites, *parts: Any) -> None:  # noqa: ANN401 - those of `Cars`
        super().__init__(*parts)
        self._writes = writes

    async def import_car(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Import a CAR at the upstream."""
        async with self._writes.spooled(chunks) as body:
            return await self._writes.send("/v1/car", body, CAR_TYPE)

    async def import_whole(self, body: bytes) -> bytes:
        """Import a CAR that is in memory at the upstream."""
        return await self._writes.send("/v1/car", body, CAR_TYPE)


class PassedBuilds(Builds):
    """Maps that are built at the upstream, ``engine.builds`` of an edge that takes writes."""

    def __init__(self, writes: UpstreamWrites, *parts: Any) -> None:  # noqa: ANN401 - those of `Builds`
        super().__init__(*parts)
        self._writes = writes

    async def build_root(self, chunks: AsyncIterator[bytes], suite: str, form: str = "ndjson") -> bytes:
        """Build a map at the upstream."""
        async with self._writes.spooled(chunks) as body:
            return await self._writes.send("/v1/roots", body, LINES_TYPE, {"suite": suite})
