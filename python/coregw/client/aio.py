"""`AsyncClient`, and what it opens: published names and files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeVar

from coregw import _core, client
from coregw.client import operations
from coregw.client.aio_driver import AsyncDriver
from coregw.client.file_ranges import Cached, Position, copied
from coregw.client.files import as_bytes, pipe_content
from coregw.client.operations.steps import Steps
from coregw.client.query import Proven, Query, map_proof, resolve, scan
from coregw.client.settings import ClientSettings
from coregw.concurrency import in_stoppable_thread, in_thread
from coregw.messages import Delta, MutationReceipt
from coregw.verify import Buffer, CidLike, PathLike

if TYPE_CHECKING:
    from coregw.client.mirror_side import Side

__all__ = ["AsyncClient", "AsyncFile", "AsyncFileClient"]

T = TypeVar("T")


class AsyncClient(AsyncDriver):
    """A client that does not trust its gateway: every answer is verified or recomputed before it is returned.

    Every method raises `Unavailable` if the gateway can't be reached or is unavailable (after retries),
    `InvalidInput` if an argument is not valid, and `ProofError` if an answer is not proven.
    Safe to share between the tasks of one event loop. Use it as an asynchronous context manager, or call `aclose`.

    Args:
        base_url: The gateway's address, or the addresses of several that serve the same store: if one does not answer,
            or is unavailable, the client switches to the next one and stays there. ``static+`` and the URL of a static
            tree is an address too: then this process runs a gateway's engine, and reads and checks the tree's
            files. Credentials in an address are sent as basic authentication, and never shown.
        settings: Limits and timeouts.
        connection: Headers, credentials, certificates and proxies.
        gateways: What another client with the same arguments knows about the gateways.
        trust: The trust store: its names stand for roots in every call, and it remembers the publications seen.

    Example::

        async with AsyncClient() as client:
            readme = await client.put_payload(b"hello")
            root = await client.create_root({"docs/readme": readme})
            data = await client.get_payload(await client.resolve(root, "docs/readme"))
    """

    @property
    def publications(self) -> client.AsyncPublications:
        """The published names of the gateway."""
        from coregw.client.publications import AsyncPublications  # noqa: PLC0415 - few programs need it

        return AsyncPublications(self._run, self.settings, self.root, self._observed, self._trust)

    # Payloads and new roots

    async def put_payload(self, data: Buffer | Path, codec: str | int = "raw", hash: str = "sha2-256") -> str:
        """Store a payload and return its CID; see `operations.payloads.put_payload`."""
        if isinstance(data, Path):
            piped = await in_stoppable_thread(pipe_content, data, self.settings.max_payload_bytes)
            data = data if piped is None else piped
        return await self._run(operations.payloads.put_payload(self.settings, data, codec, hash))

    async def put_payloads(self, datas: Iterable[Buffer], codec: str | int = "raw") -> list[str]:
        """Store payloads in batches and return their CIDs; see `operations.car_import.put_payloads`."""
        return await self._run(operations.car_import.put_payloads(self.settings, datas, codec, self._parts))

    async def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Return whether the gateway says that it holds each payload; see `operations.car_import.has_payloads`."""
        return await self._run(operations.car_import.has_payloads(self.settings, cids))

    async def held_payloads(self, cids: Buffer, count: int) -> bytes:
        """Return which of these payloads are held as bits; see `operations.car_import.held_payloads`."""
        return await self._run(operations.car_import.held_payloads(self.settings, cids, count))

    async def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Create a map and return its root; see `operations.roots.create_root`."""
        return await self._run(operations.roots.create_root(self.settings, arcs, suite, self._parts))

    async def is_complete(self, root: CidLike) -> bool:
        """Return whether the gateway says that it holds everything below a root; see `operations.roots.is_complete`."""
        return await self._run(operations.roots.is_complete(self.settings, self.root(root)))

    async def build(
        self, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]], suite: str = "sha2-256"
    ) -> str:
        """Create a map of any number of arcs and return its root; see `operations.roots.sort_arcs`, `build_sorted`."""
        return await self.build_sorted(await asyncio.to_thread(operations.roots.sort_arcs, arcs), suite)

    async def build_sorted(self, sorter: _core.ArcSorter, suite: str = "sha2-256") -> str:
        """Create the map of arcs that are sorted and return its root; see `operations.roots.build_sorted`."""
        return await self._run(operations.roots.build_sorted(self.settings, sorter, suite, self._parts))

    async def build_lines(self, lines: Callable[[int], Iterable[bytes]], root: str, suite: str) -> None:
        """Create the map of arcs that are lines, given its root; see `operations.roots.build_lines`."""
        await self._run(operations.roots.build_lines(self.settings, lines, root, suite, parts=self._parts))

    async def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Create a list and return its root; see `operations.roots.create_list`."""
        base = None if base is None else self.root(base)
        return await self._run(
            operations.roots.create_list(self.settings, elements, sizes, suite=suite, base=base, parts=self._parts)
        )

    # Mutations

    async def apply_changes(self, targets: Sequence[operations.mutate.Changes], what: str) -> None:
        """Change maps and lists to what is known to result; see `operations.mutate.apply_changes`."""
        await self._run(operations.mutate.apply_changes(self.settings, targets, what, self._parts))

    async def update(self, root: CidLike, set: Mapping[str, CidLike], remove: Iterable[PathLike] = ()) -> str:
        """Bind and remove paths of a map and return the proven new root; see `operations.mutate.update`."""
        return await self._run(operations.mutate.update(self.settings, self.root(root), set, remove))

    async def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Apply deltas to maps and lists and return the verified receipt; see `operations.mutate.mutate`."""
        return await self._run(operations.mutate.mutate(self.settings, self.root(root), deltas))

    # Queries

    async def query(self, query: Query[T]) -> Proven[T]:
        """Send a query and return the verified value with its proof; see `operations.lookup.prove`."""
        return await self._run(operations.lookup.prove(self.settings, query))

    async def resolve(self, root: CidLike, path: PathLike) -> str:
        """Return the target of a path. Raises `UnprovenAbsence` if the gateway says that nothing is found."""
        return await self._run(operations.lookup.value(self.settings, resolve(self.root(root), path)))

    async def resolve_many(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the target of each path, None where nothing is found; see `operations.lookup.resolve_many`."""
        return await self._run(operations.lookup.resolve_many(self.settings, self.root(root), paths))

    async def read_key(self, root: CidLike, path: PathLike) -> str:
        """Return the target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
        return await self._run(operations.lookup.key_target(self.settings, self.root(root), path))

    async def read_index(self, root: CidLike, index: int) -> str:
        """Return the target of a list element. Raises `IndexNotFound` for a list proven to be shorter."""
        return await self._run(operations.lookup.index_target(self.settings, self.root(root), index))

    async def read_range(self, root: CidLike, start: int, end: int | None = None) -> _core.ReadOutcome:
        """Return the elements of a list that intersect ``[start, end)``, in units of its measure."""
        return await self._run(operations.lookup.range_outcome(self.settings, self.root(root), start, end))

    async def prove_key(self, root: CidLike, path: PathLike) -> str | None:
        """Return the target of a key of a map, or None if the key is proven absent."""
        return await self._run(operations.lookup.value(self.settings, map_proof(self.root(root), path)))

    async def prove_keys(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the target of each key of a map, None where it is proven absent; see `lookup.prove_keys`."""
        return await self._run(operations.lookup.prove_keys(self.settings, self.root(root), paths))

    async def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """Return one page of a map's entries at and below `prefix`, proven to have no gaps."""
        return await self._run(operations.lookup.value(self.settings, scan(self.root(root), prefix, after, limit)))

    # Reading payloads and trees

    async def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """Return the verified bytes of a payload; see `operations.payloads.get_payload`."""
        return await self._run(operations.payloads.get_payload(self.settings, cid, max_bytes))

    async def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request payloads and give the answer to their sink; see `operations.payloads.get_payloads`."""
        await self._run(operations.payloads.get_payloads(self.settings, request))

    async def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Stream a payload into an open file and return its size; see `operations.payloads.download`."""
        return await self._run(operations.payloads.download(self.settings, cid, file, max_bytes))

    async def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Stream a payload to a new file and return its size; see `operations.payloads.save_payload`."""
        return await self._run(operations.payloads.save_payload(self.settings, cid, path, max_bytes))

    async def open(self, root: CidLike, path: PathLike = ()) -> client.AsyncFile:
        """Open the file at a path, or that is `root` itself, to read it; see `coregw.client.AsyncFile`."""
        return AsyncFile(self, await self.resolve(root, path) if path else self.root(root))

    def contents(self, target: CidLike) -> AsyncGenerator[bytes, None]:
        """Yield the verified bytes of a payload or measured list in chunks; see `operations.tree.contents`."""
        return self._stream(operations.tree.contents(self.settings, self.root(target)))

    async def list_size(self, target: CidLike) -> int:
        """Return the proven sum of a list's measures; see `operations.tree.list_size`."""
        return await self._run(operations.tree.list_size(self.settings, self.root(target)))

    async def list_elements(
        self, target: CidLike, *, limit: Callable[[int, int], int] | None = None
    ) -> list[tuple[str, int]]:
        """Return the payloads of a file that is a list, with their sizes; see `operations.tree.list_elements`."""
        return await self._run(operations.tree.list_elements(self.settings, self.root(target), limit))

    def history_of_scope(self, scope: str, token: str) -> AsyncGenerator[client.PublishedRecord, None]:
        """Yield every revision of all names of a scope; see `operations.publications.history_of_scope`."""
        return self._stream(operations.publications.history_of_scope(self.settings, scope, token))

    def entries(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[operations.tree.Leaf, None]:
        """Yield every entry of one map at and below `prefix`; see `operations.tree.entries`."""
        return self._stream(operations.tree.entries(self.settings, self.root(root), prefix))

    def children(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[operations.tree.Entry, None]:
        """Yield one level of a map, as a directory; see `operations.tree.children`."""
        return self._stream(operations.tree.children(self.settings, self.root(root), prefix))

    def walk(self, root: CidLike, prefix: PathLike = ()) -> AsyncGenerator[operations.tree.Leaf, None]:
        """Yield every payload and list of a tree, following nested maps, but not what folders record of their paths.

        See `operations.tree.walk`.
        """
        return self._stream(operations.tree.walk(self.settings, self.root(root), prefix))

    def diff(self, a: CidLike, b: CidLike, prefix: PathLike = ()) -> AsyncGenerator[operations.diff.Difference, None]:
        """Yield every difference between two maps at and below `prefix`; see `operations.diff.differences`."""
        return self._stream(operations.diff.differences(self.settings, self.root(a), self.root(b), prefix))

    def diff_folders(
        self, a: CidLike, b: CidLike, prefix: PathLike = ()
    ) -> AsyncGenerator[client.FolderDifference, None]:
        """Yield every difference between two folders, attributes included; see `operations.diff`."""
        a, b = self.root(a), self.root(b)
        return self._stream(operations.diff.folder_differences(self.settings, a, b, prefix))

    async def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """Return the CID and prefix to list for a path; see `operations.tree.locate`."""
        return await self._run(operations.tree.locate(self.settings, self.root(root), path))

    async def published(self, scope: str, name: str) -> client.PublishedRecord:
        """Return what is published under a name; see `operations.publications.published`."""
        return await self.publications.get(scope, name)

    # CAR files

    async def export_car(
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
            await self._run(new.fetch())
            return await in_thread(new.finish)

    async def put_car(self, data: Buffer, what: str = "send a CAR") -> None:
        """Send a CAR that is in memory to the gateway, which imports all of it; see `operations.car_import.put_car`."""
        await self._run_in_workers(operations.car_import.put_car(self.settings, as_bytes(data), what, self._parts))

    async def import_car(
        self, path: Path, *, name: str | None = None, progress: operations.car_import.Advance | None = None
    ) -> operations.car_import.ImportedCar:
        """Send a CAR file to the gateway, which imports all of it or nothing; see `car_import.import_car`."""
        steps = operations.car_import.import_car(self.settings, path, name, progress, self._parts)
        return await self._run_in_workers(steps)

    # Folders

    async def add(
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
        """Add a folder or a file, as ``coregw add`` does, and return its root with what was added and skipped.

        Args:
            path: The folder or file.
            suite: The hash function of the trees: ``sha2-256`` or ``blake3``.
            attributes: What is recorded besides the bytes: ``all``; ``no-times``; ``exec``, only symbolic links and
                whether files are executable; or ``none``.
            owner: Whether the numeric ids of owner and group are recorded.
            xattrs: Whether extended attributes are recorded.
            exclude: Patterns of what is left out, in the syntax of ``.gitignore``, relative to `path`. They come before
                those of ``.coregwignore`` files.
            gitignore: Whether ``.gitignore`` files count as well.
            use_cache: Whether files that have not changed since they were added last are not read.
            progress: Called with further numbers of bytes of files that were read or found unchanged.

        Raises:
            InvalidInput: A name is not UTF-8 or a path too long (code ``invalid_path``; the message names the file), or
                `path` is neither a folder nor a regular file, or an argument is none of those above.
            OSError: `path` can't be read.
            StorageFull: The gateway can't store more.
        """
        from coregw.client.folders.add import AddProgress, add_folder  # noqa: PLC0415 - few programs need it
        from coregw.folders.caches import UploadCache  # noqa: PLC0415 - the same
        from coregw.folders.tree import Recorded, survey  # noqa: PLC0415 - the same

        recorded = Recorded(attributes, owner, xattrs)
        found = await in_stoppable_thread(survey, path, exclude, gitignore, "add", None)
        cache = UploadCache.of(path, f"{suite} fastcdc 64 KiB") if use_cache else None
        return await add_folder(self, found, suite, AddProgress(hashed=progress), cache, recorded)

    async def get(
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
        """Write the verified tree of a map root to the folder `dest`, or update that.

        A new or empty `dest` gets the whole tree or nothing. In any other, files that have the right bytes stay, and
        each of the others is replaced when its new version is complete; so after a failure the same call continues.

        Args:
            root: A map root.
            dest: The folder. Its parent must exist.
            delete: Whether what is in `dest` but not in the tree is deleted, except for what `add` leaves out:
                ``.git``, and what patterns in ``.coregwignore`` files of `dest` exclude.
            delete_excluded: Whether that is deleted as well.
            exclude: Patterns of what else is not deleted, as for `add`. Nothing of the tree is left out.
            gitignore: Whether ``.gitignore`` files count as well.
            in_place: Whether a new `dest` is filled file by file as well.
            links: Which symbolic links are made: those that stay inside `dest`, or ``all``, as they are recorded.
            allow_git: Whether what is in a ``.git`` that was there may be changed: git runs programs that it names.
            owners: Whether owners, and set-uid and set-gid bits, are restored.
            xattrs: Whether extended attributes are restored; to root, those of users only (``user.``).
            xattr_names: Extended attributes that are restored in any case.
            use_cache: Whether files that have not changed since they were restored last are not read.
            progress: Called with further numbers of bytes that were written or compared.

        Raises:
            InvalidInput: `root` is not a map root; a path can't be made here, and the message names it; another
                process is restoring `dest`; or a file of patterns in it can't be read or parsed.
            OSError: The file system refused an operation.
            PayloadNotFound: The gateway does not hold a payload.
            TooLarge: The tree has more bytes than are free on the disk, or more entries than the client's settings
                allow.
        """
        from coregw.client.folders.destination import Extras  # noqa: PLC0415 - few programs need it
        from coregw.client.folders.restore import Deletion, restore_folder  # noqa: PLC0415 - the same
        from coregw.folders.caches import RestoreCache  # noqa: PLC0415 - the same

        return await restore_folder(
            self,
            self.root(root),
            dest,
            delete=Deletion(delete_excluded, exclude, gitignore) if delete or delete_excluded else None,
            in_place=in_place,
            links=links,
            allow_git=allow_git,
            extras=Extras(owners, xattrs, tuple(xattr_names)),
            cache=RestoreCache.of(dest) if use_cache else None,
            progress=progress,
        )

    async def diff_tree(
        self,
        root: CidLike,
        path: Path,
        *,
        attributes: client.Level | None = None,
        exclude: Sequence[str] = (),
        gitignore: bool = False,
        as_added: bool = False,
    ) -> client.ComparedFolder:
        """Compare a root with a folder or file of this machine; see `coregw.client.folders.compare.compare_folder`."""
        from coregw.client.folders.compare import compare_folder  # noqa: PLC0415 - few programs need it

        return await compare_folder(
            self,
            self.root(root),
            path,
            attributes=attributes,
            exclude=exclude,
            gitignore=gitignore,
            as_added=as_added,
        )

    async def mirror(
        self,
        root: CidLike,
        destination: AsyncClient,
        *,
        bases: Iterable[CidLike] = (),
        payloads: bool = True,
        line: str = "",
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.Mirrored:
        """Copy a root and everything below it to another gateway, by what differs; see `coregw.client.mirror`."""
        from coregw.client.mirror import mirror  # noqa: PLC0415 - few programs need it

        sides = self._side(), destination._side()
        root, bases = self.root(root), [self.root(base) for base in bases]
        return await mirror(*sides, root, bases=bases, payloads=payloads, line=line, progress=progress)

    async def mirror_published(
        self,
        scope: str,
        name: str,
        destination: AsyncClient,
        *,
        token: str | None = None,
        destination_token: str | None = None,
        payloads: bool = True,
        progress: Callable[[int], None] = lambda count: None,
    ) -> client.MirroredName:
        """Copy what is published under a name, and publish it there, too; see `coregw.client.mirror`."""
        from coregw.client.mirror import mirror_published  # noqa: PLC0415 - few programs need it

        sides, tokens = (self._side(), destination._side()), (token, destination_token)
        return await mirror_published(
            *sides, scope, name, tokens, payloads=payloads, progress=progress, observed=self._observed
        )

    def _side(self) -> Side:
        from coregw.client.mirror_side import Side  # noqa: PLC0415 - few programs need it

        address = self._transport.gateways.current.address
        return Side(address, self._run, self._stream, self.settings, self._connection, self._run_in_workers)


class AsyncFileClient(Protocol):
    """What an open file needs of `coregw.client.AsyncClient`."""

    settings: ClientSettings

    @property
    def cache(self) -> Cached:
        """What the open files of the client keep."""

    def run(self, steps: Steps[T]) -> Coroutine[Any, Any, T]:
        """Drive an operation to its end, and return its value."""


class AsyncFile:
    """A file that is read from a gateway by the tasks of one event loop; otherwise as `coregw.client.File`.

    Every method is a coroutine. An asynchronous context manager, and an asynchronous
    iterator of lines. Closing a file does not close its client.

    Args:
        client: The client.
        target: The CID of a payload, or of a list of payloads whose measures are their sizes.
        recorded: The size that a record says the file has, if there is one. What is read has to agree.

    Attributes:
        cid: The file's CID.
        closed: Whether the file is closed.

    Raises:
        InvalidInput: The target is a map (code ``kind_mismatch``).
    """

    def __init__(self, client: AsyncFileClient, target: CidLike, recorded: int | None = None) -> None:
        self._client = client
        self._position = Position(client.settings, client.cache, target, recorded)
        self._lock = asyncio.Lock()
        self.cid = self._position.reading.target.text
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def size(self) -> int:
        """Return the size in bytes. The first use may send a request."""
        return await self._run(self._position.reading.size())

    async def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer than `size` only at the end; all that follow for -1 or None.

        Raises:
            InvalidInput, PayloadNotFound, ProofError, Unavailable, ValueError: As `coregw.client.File.read`.
        """
        return await self._run(self._position.read(size))

    async def readinto(self, buffer: Buffer) -> int:
        """Read into a buffer, and return how many bytes; fewer than it has only at the end. See `read`."""
        return copied(await self.read(memoryview(buffer).nbytes), buffer)

    async def readline(self, limit: int = -1) -> bytes:
        """Return the next line with its end, or at most `limit` bytes of it; empty at the end of the file."""
        return await self._run(self._position.line(limit))

    async def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on, without the position. Several tasks can do so at once."""
        self._check_open()
        return await self._client.run(self._position.read_at(offset, size))

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move, and return the position. Raises `ValueError` if it would be negative."""
        return await self._run(self._position.seek(offset, whence))

    async def tell(self) -> int:
        """Return the position in bytes from the start."""
        self._check_open()
        return self._position.offset

    async def aclose(self) -> None:
        """Close the file, not its client. Idempotent."""
        self.closed = True
        self._position.forget()

    async def _run(self, steps: Steps[T]) -> T:
        async with self._lock:
            self._check_open()
            return await self._client.run(steps)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
