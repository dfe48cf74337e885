"""Objects by path over HTTP, from a gateway or a static tree: what `coregw.store.origin.OriginStore` reads from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from coregw.client.query import encode
from coregw.client.settings import ClientSettings, ConnectionOptions
from coregw.client.transport.asynchronous import AsyncTransport
from coregw.client.transport.exchange import Answer, Call, Sink, Traffic
from coregw.client.transport.gateways import Address, Gateways
from coregw.errors import CoregwError, NotFound, ProofError
from coregw.messages.payloads import GetBatchRequest, GetPagesRequest
from coregw.store.protocol import raw_cid

__all__ = ["HttpUpstream"]


class HttpUpstream:
    """Implements `coregw.store.origin.Upstream` by the transport of clients, with its settings and retries.

    Args:
        address: A gateway, or a static tree.
        settings: The settings of the connections and retries.
        connection: How it is reached.

    Attributes:
        address: Where it is.
        gateways: The upstream as the one of a list.
        traffic: Counts what is requested of it.
    """

    def __init__(self, address: Address, settings: ClientSettings, connection: ConnectionOptions | None = None) -> None:
        self.address = address
        self._settings = settings
        self.gateways = Gateways([address], settings, connection or ConnectionOptions())
        self._transport = AsyncTransport(self.gateways, settings)
        self.traffic: Final = Traffic()

    @property
    def url(self) -> str:
        """The address without credentials."""
        return self.address.url

    @property
    def has_batches(self) -> bool:
        """Whether it is a gateway, which sends many objects in one answer."""
        return not self.address.is_static

    async def get(self, path: str, max_bytes: int) -> bytes | None:
        """Return the bytes of an object, None for a 404.

        Raises:
            TooLarge: There are more than `max_bytes`.
            Unavailable: The upstream did not answer, or is unavailable, after all retries.
        """
        answer = await self._found(Call("GET", path, max_bytes, f"get {path}"))
        return None if answer is None else answer.body

    async def download(self, path: str, sink: Callable[[], Sink]) -> bool:
        """Stream an object, which never changes, into what `sink` returns; False for a 404. Raises as `get`.

        A truncated answer is continued. `sink` is called once for each one that starts over.
        """
        incoming = _Object(sink)
        limit = self._settings.max_payload_bytes
        call = Call("GET", path, limit, f"get {path}", sink=incoming.restarted, partial=incoming)
        return await self._found(call) is not None

    async def size(self, path: str) -> int | None:
        """Return the Content-Length of an object, None for a 404.

        Raises:
            ProofError: The answer has no Content-Length.
            TooLarge, Unavailable: As `get`.
        """
        call = Call("HEAD", path, self._settings.max_payload_bytes, f"look up {path}")
        answer = await self._found(call)
        if answer is not None and answer.length is None:
            raise ProofError(f"{call.what}: {self.url}: the answer has no Content-Length", check="answer")
        return None if answer is None else answer.length

    async def pages(self, digests: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the CAR of ``POST /v1/pages/car``. Raises as `get`."""
        content = encode(GetPagesRequest(pages=[digest.hex() for digest in digests]))
        call = Call("POST", "/v1/pages/car", max_bytes, f"get {len(digests):,} pages", content=content)
        return _answer(await self._outcome(call)).body

    async def payloads(self, multihashes: Sequence[bytes], max_bytes: int) -> bytes:
        """Return the CAR of ``POST /v1/cas/car``. Raises as `get`."""
        cids = [raw_cid(multihash).text for multihash in multihashes]
        content = encode(GetBatchRequest(cids=cids))
        call = Call("POST", "/v1/cas/car", max_bytes, f"get {len(cids):,} payloads", content=content)
        return _answer(await self._outcome(call)).body

    async def aclose(self) -> None:
        """Close the connections. What is in progress is cancelled."""
        await self._transport.aclose()

    async def _found(self, call: Call) -> Answer | None:
        found = await self._outcome(call)
        return None if isinstance(found, NotFound) else _answer(found)

    async def _outcome(self, call: Call) -> Answer | CoregwError:
        return await self._transport.outcome(replace(call, traffic=self.traffic))


def _answer(found: Answer | CoregwError) -> Answer:
    if isinstance(found, CoregwError):
        raise found
    return found


class _Object:
    """An object as it arrives (`coregw.client.transport.exchange.PartialAnswer`)."""

    def __init__(self, sink: Callable[[], Sink]) -> None:
        self._sink = sink
        self._write: Callable[[bytes], None] = lambda chunk: None  # set by `restarted`
        self.size = 0
        self.senders: set[str] = set()

    def restarted(self) -> _Object:
        self.size = 0
        self._write = self._sink().write
        return self

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._write(chunk)
