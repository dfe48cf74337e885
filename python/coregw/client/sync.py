"""`Client`, which blocks, and what it opens: published names and files."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from coregw import _core, client
from coregw.client import operations
from coregw.client.file_ranges import Cached, Position, copied
from coregw.client.files import as_bytes
from coregw.client.operations.steps import Steps
from coregw.client.query import Proven, Query, map_proof, resolve, scan
from coregw.client.settings import ClientSettings
from coregw.client.sync_driver import BlockingDriver
from coregw.client.transport.gateways import watch_forks
from coregw.messages import Delta, MutationReceipt
from coregw.verify import Buffer, CidLike, PathLike

__all__ = ["Client", "File", "FileClient"]

T = TypeVar("T")


class Client(BlockingDriver):
    """A client that does not trust its gateway: every answer is verified or recomputed before it is returned.

    Every method raises `Unavailable` if the gateway can't be reached or is unavailable (after retries),
    `InvalidInput` if an argument is not valid, and `ProofError` if an answer is not proven.
    Safe to share between threads. Use it as a context manager, or call `close`.

    Args:
        base_url: The gateway's address, or the addresses of several that serve the same store: if one does not answer,
            or is unavailable, the client switches to the next one and stays there. ``static+`` and the URL of a static
            tree is an address too: then this process runs a gateway's engine, and reads and checks the tree's
            files. Credentials in an address are sent as basic authentication, and never shown.
        settings: Limits and timeouts.
        connection: Headers, credentials, certificates and proxies.
        trust: The trust store: its names stand for roots in every call, and it remembers the publications seen.

    Example::

        with Client() as client:
            readme = client.put_payload(b"hello")
            root = client.create_root({"docs/readme": readme})
            data = client.get_payload(client.resolve(root, "docs/readme"))
    """

    @property
    def publications(self) -> client.Publications:
        """The published names of the gateway."""
        from coregw.client.publications import Publications  # noqa: PLC0415 - few programs need it

        return Publications(self._run, self.settings, self.root, self._observed, self._trust)

    # Payloads and new roots

    def put_payload(self, data: Buffer | Path, codec: str | int = "raw", hash: str = "sha2-256") -> str:
        """Store a payload and return its CID; see `operations.payloads.put_payload`."""
        return self._run(operations.payloads.put_payload(self.settings, data, codec, hash))

    def put_payloads(self, datas: Iterable[Buffer], codec: str | int = "raw") -> list[str]:
        """Store payloads in batches and return their CIDs; see `operations.car_import.put_payloads`."""
        return self._run(operations.car_import.put_payloads(self.settings, datas, codec, self._parts))

    def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Return whether the gateway says that it holds each payload; see `operations.car_import.has_payloads`."""
        return self._run(operations.car_import.has_payloads(self.settings, cids))

    def held_payloads(self, cids: Buffer, count: int) -> bytes:
        """Return which of these payloads are held as bits; see `operations.car_import.held_payloads`."""
        return self._run(operations.car_import.held_payloads(self.settings, cids, count))

    def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Create a map and return its root; see `operations.roots.create_root`."""
        return self._run(operations.roots.create_root(self.settings, arcs, suite, self._parts))

    def is_complete(self, root: CidLike) -> bool:
        """Return whether the gateway says that it holds everything below a root; see `operations.roots.is_complete`."""
        return self._run(operations.roots.is_complete(self.settings, self.root(root)))

    def build(self, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]], suite: str = "sha2-256") -> str:
        """Create a map of any number of arcs and return its root; see `operations.roots.sort_arcs`, `build_sorted`."""
        return self.build_sorted(operations.roots.sort_arcs(arcs), suite)

    def build_sorted(self, sorter: _core.ArcSorter, suite: str = "sha2-256") -> str:
        """Create the map of arcs that are sorted and return its root; see `operations.roots.build_sorted`."""
        return self._run(operations.roots.build_sorted(self.settings, sorter, suite, self._parts))

    def build_lines(self, lines: Callable[[int], Iterable[bytes]], root: str, suite: str) -> None:
        """Create the map of arcs that are lines, given its root; see `operations.roots.build_lines`."""
        self._run(operations.roots.build_lines(self.settings, lines, root, suite, parts=self._parts))

    def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Create a list and return its root; see `operations.roots.create_list`."""
        base = None if base is None else self.root(base)
        return self._run(
            operations.roots.create_list(self.settings, elements, sizes, suite=suite, base=base, parts=self._parts)
        )

    # Mutations

    def apply_changes(self, targets: Sequence[operations.mutate.Changes], what: str) -> None:
        """Change maps and lists to what is known to result; see `operations.mutate.apply_changes`."""
        self._run(operations.mutate.apply_changes(self.settings, targets, what, self._parts))

    def update(self, root: CidLike, set: Mapping[str, CidLike], remove: Iterable[PathLike] = ()) -> str:
        """Bind and remove paths of a map and return the proven new root; see `operations.mutate.update`."""
        return self._run(operations.mutate.update(self.settings, self.root(root), set, remove))

    def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Apply deltas to maps and lists and return the verified receipt; see `operations.mutate.mutate`."""
        return self._run(operations.mutate.mutate(self.settings, self.root(root), deltas))

    # Queries

    def query(self, query: Query[T]) -> Proven[T]:
        """Send a query and return the verified value with its proof; see `operations.lookup.prove`."""
        return self._run(operations.lookup.prove(self.settings, query))

    def resolve(self, root: CidLike, path: PathLike) -> str:
        """Return the target of a path. Raises `UnprovenAbsence` if the gateway says that nothing is found."""
        return self._run(operations.lookup.value(self.settings, resolve(self.root(root), path)))

    def resolve_many(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the target of each path, None where nothing is found; see `operations.lookup.resolve_many`."""
        return self._run(operations.lookup.resolve_many(self.settings, self.root(root), paths))

    def read_key(self, root: CidLike, path: PathLike) -> str:
        """Return the target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
        return self._run(operations.lookup.key_target(self.settings, self.root(root), path))

    def read_index(self, root: CidLike, index: int) -> str:
        """Return the target of a list element. Raises `IndexNotFound` for a list proven to be shorter."""
        return self._run(operations.lookup.index_target(self.settings, self.root(root), index))

    def read_range(self, root: CidLike, start: int, end: int | None = None) -> _core.ReadOutcome:
        """Return the elements of a list that intersect ``[start, end)``, in units of its measure."""
        return self._run(operations.lookup.range_outcome(self.settings, self.root(root), start, end))

    def prove_key(self, root: CidLike, path: PathLike) -> str | None:
        """Return the target of a key of a map, or None if the key is proven absent."""
        return self._run(operations.lookup.value(self.settings, map_proof(self.root(root), path)))

    def prove_keys(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the target of each key of a map, None where it is proven absent; see `lookup.prove_keys`."""
        return self._run(operations.lookup.prove_keys(self.settings, self.root(root), paths))

    def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """Return one page of a map's entries at and below `prefix`, proven to have no gaps."""
        return self._run(operations.lookup.value(self.settings, scan(self.root(root), prefix, after, limit)))

    # Reading payloads and trees

    def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """Return the verified bytes of a payload; see `operations.payloads.get_payload`."""
        return self._run(operations.payloads.get_payload(self.settings, cid, max_bytes))

    def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request payloads and give the answer to their sink; see `operations.payloads.get_payloads`."""
        self._run(operations.payloads.get_payloads(self.settings, request))

    def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Stream a payload into an open file and return its size; see `operations.payloads.download`."""
        return self._run(operations.payloads.download(self.settings, cid, file, max_bytes))

    def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Stream a payload to a new file and return its size; see `operations.payloads.save_payload`."""
        return self._run(operations.payloads.save_payload(self.settings, cid, path, max_bytes))

    def open(self, root: CidLike, path: PathLike = ()) -> client.File:
        """Open the file at a path, or that is `root` itself, to read it; see `coregw.client.File`."""
        return File(self, self.resolve(root, path) if path else self.root(root))

    def contents(self, target: CidLike) -> Generator[bytes, None, None]:
        """Yield the verified bytes of a payload or measured list in chunks; see `operations.tree.contents`."""
        return self._stream(operations.tree.contents(self.settings, self.root(target)))

    def list_size(self, target: CidLike) -> int:
        """Return the proven sum of a list's measures; see `operations.tree.list_size`."""
        return self._run(operations.tree.list_size(self.settings, self.root(target)))

    def list_elements(
        self, target: CidLike, *, limit: Callable[[int, int], int] | None = None
    ) -> list[tuple[str, int]]:
        """Return the payloads of a file that is a list, with their sizes; see `operations.tree.list_elements`."""
        return self._run(operations.tree.list_elements(self.settings, self.root(target), limit))

    def history_of_scope(self, scope: str, token: str) -> Generator[client.PublishedRecord, None, None]:
        """Yield every revision of all names of a scope; see `operations.publications.history_of_scope`."""
        return self._stream(operations.publications.history_of_scope(self.settings, scope, token))

    def entries(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Leaf, None, None]:
        """Yield every entry of one map at and below `prefix`; see `operations.tree.entries`."""
        return self._stream(operations.tree.entries(self.settings, self.root(root), prefix))

    def children(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Entry, None, None]:
        """Yield one level of a map, as a directory; see `operations.tree.children`."""
        return self._stream(operations.tree.children(self.settings, self.root(root), prefix))

    def walk(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Leaf, None, None]:
        """Yield every payload and list of a tree, following nested maps, but not what folders record of their paths.

        See `operations.tree.walk`.
        """
        return self._stream(operations.tree.walk(self.settings, self.root(root), prefix))

    def diff(self, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Generator[operations.diff.Difference, None, None]:
        """Yield every difference between two maps at and below `prefix`; see `operations.diff.differences`."""
        return self._stream(operations.diff.differences(self.settings, self.root(a), self.root(b), prefix))

    def diff_folders(
        self, a: CidLike, b: CidLike, prefix: PathLike = ()
    ) -> Generator[client.FolderDifference, None, None]:
        """Yield every difference between two folders, attributes included; see `operations.diff`."""
        return self._stream(operations.diff.folder_differences(self.settings, self.root(a), self.root(b), prefix))

    def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """Return the CID and prefix to list for a path; see `operations.tree.locate`."""
        return self._run(operations.tree.locate(self.settings, self.root(root), path))

    def published(self, scope: str, name: str) -> client.PublishedRecord:
        """Return what is published under a name; see `operations.publications.published`."""
        return self.publications.get(scope, name)

    # CAR files

    def export_car(
        self,
        root: CidLike,
        path: Path,
        *,
        payloads: bool = False,
        progress: operations.car_import.Advance | None = None,
    ) -> client.ExportedCar:
        """Write a root's tree to a new CAR file, which appears only when verified; see `car_export.NewCar`."""
        from coregw.client.operations.car_export import NewCar  # noqa: PLC0415 - few programs need it

        with NewCar(self.settings, self.root(root), path, payloads, progress) as new:
            self._run(new.fetch())
            return new.finish()

    def put_car(self, data: Buffer, what: str = "send a CAR") -> None:
        """Send a CAR that is in memory to the gateway, which imports all of it; see `operations.car_import.put_car`."""
        self._run(operations.car_import.put_car(self.settings, as_bytes(data), what, self._parts))

    def import_car(
        self, path: Path, *, name: str | None = None, progress: operations.car_import.Advance | None = None
    ) -> operations.car_import.ImportedCar:
        """Send a CAR file to the gateway, which imports all of it or nothing; see `car_import.import_car`."""
        return self._run(operations.car_import.import_car(self.settings, path, name, progress, self._parts))

    # Folders

    def add(
        self,
        path: Path,
        *,
        suite: str = "sha2-256",
        attributes: client.Level = "all",
        owner: bool = False,
        xattrs: bool = False,
        exclude: Sequence[str] = (),
        gitignore: bool = False,
        use_cache: bool = True,
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.Added:
        """Add a folder or a file, and return its root with what was added and skipped; see `AsyncClient.add`.

        It works with connections of its own in another thread, which also calls `progress`.
        """
        return self._in_thread(
            lambda client: client.add(
                path,
                suite=suite,
                attributes=attributes,
                owner=owner,
                xattrs=xattrs,
                exclude=exclude,
                gitignore=gitignore,
                use_cache=use_cache,
                progress=progress,
            )
        )

    def get(
        self,
        root: CidLike,
        dest: Path,
        *,
        delete: bool = False,
        delete_excluded: bool = False,
        exclude: Sequence[str] = (),
        gitignore: bool = False,
        in_place: bool = False,
        links: client.Links = "inside",
        allow_git: bool = False,
        owners: bool = False,
        xattrs: bool = False,
        xattr_names: Sequence[str] = (),
        use_cache: bool = True,
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.Restored:
        """Write the verified tree of a map root to the folder `dest`, or update that; see `AsyncClient.get`.

        It works with connections of its own in another thread, which also calls `progress`.
        """
        return self._in_thread(
            lambda client: client.get(
                root,
                dest,
                delete=delete,
                delete_excluded=delete_excluded,
                exclude=exclude,
                gitignore=gitignore,
                in_place=in_place,
                links=links,
                allow_git=allow_git,
                owners=owners,
                xattrs=xattrs,
                xattr_names=xattr_names,
                use_cache=use_cache,
                progress=progress,
            )
        )

    def diff_tree(
        self,
        root: CidLike,
        path: Path,
        *,
        attributes: client.Level | None = None,
        exclude: Sequence[str] = (),
        gitignore: bool = False,
        as_added: bool = False,
    ) -> client.ComparedFolder:
        """Compare a root with a folder or file of this machine; see `AsyncClient.diff_tree`.

        It works with connections of its own in another thread.
        """
        return self._in_thread(
            lambda client: client.diff_tree(
                root, path, attributes=attributes, exclude=exclude, gitignore=gitignore, as_added=as_added
            )
        )

    def mirror(
        self,
        root: CidLike,
        destination: Client,
        *,
        bases: Iterable[CidLike] = (),
        payloads: bool = True,
        line: str = "",
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.Mirrored:
        """Copy a root and everything below it to another gateway, by what differs; see `AsyncClient.mirror`.

        It works with connections of its own in another thread, which also calls `progress`.
        """

        async def copy(source: client.AsyncClient) -> client.Mirrored:
            async with destination._asynchronous() as there:
                return await source.mirror(root, there, bases=bases, payloads=payloads, line=line, progress=progress)

        return self._in_thread(copy)

    def mirror_published(
        self,
        scope: str,
        name: str,
        destination: Client,
        *,
        token: str | None = None,
        destination_token: str | None = None,
        payloads: bool = True,
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.MirroredName:
        """Copy what is published under a name, and publish it there, too; see `AsyncClient.mirror_published`.

        It works with connections of its own in another thread, which also calls `progress`.
        """

        async def copy(source: client.AsyncClient) -> client.MirroredName:
            async with destination._asynchronous() as there:
                return await source.mirror_published(
                    scope,
                    name,
                    there,
                    token=token,
                    destination_token=destination_token,
                    payloads=payloads,
                    progress=progress,
                )

        return self._in_thread(copy)

    def _in_thread(self, work: Callable[[client.AsyncClient], Coroutine[None, None, T]]) -> T:
        """Return what `work` returns for an asyncio client of the same gateway, in another thread."""
        from coregw.concurrency import EventLoopThread  # noqa: PLC0415 - so that this module loads no asyncio

        async def run() -> T:
            async with self._asynchronous() as client:
                return await work(client)

        with EventLoopThread() as thread:
            return thread.call(run())

    def _asynchronous(self) -> client.AsyncClient:
        """Return an asyncio client of the same gateways, with what this one knows of them."""
        from coregw.client.aio import AsyncClient  # noqa: PLC0415 - so that this module loads no asyncio

        return AsyncClient(self._given, self.settings, self._connection, self._transport.gateways, trust=self._trust)


_READ1_BYTES = 64 << 10


class FileClient(Protocol):
    """What an open file needs of `coregw.client.Client`."""

    settings: ClientSettings

    @property
    def cache(self) -> Cached:
        """What the open files of the client keep."""

    def run(self, steps: Steps[T]) -> T:
        """Drive an operation to its end, and return its value."""


class File(io.BufferedIOBase):
    """A file that is read from a gateway: seekable, read-only, and every byte verified before it is returned.

    Only the payloads that hold what is read are fetched; they are cached by the client, for all of its files. A read
    that continues where the last one ended fetches more and more ahead, up to ``read_ahead_bytes`` of the settings.

    Safe to share between threads, which share the position; `read_at` has none. After a fork each process has its own.
    A copy that is pickled has a client of its own, with the same addresses, settings and credentials. Closing a file
    does not close its client.

    Args:
        client: The client.
        target: The CID of a payload, or of a list of payloads whose measures are their sizes.
        recorded: The size that a record says the file has, if there is one. What is read has to agree.
        offset: The position.

    Attributes:
        cid: The file's CID.
        mode: ``rb``.

    Raises:
        InvalidInput: The target is a map (code ``kind_mismatch``).
    """

    mode = "rb"

    def __init__(self, client: FileClient, target: CidLike, recorded: int | None = None, offset: int = 0) -> None:
        self._client = client
        self._position = Position(client.settings, client.cache, target, recorded, offset)
        self._lock = threading.RLock()
        self.cid = self._position.reading.target.text
        watch_forks(self)

    def forked(self) -> object:
        """Forget what a thread of the parent process may hold."""
        kept, self._lock = self._lock, threading.RLock()
        return kept

    def __reduce__(self) -> tuple[object, ...]:
        self._check_open()
        reading = self._position.reading
        return type(self), (self._client, self.cid, reading.recorded, self._position.offset)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {self.cid}{' closed' if self.closed else ''}>"

    @property
    def name(self) -> str:
        """The file's CID."""
        return self.cid

    @property
    def size(self) -> int:
        """The size in bytes. The first use may send a request; see `coregw.client.file_ranges.Reading.size`."""
        with self._lock:
            self._check_open()
            return self._client.run(self._position.reading.size())

    def readable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, fewer than `size` only at the end of the file; all that follow for -1 or None.

        Raises:
            InvalidInput: The target is not a file: the elements of its list are not payloads of the proven sizes.
            PayloadNotFound: The gateway says that it does not hold a payload.
            ProofError: An answer is not proven.
            Unavailable: The gateway can't be reached.
            ValueError: The file is closed.
        """
        with self._lock:
            self._check_open()
            if size is not None and size >= 0 and (found := self._position.kept(size)) is not None:
                return found
            return self._client.run(self._position.read(size))

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size`; about 64 KiB for -1. See `read`."""
        return self.read(size if size >= 0 else _READ1_BYTES)

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into a buffer, and return how many bytes; fewer than it has only at the end. See `read`."""
        return copied(self.read(memoryview(buffer).nbytes), buffer)

    def readinto1(self, buffer: Buffer, /) -> int:
        """Read into a buffer, and return how many bytes. See `read`."""
        return self.readinto(buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line with its end, or at most `size` bytes of it; empty at the end of the file."""
        with self._lock:
            self._check_open()
            limit = -1 if size is None else size
            if limit < 0 and (found := self._position.kept_line()) is not None:
                return found
            return self._client.run(self._position.line(limit))

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on, without the position. Several threads can do so at once.

        Raises:
            ValueError: `offset` is negative, or the file closed. Otherwise as `read`.
        """
        self._check_open()
        return self._client.run(self._position.read_at(offset, size))

    def peek(self, size: int = 0, /) -> bytes:
        """Return some of the next bytes without moving; none only at the end of the file. `size` is ignored."""
        with self._lock:
            self._check_open()
            return self._client.run(self._position.peek())

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move, and return the position. From the end, the first use may send a request, as `size`.

        Raises:
            ValueError: The position would be negative, `whence` is unknown, or the file is closed.
        """
        with self._lock:
            self._check_open()
            return self._client.run(self._position.seek(offset, whence))

    def tell(self) -> int:
        """Return the position in bytes from the start."""
        with self._lock:
            self._check_open()
            return self._position.offset

    def close(self) -> None:
        """Close the file, not its client. Idempotent."""
        if not self.closed and "_position" in vars(self):  # the finalizer closes what __init__ refused, too
            self._position.forget()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
