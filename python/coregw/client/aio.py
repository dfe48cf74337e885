"""`AsyncClient`, and the published names of its gateway.

The blocking `sync` is made of this module by ``python tests/helpers/unasync.py``: change this one, and run it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, TypeVar

from coregw import _core, client
from coregw.client import operations
from coregw.client.aio_driver import AsyncDriver, on_loop
from coregw.client.driver import Observed
from coregw.client.files import as_bytes, pipe_content
from coregw.client.open_files import AsyncFile
from coregw.client.operations.steps import Steps
from coregw.client.query import Proven, Query, map_proof, resolve, scan
from coregw.client.settings import ClientSettings
from coregw.concurrency import in_stoppable_thread, in_thread
from coregw.errors import Unavailable
from coregw.messages import Delta, MutationReceipt
from coregw.verify import Buffer, CidLike, PathLike

if TYPE_CHECKING:
    from coregw.trust.store import TrustStore

__all__ = ["AsyncClient", "AsyncPublications"]

T = TypeVar("T")

_ATTEMPTS: Final = 8


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
        return await self.build_sorted(await in_thread(operations.roots.sort_arcs, arcs), suite)

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

        Runs in the event loop, where `progress` is called, too.

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
        from coregw.client.folders.add import add_path  # noqa: PLC0415 - few programs need it

        return await on_loop(
            lambda client: add_path(
                client,
                path,
                suite=suite,
                recorded=(attributes, owner, xattrs),
                exclude=exclude,
                gitignore=gitignore,
                use_cache=use_cache,
                progress=progress,
            ),
            self,
        )

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

        Runs in the event loop, where `progress` is called, too.

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

        root, extras = self.root(root), Extras(owners, xattrs, tuple(xattr_names))
        return await on_loop(
            lambda client: restore_folder(
                client,
                root,
                dest,
                delete=Deletion(delete_excluded, exclude, gitignore) if delete or delete_excluded else None,
                in_place=in_place,
                links=links,
                allow_git=allow_git,
                extras=extras,
                cache=RestoreCache.of(dest) if use_cache else None,
                progress=progress,
            ),
            self,
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
        """Compare a root with a folder or file of this machine; see `coregw.client.folders.compare.compare_folder`.

        Runs in the event loop, and reads files in threads.
        """
        from coregw.client.folders.compare import compare_folder  # noqa: PLC0415 - few programs need it

        root = self.root(root)
        return await on_loop(
            lambda client: compare_folder(
                client, root, path, attributes=attributes, exclude=exclude, gitignore=gitignore, as_added=as_added
            ),
            self,
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
        """Copy a root and everything below it to another gateway, by what differs; see `coregw.client.mirror`.

        Runs in the event loop, where `progress` is called, too.
        """
        from coregw.client.mirror import mirror  # noqa: PLC0415 - few programs need it
        from coregw.client.mirror_side import Side  # noqa: PLC0415 - the same

        root, bases = self.root(root), [self.root(base) for base in bases]
        return await on_loop(
            lambda source, there: mirror(
                Side(source), Side(there), root, bases=bases, payloads=payloads, line=line, progress=progress
            ),
            self,
            destination,
        )

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
        """Copy what is published under a name, and publish it there, too; see `coregw.client.mirror`.

        Runs in the event loop, where `progress` is called, too.
        """
        from coregw.client.mirror import mirror_published  # noqa: PLC0415 - few programs need it
        from coregw.client.mirror_side import Side  # noqa: PLC0415 - the same

        tokens, observed = (token, destination_token), self._observed
        return await on_loop(
            lambda source, there: mirror_published(
                Side(source),
                Side(there),
                scope,
                name,
                tokens,
                payloads=payloads,
                progress=progress,
                observed=observed,
            ),
            self,
            destination,
        )


class _AsyncRun(Protocol):
    """Drives an operation of an asyncio client."""

    def __call__(self, steps: Steps[T], /) -> Coroutine[None, None, T]: ...


class AsyncPublications:
    """The published names of an asyncio client's gateway. `Publications` has the same methods.

    `verified` returns what the name's signed log proves. Without a log, a record is what the gateway says. With a trust
    store, it is at least no older than what it said before: a rollback, and another root for the same revision, raise
    `ProofError`.

    `token` is that of the gateway's administration routes; None sends the client's own credentials.
    """

    def __init__(
        self,
        run: _AsyncRun,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
        trust: TrustStore | None,
    ) -> None:
        """Made by `AsyncClient`.

        Args:
            run: Drives an operation of the client.
            settings: The client's.
            root: Returns the root that a name of the trust store stands for.
            observed: Remembers a record in the trust store.
            trust: The trust store, if any.
        """
        self._run = run
        self._settings = settings
        self._root = root
        self._observed = observed
        self._trust = trust

    async def get(
        self, scope: str, name: str, *, token: str | None = None, force: bool = False
    ) -> client.PublishedRecord:
        """Return the newest revision of a name; see `operations.publications.published`.

        With `force`, a rollback or fork is returned, too, and is what the trust store knows from then on.
        """
        return await self._noted(operations.publications.published(self._settings, scope, name, token), force)

    async def verified(
        self,
        scope: str,
        name: str,
        policy: operations.publications.Policy,
        *,
        revision: int | None = None,
        force: bool = False,
    ) -> operations.publications.VerifiedPublication:
        """Return the newest revision of a name, verified by its signed log; see `operations.publications.verified`.

        With a trust store, the checkpoint must continue the one that was verified last, and is remembered; `force`
        replaces that by whatever meets the policy.

        Raises:
            Unavailable: Other processes remember other checkpoints of the log meanwhile, again and again.
        """
        origin = policy.origin
        for _ in range(_ATTEMPTS):
            held = await in_thread(self._head, origin)
            before = None if force else held
            steps = operations.publications.verified(self._settings, scope, name, policy, before, revision)
            found = await self._run(steps)
            if await in_thread(self._kept, origin, held, found.note):
                return found
        raise Unavailable(f"verify {scope}/{name}: other processes remember other checkpoints of its log meanwhile")

    async def publish(
        self, scope: str, name: str, root: CidLike, *, token: str | None = None
    ) -> client.PublishedRecord:
        """Publish a root as the next revision of a name; see `operations.publications.publish_next`."""
        root = self._root(root)
        return await self._noted(operations.publications.publish_next(self._settings, scope, name, root, token))

    async def freeze(self, scope: str, name: str, *, token: str | None = None) -> client.PublishedRecord:
        """Freeze a name for good; see `operations.publications.freeze`."""
        return await self._noted(operations.publications.freeze(self._settings, scope, name, token))

    async def _noted(self, steps: Steps[client.PublishedRecord], force: bool = False) -> client.PublishedRecord:
        return await in_thread(self._observed, await self._run(steps), force)

    def _head(self, origin: str) -> str | None:
        """Return the checkpoint that is remembered; it blocks."""
        return None if self._trust is None else self._trust.head(origin)

    def _kept(self, origin: str, held: str | None, note: str) -> bool:
        """Remember a checkpoint, unless another process has done so meanwhile; it blocks."""
        return self._trust is None or self._trust.advance(origin, held, note)
