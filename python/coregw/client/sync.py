"""The blocking client: moves the bytes of ``operations`` and ``trees`` over httpx2. Leaves out all deciding."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, TypeVar

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
from coregw.client.wire import Answer, Call, Receiver
from coregw.errors import CoregwError
from coregw.messages import Delta, MutationReceipt

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """A client that need not trust its gateway: every answer is verified or recomputed before it is returned.

    Every method raises `Unavailable` if the gateway can't be reached or can't answer now (after retries),
    `InvalidInput` for arguments that the protocol does not allow, and `ProofError` for an answer that is not proven.
    Safe to share between threads. Use it as a context manager, or `close` it.

    Args:
        base_url: The gateway's address.
        settings: Limits and timeouts.

    Example::

        with Client() as client:
            readme = client.put_payload(b"hello")
            root = client.create_root({"docs/readme": readme})
            data = client.get_payload(client.resolve(root, "docs/readme"))
    """

    def __init__(self, base_url: str = DEFAULT_GATEWAY, settings: ClientSettings | None = None) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self._http = httpx2.Client(**http_options(base_url, self.settings))
        self._retrying = tenacity.Retrying(**retries(self.settings))

    @property
    def base_url(self) -> str:
        """The gateway's address, without a slash at its end."""
        return str(self._http.base_url).rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    # Storing

    def put_payload(self, data: bytes | Path, codec: str | int = "raw", hash: str = "sha2-256") -> str:
        """Stores a payload and returns its CID; see `operations.put_payload`."""
        return self._run(operations.put_payload(self.settings, data, codec, hash))

    def put_payloads(self, datas: Iterable[bytes], codec: str | int = "raw") -> list[str]:
        """Stores payloads in batches and returns their CIDs; see `batches.put_payloads`."""
        return self._run(batches.put_payloads(self.settings, datas, codec))

    def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Whether the gateway says that it has each payload; see `batches.has_payloads`."""
        return self._run(batches.has_payloads(self.settings, cids))

    def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Makes a map and returns its root; see `operations.create_root`."""
        return self._run(operations.create_root(self.settings, arcs, suite))

    def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Makes a list and returns its root; see `operations.create_list`."""
        return self._run(operations.create_list(self.settings, elements, sizes, suite=suite, base=base))

    # Changing

    def update(self, root: CidLike, set: Mapping[str, CidLike], remove: Iterable[PathLike] = ()) -> str:
        """Binds and removes paths of a map and returns the proven new root; see `changing.update`."""
        return self._run(changing.update(self.settings, root, set, remove))

    def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Changes maps and lists by deltas; the receipt is proven. See `changing.mutate`."""
        return self._run(changing.mutate(self.settings, root, deltas))

    # Asking

    def ask(self, question: Question[T]) -> Proven[T]:
        """Asks, verifies, and returns the pair that proves the answer; see `operations.ask`."""
        return self._run(operations.ask(self.settings, question))

    def resolve(self, root: CidLike, path: PathLike) -> str:
        """The CID that a path leads to. Raises `PathNotFound` if the gateway finds none; that is not proven."""
        return self._run(operations.answered(self.settings, resolve(root, path)))

    def resolve_many(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """The CID that each path leads to, None where the gateway finds none; see `batches.resolve_many`."""
        return self._run(batches.resolve_many(self.settings, root, paths))

    def read_key(self, root: CidLike, path: PathLike) -> str:
        """The target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
        return self._run(operations.key_target(self.settings, root, path))

    def read_index(self, root: CidLike, index: int) -> str:
        """The target of an element of a list. Raises `IndexNotFound` for a list proven to be shorter."""
        return self._run(operations.index_target(self.settings, root, index))

    def read_range(self, root: CidLike, start: int, end: int | None = None) -> _core.ReadOutcome:
        """The elements of a list that meet ``[start, end)``, in units of its measure."""
        return self._run(operations.range_outcome(self.settings, root, start, end))

    def prove_key(self, root: CidLike, path: PathLike) -> str | None:
        """The target of a key of a map, or None: proven absent."""
        return self._run(operations.answered(self.settings, map_proof(root, path)))

    def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """One page of a map's entries at and below `prefix`, proven to be without a gap."""
        return self._run(operations.answered(self.settings, scan(root, prefix, after, limit)))

    # Payloads and trees

    def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """The bytes of a payload, hashed before they are returned; see `operations.get_payload`."""
        return self._run(operations.get_payload(self.settings, cid, max_bytes))

    def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Streams a payload into an open file and returns its size; see `operations.download`."""
        return self._run(operations.download(self.settings, cid, file, max_bytes))

    def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Streams a payload to a new file and returns its size; see `operations.save_payload`."""
        return self._run(operations.save_payload(self.settings, cid, path, max_bytes))

    def contents(self, target: CidLike) -> Generator[bytes, None, None]:
        """The verified bytes of a payload or a measured list, piece by piece; see `trees.contents`."""
        return self._stream(trees.contents(self.settings, target))

    def list_size(self, target: CidLike) -> int:
        """The proven sum of a list's measures."""
        return self._run(trees.list_size(self.settings, target))

    def entries(self, root: CidLike, prefix: PathLike = ()) -> Generator[trees.Leaf, None, None]:
        """Every entry of one map at and below `prefix`; see `trees.entries`."""
        return self._stream(trees.entries(self.settings, root, prefix))

    def children(self, root: CidLike, prefix: PathLike = ()) -> Generator[trees.Entry, None, None]:
        """One level of a map, as a directory; see `trees.children`."""
        return self._stream(trees.children(self.settings, root, prefix))

    def walk(self, root: CidLike, prefix: PathLike = ()) -> Generator[trees.Leaf, None, None]:
        """Every payload and list of a tree, nested maps followed; see `trees.walk`."""
        return self._stream(trees.walk(self.settings, root, prefix))

    def diff(self, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Generator[diffs.Difference, None, None]:
        """Every difference between two maps at and below `prefix`; see `diffs.differences`."""
        return self._stream(diffs.differences(self.settings, a, b, prefix))

    def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """What to list for a path; see `trees.locate`."""
        return self._run(trees.locate(self.settings, root, path))

    # CAR files

    def export_car(
        self, root: CidLike, path: Path, *, payloads: bool = False, progress: cars.Advance | None = None
    ) -> cars.ExportedCar:
        """Writes a root's whole tree to a new CAR file, verified before it gets its name; see `cars.NewCar`."""
        with cars.NewCar(self.settings, root, path, payloads, progress) as new:
            self._run(new.fetch())
            return new.finish()

    def import_car(
        self, path: Path, *, name: str | None = None, progress: cars.Advance | None = None
    ) -> cars.ImportedCar:
        """Sends a CAR file to the gateway, which takes all of it or nothing; see `cars.import_car`."""
        return self._run(cars.import_car(self.settings, path, name, progress))

    # Moving bytes

    def _run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = resume(steps, self._outcome(call))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    def _stream(self, steps: Stream[T]) -> Generator[T, None, None]:
        try:
            item = next(steps)
            while True:
                if isinstance(item, Piece):
                    yield item.value
                    item = next(steps)
                else:
                    item = resume(steps, self._outcome(item))
        except StopIteration:
            return
        finally:
            steps.close()

    def _outcome(self, call: Call) -> Answer | CoregwError:
        try:
            return self._retrying.copy()(self._exchange, call)
        except CoregwError as error:
            return error

    def _exchange(self, call: Call) -> Answer:
        body = call.content
        content = body if body is None or isinstance(body, bytes) else body.chunks()
        with (
            transport_errors(call, self._http.base_url),
            self._http.stream(
                call.method, call.path, params=call.params, headers=call.headers, content=content
            ) as response,
        ):
            receiver = Receiver(call, self.settings, response.status_code, response.headers)
            for chunk in response.iter_raw():
                receiver.feed(chunk)
        return receiver.end()
