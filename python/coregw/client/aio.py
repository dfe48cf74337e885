"""The asyncio client: moves the bytes of ``operations`` and ``trees`` over httpx2. Leaves out all deciding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

import anyio.to_thread
import httpx2
import tenacity

from coregw import _core
from coregw.client import batches, cars, changing, diffs, operations, trees
from coregw.client.operations import Piece, Steps, Stream, resume
from coregw.client.questions import (
    CidLike,
    PathLike,
    Proven,
    Question,
    map_proof,
    resolve,
    scan,
)
from coregw.client.settings import DEFAULT_GATEWAY, ClientSettings
from coregw.client.transport import http_options, retries, transport_errors
from coregw.client.wire import Answer, Body, Call, Receiver
from coregw.errors import CoregwError
from coregw.messages import Delta, MutationReceipt

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient:
    """A client that need not trust its gateway: every answer is verified or recomputed before it is returned.

    Every method raises `Unavailable` if the gateway can't be reached or can't answer now (after retries),
    `InvalidInput` for arguments that the protocol does not allow, and `ProofError` for an answer that is not proven.
    Safe to share between the tasks of one event loop. Use it as an asynchronous context manager, or `aclose` it.

    Args:
        base_url: The gateway's address.
        settings: Limits and timeouts.

    Example::

        async with AsyncClient() as client:
            readme = await client.put_payload(b"hello")
            root = await client.create_root({"docs/readme": readme})
            data = await client.get_payload(await client.resolve(root, "docs/readme"))
    """

    def __init__(self, base_url: str = DEFAULT_GATEWAY, settings: ClientSettings | None = None) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self._http = httpx2.AsyncClient(**http_options(base_url, self.settings))
        self._retrying = tenacity.AsyncRetrying(**retries(self.settings))

    @property
    def base_url(self) -> str:
        """The gateway's address, without a slash at its end."""
        return str(self._http.base_url).rstrip("/")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    # Storing

    async def put_payload(self, data: bytes | Path, codec: str | int = "raw", hash: str = "sha2-256") -> str:
        """Stores a payload and returns its CID; see `operations.put_payload`."""
        return await self._run(operations.put_payload(self.settings, data, codec, hash))

    async def put_payloads(self, datas: Iterable[bytes], codec: str | int = "raw") -> list[str]:
        """Stores payloads in batches and returns their CIDs; see `batches.put_payloads`."""
        return await self._run(batches.put_payloads(self.settings, datas, codec))

    async def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Whether the gateway says that it has each payload; see `batches.has_payloads`."""
        return await self._run(batches.has_payloads(self.settings, cids))

    async def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Makes a map and returns its root; see `operations.create_root`."""
        return await self._run(operations.create_root(self.settings, arcs, suite))

    async def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Makes a list and returns its root; see `operations.create_list`."""
        return await self._run(operations.create_list(self.settings, elements, sizes, suite=suite, base=base))

    # Changing

    async def update(self, root: CidLike, set: Mapping[str, CidLike], remove: Iterable[PathLike] = ()) -> str:
        """Binds and removes paths of a map and returns the proven new root; see `changing.update`."""
        return await self._run(changing.update(self.settings, root, set, remove))

    async def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Changes maps and lists by deltas; the receipt is proven. See `changing.mutate`."""
        return await self._run(changing.mutate(self.settings, root, deltas))

    # Asking

    async def ask(self, question: Question[T]) -> Proven[T]:
        """Asks, verifies, and returns the pair that proves the answer; see `operations.ask`."""
        return await self._run(operations.ask(self.settings, question))

    async def resolve(self, root: CidLike, path: PathLike) -> str:
        """The CID that a path leads to. Raises `PathNotFound` if the gateway finds none; that is not proven."""
        return await self._run(operations.answered(self.settings, resolve(root, path)))

    async def resolve_many(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """The CID that each path leads to, None where the gateway finds none; see `batches.resolve_many`."""
        return await self._run(batches.resolve_many(self.settings, root, paths))

    async def read_key(self, root: CidLike, path: PathLike) -> str:
        """The target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
        return await self._run(operations.key_target(self.settings, root, path))

    async def read_index(self, root: CidLike, index: int) -> str:
        """The target of an element of a list. Raises `IndexNotFound` for a list proven to be shorter."""
        return await self._run(operations.index_target(self.settings, root, index))

    async def read_range(self, root: CidLike, start: int, end: int | None = None) -> _core.ReadOutcome:
        """The elements of a list that meet ``[start, end)``, in units of its measure."""
        return await self._run(operations.range_outcome(self.settings, root, start, end))

    async def prove_key(self, root: CidLike, path: PathLike) -> str | None:
        """The target of a key of a map, or None: proven absent."""
        return await self._run(operations.answered(self.settings, map_proof(root, path)))

    async def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """One page of a map's entries at and below `prefix`, proven to be without a gap."""
        return await self._run(operations.answered(self.settings, scan(root, prefix, after, limit)))

    # Payloads and trees

    async def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """The bytes of a payload, hashed before they are returned; see `operations.get_payload`."""
        return await self._run(operations.get_payload(self.settings, cid, max_bytes))

    async def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Streams a payload into an open file and returns its size; see `operations.download`."""
        return await self._run(operations.download(self.settings, cid, file, max_bytes))

    async def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Streams a payload to a new file and returns its size; see `operations.save_payload`."""
        return await self._run(operations.save_payload(self.settings, cid, path, max_bytes))

    def contents(self, target: CidLike) -> AsyncGenerator[bytes, None]:
        """The verified bytes of a payload or a measured list, piece by piece; see `trees.contents`."""
        return self._stream(trees.contents(self.settings, target))

    async def list_size(self, target: CidLike) -> int:
        """The proven sum of a list's measures."""
        return await self._run(trees.list_size(self.settings, target))

    def entries(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[trees.Leaf, None]:
        """Every entry of one map at and below `prefix`; see `trees.entries`."""
        return self._stream(trees.entries(self.settings, root, prefix))

    def children(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[trees.Entry, None]:
        """One level of a map, as a directory; see `trees.children`."""
        return self._stream(trees.children(self.settings, root, prefix))

    def walk(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[trees.Leaf, None]:
        """Every payload and list of a tree, nested maps followed; see `trees.walk`."""
        return self._stream(trees.walk(self.settings, root, prefix))

    def diff(self, a: CidLike, b: CidLike, prefix: PathLike = ()) -> AsyncGenerator[diffs.Difference, None]:
        """Every difference between two maps at and below `prefix`; see `diffs.differences`."""
        return self._stream(diffs.differences(self.settings, a, b, prefix))

    async def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """What to list for a path; see `trees.locate`."""
        return await self._run(trees.locate(self.settings, root, path))

    # CAR files

    async def export_car(
        self, root: CidLike, path: Path, *, payloads: bool = False, progress: cars.Advance | None = None
    ) -> cars.ExportedCar:
        """Writes a root's whole tree to a new CAR file, verified before it gets its name; see `cars.NewCar`."""
        with cars.NewCar(self.settings, root, path, payloads, progress) as new:
            await self._run(new.fetch())
            return await anyio.to_thread.run_sync(new.finish)

    async def import_car(
        self, path: Path, *, name: str | None = None, progress: cars.Advance | None = None
    ) -> cars.ImportedCar:
        """Sends a CAR file to the gateway, which takes all of it or nothing; see `cars.import_car`."""
        return await self._run(cars.import_car(self.settings, path, name, progress))

    # Moving bytes

    async def _run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = resume(steps, await self._outcome(call))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    async def _stream(self, steps: Stream[T]) -> AsyncGenerator[T, None]:
        try:
            item = next(steps)
            while True:
                if isinstance(item, Piece):
                    yield item.value
                    item = next(steps)
                else:
                    item = resume(steps, await self._outcome(item))
        except StopIteration:
            return
        finally:
            steps.close()

    async def _outcome(self, call: Call) -> Answer | CoregwError:
        try:
            return await self._retrying.copy()(self._exchange, call)
        except CoregwError as error:
            return error

    async def _exchange(self, call: Call) -> Answer:
        body = call.content
        content = body if body is None or isinstance(body, bytes) else _chunks(body)
        with transport_errors(call, self._http.base_url):
            async with self._http.stream(
                call.method, call.path, params=call.params, headers=call.headers, content=content
            ) as response:
                receiver = Receiver(call, self.settings, response.status_code, response.headers)
                async for chunk in response.aiter_raw():
                    receiver.feed(chunk)
        return receiver.end()


async def _chunks(body: Body) -> AsyncGenerator[bytes, None]:
    """A body made in a worker thread, so that reading a file does not hold up the event loop."""
    with closing(body.chunks()) as pieces:
        while (chunk := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
            yield chunk
