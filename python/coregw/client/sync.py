"""The blocking client: drives ``operations`` over libcurl. What is sent and verified is decided there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from coregw import _core, client
from coregw.client import operations
from coregw.client.driving.blocking import BlockingDriver
from coregw.client.files import as_bytes
from coregw.client.query import CidLike, PathLike, Proven, Query, map_proof, resolve, scan
from coregw.messages import Delta, MutationReceipt
from coregw.verify import Buffer

__all__ = ["Client"]

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
        """Store a payload and return its CID; see `operations.payload.put_payload`."""
        return self._run(operations.payload.put_payload(self.settings, data, codec, hash))

    def put_payloads(self, datas: Iterable[Buffer], codec: str | int = "raw") -> list[str]:
        """Store payloads in batches and return their CIDs; see `operations.batch.put_payloads`."""
        return self._run(operations.batch.put_payloads(self.settings, datas, codec, self._parts))

    def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Return whether the gateway says that it holds each payload; see `operations.batch.has_payloads`."""
        return self._run(operations.batch.has_payloads(self.settings, cids))

    def held_payloads(self, cids: Buffer, count: int) -> bytes:
        """Return which of these payloads are held as bits; see `operations.batch.held_payloads`."""
        return self._run(operations.batch.held_payloads(self.settings, cids, count))

    def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Create a map and return its root; see `operations.root.create_root`."""
        return self._run(operations.root.create_root(self.settings, arcs, suite, self._parts))

    def is_complete(self, root: CidLike) -> bool:
        """Return whether the gateway says that it holds everything below a root; see `operations.root.is_complete`."""
        return self._run(operations.root.is_complete(self.settings, self.root(root)))

    def build(self, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]], suite: str = "sha2-256") -> str:
        """Create a map of any number of arcs and return its root; see `operations.root.sort_arcs`, `build_sorted`."""
        return self.build_sorted(operations.root.sort_arcs(arcs), suite)

    def build_sorted(self, sorter: _core.ArcSorter, suite: str = "sha2-256") -> str:
        """Create the map of arcs that are sorted and return its root; see `operations.root.build_sorted`."""
        return self._run(operations.root.build_sorted(self.settings, sorter, suite, self._parts))

    def build_lines(self, lines: Callable[[int], Iterable[bytes]], root: str, suite: str) -> None:
        """Create the map of arcs that are lines, given its root; see `operations.root.build_lines`."""
        self._run(operations.root.build_lines(self.settings, lines, root, suite, parts=self._parts))

    def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Create a list and return its root; see `operations.root.create_list`."""
        base = None if base is None else self.root(base)
        return self._run(
            operations.root.create_list(self.settings, elements, sizes, suite=suite, base=base, parts=self._parts)
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
        """Return the target of each path, None where nothing is found; see `operations.paths.resolve_many`."""
        return self._run(operations.paths.resolve_many(self.settings, self.root(root), paths))

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
        """Return the target of each key of a map, None where it is proven absent; see `operations.paths.prove_keys`."""
        return self._run(operations.paths.prove_keys(self.settings, self.root(root), paths))

    def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """Return one page of a map's entries at and below `prefix`, proven to have no gaps."""
        return self._run(operations.lookup.value(self.settings, scan(self.root(root), prefix, after, limit)))

    # Reading payloads and trees

    def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """Return the verified bytes of a payload; see `operations.payload.get_payload`."""
        return self._run(operations.payload.get_payload(self.settings, cid, max_bytes))

    def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request payloads and give the answer to their sink; see `operations.payload.get_payloads`."""
        self._run(operations.payload.get_payloads(self.settings, request))

    def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Stream a payload into an open file and return its size; see `operations.payload.download`."""
        return self._run(operations.payload.download(self.settings, cid, file, max_bytes))

    def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Stream a payload to a new file and return its size; see `operations.payload.save_payload`."""
        return self._run(operations.payload.save_payload(self.settings, cid, path, max_bytes))

    def open(self, root: CidLike, path: PathLike = ()) -> client.File:
        """Open the file at a path, or that is `root` itself, to read it; see `coregw.client.File`."""
        from coregw.client.opened.blocking import File  # noqa: PLC0415 - few programs need it

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
        """Yield every revision of all names of a scope; see `operations.record.history_of_scope`."""
        return self._stream(operations.record.history_of_scope(self.settings, scope, token))

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
        """Yield every difference between two folders, attributes included; see `operations.folder_diff`."""
        return self._stream(
            operations.folder_diff.folder_differences(self.settings, self.root(a), self.root(b), prefix)
        )

    def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """Return the CID and prefix to list for a path; see `operations.tree.locate`."""
        return self._run(operations.tree.locate(self.settings, self.root(root), path))

    def published(self, scope: str, name: str) -> client.PublishedRecord:
        """Return what is published under a name; see `operations.record.published`."""
        return self.publications.get(scope, name)

    # CAR files

    def export_car(
        self, root: CidLike, path: Path, *, payloads: bool = False, progress: operations.car.Advance | None = None
    ) -> client.ExportedCar:
        """Write a root's tree to a new CAR file, which appears only when verified; see `cars.export.NewCar`."""
        from coregw.client.cars.export import NewCar  # noqa: PLC0415 - few programs need it

        with NewCar(self.settings, self.root(root), path, payloads, progress) as new:
            self._run(new.fetch())
            return new.finish()

    def put_car(self, data: Buffer, what: str = "send a CAR") -> None:
        """Send a CAR that is in memory to the gateway, which imports all of it; see `operations.car.put_car`."""
        self._run(operations.car.put_car(self.settings, as_bytes(data), what, self._parts))

    def import_car(
        self, path: Path, *, name: str | None = None, progress: operations.car.Advance | None = None
    ) -> operations.car.ImportedCar:
        """Send a CAR file to the gateway, which imports all of it or nothing; see `operations.car.import_car`."""
        return self._run(operations.car.import_car(self.settings, path, name, progress, self._parts))

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
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 - so that this module loads no asyncio

        async def run() -> T:
            async with self._asynchronous() as client:
                return await work(client)

        with start_blocking_portal() as portal:
            return portal.call(run)

    def _asynchronous(self) -> client.AsyncClient:
        """Return an asyncio client of the same gateways, with what this one knows of them."""
        from coregw.client.aio import AsyncClient  # noqa: PLC0415 - so that this module loads no asyncio

        return AsyncClient(self._given, self.settings, self._connection, self._transport.gateways, trust=self._trust)
