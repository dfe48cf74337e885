"""`Client`, which blocks, and the published names of its gateway.

Made of `aio` by ``python tests/helpers/unasync.py``: change that one, and run it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, TypeVar

from coregw import _core, client
from coregw.client import operations
from coregw.client.driver import Observed
from coregw.client.files import as_bytes, pipe_content
from coregw.client.open_files import File
from coregw.client.operations.steps import Steps
from coregw.client.query import Proven, Query, map_proof, resolve, scan
from coregw.client.settings import ClientSettings
from coregw.client.sync_driver import BlockingDriver, on_loop
from coregw.errors import Unavailable
from coregw.messages import Delta, MutationReceipt
from coregw.verify import Buffer, CidLike, PathLike

if TYPE_CHECKING:
    from coregw.trust import TrustStore

__all__ = ["Client", "Publications"]

T = TypeVar("T")

_ATTEMPTS: Final = 8


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
        return Publications(self._run, self.settings, self.root, self._observed, self._trust)

    # Payloads and new roots

    def put_payload(self, data: Buffer | Path, codec: str | int = "raw", hash: str = "sha2-256") -> str:
        """Store a payload and return its CID, which is computed here (protocol section 5, *payloads*). O(bytes).

        Args:
            data: The bytes, or the path of a file, which is streamed. A pipe is read until its end.
            codec: The multicodec of the CID, by name or number.
            hash: The hash function: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or
                ``identity``.

        Returns:
            The CID.

        Raises:
            InvalidInput: The codec or hash function is unknown.
            OSError: The file can't be read.
            ProofError: The gateway's CID is another.
            TooLarge: The payload has more than ``max_payload_bytes`` bytes.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        if isinstance(data, Path):
            piped = pipe_content(data, self.settings.max_payload_bytes)
            data = data if piped is None else piped
        return self._run(operations.payloads.put_payload(self.settings, data, codec, hash))

    def put_payloads(self, datas: Iterable[Buffer], codec: str | int = "raw") -> list[str]:
        """Store payloads in batches and return their CIDs, which are computed here. O(bytes).

        Consumes `datas` lazily, about ``batch_bytes`` of the settings ahead. A batch is sent as a CAR that the gateway
        takes in memory. A payload of at least ``batch_bytes``, or for which such a CAR has no room, is sent on its own
        (protocol section 5, *payloads* and *CAR files*).

        Args:
            datas: The payloads.
            codec: Their multicodec, by name or number.

        Returns:
            Their CIDs, in order, with the hash function ``sha2-256``.

        Raises:
            InvalidInput: The codec is unknown.
            ProofError: The gateway's answer describes something other than what was sent.
            TooLarge: A payload has more than ``max_payload_bytes`` bytes, or exceeds a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._run(operations.car_import.put_payloads(self.settings, datas, codec, self._parts))

    def has_payloads(self, cids: Iterable[CidLike]) -> list[bool]:
        """Return whether the gateway says that it holds each payload; nothing proves that. O(n).

        See protocol section 5, *which payloads are held*.

        Args:
            cids: The CIDs of any number of payloads.

        Returns:
            An answer for each, in order.

        Raises:
            InvalidInput: A CID is not valid.
            ProofError: The answer does not have one bit for each payload.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.car_import.has_payloads(self.settings, cids))

    def held_payloads(self, cids: Buffer, count: int) -> bytes:
        """Return which of these payloads the gateway says that it holds, as bits; nothing proves that. One request.

        It is `has_payloads` for many: no objects are made (protocol section 5, *which payloads are held*).

        Args:
            cids: Binary CIDs, one after the other.
            count: Their number, at most 16,384.

        Returns:
            A bit for each, the lowest one of a byte first.

        Raises:
            InvalidInput: They are not CIDs.
            ProofError: The answer does not have one bit for each payload.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.car_import.held_payloads(self.settings, cids, count))

    def create_root(self, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> str:
        """Create a map and return its root, which is computed here (protocol section 5, *roots*). O(n log n).

        Args:
            arcs: The target of each path, as text. `build` takes more than fit in memory.
            suite: The hash function of the map: ``sha2-256`` or ``blake3``.

        Returns:
            The root.

        Raises:
            InvalidInput: A path, CID or suite is not valid.
            ProofError: The gateway's root is another.
            TooLarge: The arcs exceed a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._run(operations.roots.create_root(self.settings, arcs, suite, self._parts))

    def is_complete(self, root: CidLike) -> bool:
        """Return whether the gateway says that it holds everything below a root; nothing proves that.

        See protocol section 5, *completeness*. The gateway visits the whole tree, unless it remembers the answer.

        Args:
            root: The root, or a name of the trust store that stands for one.

        Returns:
            Whether every page, nested root and payload is there.

        Raises:
            InvalidInput: `root` is not a root.
            ProofError: The answer is about another root.
            RootNotFound: The gateway says that it does not hold the root.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.roots.is_complete(self.settings, self.root(root)))

    def build(self, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]], suite: str = "sha2-256") -> str:
        """Create a map of any number of arcs and return its root, which is computed here. O(n log n).

        The arcs are sorted in bounded memory, and a temporary file in the system's folder; then as `build_sorted`.

        Args:
            arcs: The target of each path; in any order, from an iterable that is consumed once.
            suite: The hash function of the map: ``sha2-256`` or ``blake3``.

        Returns:
            The root.

        Raises:
            InvalidInput: A path or CID is not valid, or two arcs have the same path (the message names the arc), or the
                suite is unknown.
            OSError: The temporary file can't be written.
            ProofError: The gateway's root is another.
            TooLarge: The arcs exceed a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self.build_sorted(operations.roots.sort_arcs(arcs), suite)

    def build_sorted(self, sorter: _core.ArcSorter, suite: str = "sha2-256") -> str:
        """Create the map of arcs that are sorted and return its root, which is computed here. O(n).

        The arcs are sent as lines (protocol section 5, *roots*). The gateway answers when the map is stored, about 3
        microseconds for each arc after the last byte. Until then it is silent, for which ``stream_bytes_per_second`` of
        the settings allows 20 times as long.

        Args:
            sorter: The arcs, after its ``end()``.
            suite: The hash function of the map: ``sha2-256`` or ``blake3``.

        Returns:
            The root.

        Raises:
            InvalidInput: Two arcs have the same path (the message names it), or the suite is unknown.
            ProofError: The gateway's root is another.
            TooLarge: The arcs exceed a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._run(operations.roots.build_sorted(self.settings, sorter, suite, self._parts))

    def build_lines(self, lines: Callable[[int], Iterable[bytes]], root: str, suite: str) -> None:
        """Create the map of arcs that are lines, given its root; it is stored whole or not at all. O(n).

        If a connection does not last for them, the first ones make a map, to which mutations add the others: each
        leaves a root of its own at the gateway, and what it has acknowledged is not sent again (protocol section 5,
        *roots*).

        Args:
            lines: Called for each attempt with a number of bytes; iterates over chunks of whole lines of about that
                size, always the same for the same number.
            root: The root, computed by the caller.
            suite: The hash function of the map: ``sha2-256`` or ``blake3``.

        Raises:
            InvalidInput: The gateway says that a line is malformed.
            ProofError: The gateway's root is another.
            TooLarge: The arcs exceed a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        self._run(operations.roots.build_lines(self.settings, lines, root, suite, parts=self._parts))

    def create_list(
        self,
        elements: Iterable[CidLike],
        sizes: Iterable[int] | None = None,
        *,
        suite: str = "sha2-256",
        base: CidLike | None = None,
    ) -> str:
        """Create a list and return its root, which is computed here. O(n).

        It is made by list deltas (protocol section 5, *mutations*), each of at most ``list_changes`` of the settings.

        Args:
            elements: The targets, in order.
            sizes: The measure of each element, at least 1; by default 1 each. Those of a file are the sizes of its
                payloads.
            suite: The hash function of the list: ``sha2-256`` or ``blake3``. Ignored if `base` is given.
            base: A map root to start the mutations from; the list gets its suite. By default the empty map, created
                first.

        Returns:
            The root.

        Raises:
            InvalidInput: A CID, size, suite or the base is not valid.
            ProofError: The gateway's root is another.
            RootNotFound: The gateway says that it does not hold the base.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        base = None if base is None else self.root(base)
        return self._run(
            operations.roots.create_list(self.settings, elements, sizes, suite=suite, base=base, parts=self._parts)
        )

    # Mutations

    def apply_changes(self, targets: Sequence[operations.mutate.Changes], what: str) -> None:
        """Change maps and lists to what is known to result.

        It is one mutation, if the changes are few enough and the connection lasts for it. Otherwise they are applied by
        several, each of which leaves a root of its own at the gateway. The results are what the gateway says, unless
        they are expected; nothing else proves them (protocol section 5, *mutations*).

        Args:
            targets: What is changed; of all but the last, only changes that are expected to give a root that is known.
            what: The call in words, for messages.

        Raises:
            Conflict: A change does not match the current content, or another root results.
            ProofError: A result is not a root of its target's kind and suite, or not the expected one.
            RootNotFound: The gateway says that it does not hold a base root, or a root that it has acknowledged.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        self._run(operations.mutate.apply_changes(self.settings, targets, what, self._parts))

    def update(self, root: CidLike, set: Mapping[str, CidLike], remove: Iterable[PathLike] = ()) -> str:
        """Bind and remove paths of one map, whatever their current targets, and return the proven new root.

        Costs a multiproof of the current targets, a request for each 1,000 paths or so, and one mutation (protocol
        section 5, *map proof* and *mutations*). The map at `root` stays as it is.

        Args:
            root: The map's root, or a name of the trust store that stands for one.
            set: The new target of each path, as text. A path that has this target already is left out.
            remove: The paths to remove.

        Returns:
            The root of the changed map; `root` itself if nothing changes.

        Raises:
            Conflict: The gateway reports a concurrent change, which an honest one can't for an immutable root.
            InvalidInput: A path or CID is not valid, or a path is named twice.
            PathNotFound: A path to remove is proven absent.
            ProofError: An answer is not proven.
            RootNotFound: The gateway says that it does not hold the root.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._run(operations.mutate.update(self.settings, self.root(root), set, remove))

    def mutate(self, root: CidLike, deltas: Sequence[Delta]) -> MutationReceipt:
        """Apply deltas to maps and lists, and derive every result from them and the receipt's transition proofs.

        The base root and its tree stay as they are; the new root is a candidate.

        Args:
            root: The base root, which the caller trusts, or a name of the trust store.
            deltas: At least one delta (protocol section 5, *mutations*).

        Returns:
            The verified receipt. O(changes x depth).

        Raises:
            Conflict: A delta does not match the current content; nothing was changed.
            InvalidInput: The protocol does not allow these changes.
            ProofError: The receipt does not follow from the changes.
            RootNotFound: The gateway says that it does not hold the base root, or an object of a delta.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._run(operations.mutate.mutate(self.settings, self.root(root), deltas))

    # Queries

    def query(self, query: Query[T]) -> Proven[T]:
        """Send a query and return the verified value with its proof (protocol section 5). O(proof).

        The 404 of a query that proves absence is verified too; its value has ``present`` False.

        Args:
            query: The query, made by a function of ``coregw.client.query``.

        Returns:
            The value, with the request and the result that prove it to anybody who trusts the root.

        Raises:
            ProofError: The answer is not proven, or an absence came without its proof.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            UnprovenAbsence: Only from a resolve: the gateway says that nothing is found; nothing proves that either.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.prove(self.settings, query))

    def resolve(self, root: CidLike, path: PathLike) -> str:
        """Return the target of a path, through nested maps and lists (protocol section 5, *resolve*).

        Args:
            root: The root, or a name of the trust store that stands for one.
            path: Path text with ``/`` between segments, or the segments. Empty for the root itself.

        Returns:
            The proven CID of the target. O(segments x depth).

        Raises:
            InvalidInput: `root` or `path` is not valid.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            UnprovenAbsence: The gateway says that nothing is found; nothing proves that. `locate` and `prove_key` prove
                it.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.value(self.settings, resolve(self.root(root), path)))

    def resolve_many(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the proven target of each path of one root; None, unproven, where the gateway finds nothing.

        Paths that are keys of the root's own map cost one multiproof; the others, another request for each 1,000
        (protocol section 5, *map proof* and *batches*).

        Args:
            root: The root, or a name of the trust store that stands for one.
            paths: The paths, each as for `resolve`.

        Returns:
            The targets, in the order of the paths.

        Raises:
            InvalidInput: `root` or a path is not valid.
            ProofError: A result is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: The answer for a single path exceeds ``max_result_bytes``.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.resolve_many(self.settings, self.root(root), paths))

    def read_key(self, root: CidLike, path: PathLike) -> str:
        """Return the target of exactly this key of a map (protocol section 5, *read*). Nothing is followed.

        Args:
            root: The root, or a name of the trust store that stands for one.
            path: Path text with ``/`` between segments, or the segments.

        Returns:
            The proven CID of the target. O(depth).

        Raises:
            InvalidInput: `root` is not a map, or `path` is empty or malformed.
            PathNotFound: The key is proven absent; ``details`` has the proof.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.key_target(self.settings, self.root(root), path))

    def read_index(self, root: CidLike, index: int) -> str:
        """Return the target of a list element (protocol section 5, *read*).

        Args:
            root: The list's root, or a name of the trust store that stands for one.
            index: The position of the element, from 0.

        Returns:
            The proven CID of the target. O(depth).

        Raises:
            IndexNotFound: The list is proven to be shorter; ``details`` has the proof.
            InvalidInput: `root` is not a list, or `index` is out of range.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.index_target(self.settings, self.root(root), index))

    def read_range(self, root: CidLike, start: int, end: int | None = None) -> _core.ReadOutcome:
        """Return the elements of a list that intersect ``[start, end)`` (protocol section 5, *read*).

        Args:
            root: The list's root, or a name of the trust store that stands for one.
            start: The first position, in units of the list's measure: bytes, if the list is a file.
            end: The position after the last one; None is the end of the list.

        Returns:
            The proven elements with their measures, and the sum of all measures. O(depth + elements).

        Raises:
            InvalidInput: `root` is not a list, or the range is malformed.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: The range has more than 10,000 elements.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.range_outcome(self.settings, self.root(root), start, end))

    def prove_key(self, root: CidLike, path: PathLike) -> str | None:
        """Return the target of a key of a map, or None if the key is proven absent (protocol section 5, *map proof*).

        Args:
            root: The root, or a name of the trust store that stands for one.
            path: Path text with ``/`` between segments, or the segments.

        Returns:
            The proven CID of the target, or None. O(depth).

        Raises:
            InvalidInput: `root` is not a map, or `path` is empty or malformed.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.value(self.settings, map_proof(self.root(root), path)))

    def prove_keys(self, root: CidLike, paths: Iterable[PathLike]) -> list[str | None]:
        """Return the target of each key of a map, None where it is proven absent (protocol section 5, *map proof*).

        One multiproof shows up to 4,096 keys.

        Args:
            root: The root, or a name of the trust store that stands for one.
            paths: The keys, each as path text or segments.

        Returns:
            The proven targets, in the order of the paths.

        Raises:
            InvalidInput: A path is empty or malformed, or `root` is not a map.
            ProofError: The targets are not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: The proof of a single key exceeds ``max_result_bytes``.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.prove_keys(self.settings, self.root(root), paths))

    def scan(
        self, root: CidLike, prefix: PathLike = (), after: PathLike | None = None, limit: int | None = None
    ) -> _core.Scan:
        """Return one page of a map's entries at and below `prefix`, proven to have no gaps.

        See protocol section 5, *scan*. `entries` yields those of all pages.

        Args:
            root: The root, or a name of the trust store that stands for one.
            prefix: A path, as text or segments; empty for the whole map.
            after: The page begins with the first key after this path; by default with the first of all.
            limit: The number of entries, at most; by default as the gateway chooses.

        Returns:
            The entries in key order, whether more follow, and the listing proof.

        Raises:
            InvalidInput: `root` is not a map, or a path or the limit is not valid.
            ProofError: The page is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.lookup.value(self.settings, scan(self.root(root), prefix, after, limit)))

    # Reading payloads and trees

    def get_payload(self, cid: CidLike, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a payload, after comparing their hash with the CID (protocol section 5, *payloads*).

        After a truncated answer, only the rest is requested, from any gateway of the client.

        Args:
            cid: The payload's CID.
            max_bytes: The size of the payload in bytes, at most; by default ``max_payload_bytes`` of the settings.

        Returns:
            The verified bytes.

        Raises:
            InvalidInput: `cid` is not the CID of a payload.
            PayloadNotFound: The gateway says that it does not hold the payload.
            ProofError: The bytes do not have the CID's hash.
            TooLarge: The payload has more than `max_bytes` bytes.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.payloads.get_payload(self.settings, cid, max_bytes))

    def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request the payloads that a sink wants in one answer, and stream that into it; the sink verifies them.

        The answer is a CAR (protocol section 5, *payloads in one answer*). After a truncated one, the payloads that are
        not complete are requested, the one in which it ended from its first byte. Payloads that the gateway does not
        hold are left out; the sink knows which.

        Args:
            request: The sink.

        Raises:
            OSError: A file can't be written.
            ProofError: The answer is not the requested payloads.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        self._run(operations.payloads.get_payloads(self.settings, request))

    def download(self, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> int:
        """Stream a payload into an open file, in constant memory, and return its size in bytes.

        The hash is compared at the end: after an exception, discard what was written. After a truncated answer, only
        the rest is requested (protocol section 5, *payloads*).

        Args:
            cid: The payload's CID.
            file: The file; it is written from its position on.
            max_bytes: The size of the payload in bytes, at most; by default ``max_payload_bytes`` of the settings.

        Returns:
            The number of bytes.

        Raises:
            InvalidInput: `cid` is not the CID of a payload.
            OSError: The file can't be written.
            PayloadNotFound: The gateway says that it does not hold the payload.
            ProofError: The bytes do not have the CID's hash.
            TooLarge: The payload has more than `max_bytes` bytes.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.payloads.download(self.settings, cid, file, max_bytes))

    def save_payload(self, cid: CidLike, path: Path, max_bytes: int | None = None) -> int:
        """Stream a payload to a new file, and return its size in bytes (protocol section 5, *payloads*).

        The file appears complete and verified, or not at all.

        Args:
            cid: The payload's CID.
            path: The file.
            max_bytes: The size of the payload in bytes, at most; by default ``max_payload_bytes`` of the settings.

        Returns:
            The number of bytes.

        Raises:
            InvalidInput: `cid` is not the CID of a payload, or `path` exists already (code ``invalid_path``).
            OSError: The file can't be written.
            PayloadNotFound: The gateway says that it does not hold the payload.
            ProofError: The bytes do not have the CID's hash.
            TooLarge: The payload has more than `max_bytes` bytes.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.payloads.save_payload(self.settings, cid, path, max_bytes))

    def open(self, root: CidLike, path: PathLike = ()) -> client.File:
        """Open the file at a path, or that is `root` itself, to read it: seekable, and every byte verified.

        Args:
            root: The root, a payload, or a name of the trust store that stands for one.
            path: Path text with ``/`` between segments, or the segments. Empty for `root` itself.

        Returns:
            The file. Only the payloads that hold what is read are fetched.

        Raises:
            InvalidInput: `root` or `path` is not valid, or leads to a map (code ``kind_mismatch``).
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            UnprovenAbsence: The gateway says that nothing is at the path; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return File(self, self.resolve(root, path) if path else self.root(root))

    def contents(self, target: CidLike) -> Generator[bytes, None, None]:
        """Yield the verified bytes of a file: a payload in one chunk, a measured list in one chunk per element.

        Args:
            target: A payload, a list whose measures are the sizes of its payloads, or a name of the trust store.

        Yields:
            The chunks, in order.

        Raises:
            InvalidInput: The target is not a file: a map, or a list whose measures are not the sizes of its payloads
                (code ``kind_mismatch``).
            PayloadNotFound: The gateway says that it does not hold a payload.
            ProofError: A chunk is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: A payload has more than ``max_payload_bytes`` bytes.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.tree.contents(self.settings, self.root(target)))

    def list_size(self, target: CidLike) -> int:
        """Return the proven sum of a list's measures: its size in bytes, if the list is a file. One request.

        Args:
            target: The list's root, or a name of the trust store that stands for one.

        Returns:
            The sum (protocol section 5, *read*). O(depth).

        Raises:
            InvalidInput: The target is not a list.
            ProofError: The answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.tree.list_size(self.settings, self.root(target)))

    def list_elements(
        self, target: CidLike, *, limit: Callable[[int, int], int] | None = None
    ) -> list[tuple[str, int]]:
        """Return the payloads of a file that is a list, with their sizes. One request for about 8,000 of them.

        A list of a few nodes may have 2^52 elements, since a node may occur in it any number of times.

        Args:
            target: The list's root, or a name of the trust store that stands for one.
            limit: Gets, after each answer, the sum of all measures, which the first one proves, and the number of
                elements so far; returns how many there may be, or raises. None for any number.

        Returns:
            The proven pairs of CID and size in bytes, in order.

        Raises:
            InvalidInput: The target is not a list, or an element is not a payload (code ``kind_mismatch``).
            ProofError: An answer is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: There are more elements than `limit` allows.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.tree.list_elements(self.settings, self.root(target), limit))

    def history_of_scope(self, scope: str, token: str) -> Generator[client.PublishedRecord, None, None]:
        """Yield every revision of every name of a scope: names in byte order, the revisions of each oldest first.

        Nothing proves them (protocol section 5, *published records*).

        Args:
            scope: The scope.
            token: The bearer token of the gateway's administration routes.

        Yields:
            The revisions.

        Raises:
            InvalidInput: `scope` is malformed.
            ProofError: An answer is malformed, has a record of another name, or its pages are not in order.
            TooLarge: There are more than ``max_entries`` revisions.
            Unauthorized: The token is wrong, or the gateway has no administration routes.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.publications.history_of_scope(self.settings, scope, token))

    def entries(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Leaf, None, None]:
        """Yield every entry of one map at and below `prefix`, in key order, without gaps (protocol section 5, *scan*).

        Nested maps are entries, and not followed. One request for each 1,000 entries.

        Args:
            root: The root, or a name of the trust store that stands for one.
            prefix: A path, as text or segments; empty for the whole map.

        Yields:
            The proven entries, each with its path and target.

        Raises:
            InvalidInput: `root` is not a map, or `prefix` is malformed.
            ProofError: A page is not proven. Everything yielded before is.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.tree.entries(self.settings, self.root(root), prefix))

    def children(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Entry, None, None]:
        """Yield one level of a map, as a directory, in key order, without gaps (protocol section 5, *scan*).

        If the prefix is itself an entry, it comes first, under its last segment. A directory larger than a page is
        skipped by seeking past it, so the cost is one request for 1,000 entries and two more for each such directory.

        Args:
            root: The root, or a name of the trust store that stands for one.
            prefix: A path, as text or segments; empty for the whole map.

        Yields:
            The proven lines of the listing.

        Raises:
            InvalidInput: `root` is not a map, or `prefix` is malformed.
            ProofError: A page is not proven. Everything yielded before is.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.tree.children(self.settings, self.root(root), prefix))

    def walk(self, root: CidLike, prefix: PathLike = ()) -> Generator[operations.tree.Leaf, None, None]:
        """Yield every payload and list of a tree at and below `prefix` (protocol section 5, *scan*).

        Nested maps are followed, each after its parent. What a folder records of its paths (``.coregw/attributes``,
        protocol section 7) is no file of it, and is not followed, unless `prefix` leads there. One request for each
        1,000 entries, and for each map.

        Args:
            root: The root, or a name of the trust store that stands for one.
            prefix: A path, as text or segments; empty for the whole map.

        Yields:
            The proven paths and targets.

        Raises:
            InvalidInput: `root` is not a map, `prefix` is malformed, or maps nest deeper than ``max_nesting``.
            ProofError: A page is not proven. Everything yielded before is.
            RootNotFound: The gateway says that it does not hold the root or a nested one; nothing proves that.
            TooLarge: There are more than ``max_entries`` entries, nested maps included.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.tree.walk(self.settings, self.root(root), prefix))

    def diff(self, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Generator[operations.diff.Difference, None, None]:
        """Yield every difference between two maps at and below `prefix`, in key order, without gaps.

        Nested maps are not followed. The cost depends on the number of differences, not on the size of the maps: one
        request for 1,000 of them (protocol section 5, *diff*).

        Args:
            a: The root of the one map, or a name of the trust store.
            b: That of the other one.
            prefix: A path, as text or segments; empty for the whole map.

        Yields:
            The proven differences, with the targets before and after.

        Raises:
            InvalidInput: `a` or `b` is not a map root, or their suites differ (code ``kind_mismatch``).
            ProofError: A page is not proven. Everything yielded before is.
            RootNotFound: The gateway says that it does not hold one of them; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._stream(operations.diff.differences(self.settings, self.root(a), self.root(b), prefix))

    def diff_folders(
        self, a: CidLike, b: CidLike, prefix: PathLike = ()
    ) -> Generator[client.FolderDifference, None, None]:
        """Yield every difference between two folders at and below `prefix`, attributes included, in key order.

        Like `diff`; one request more, two for each 1,000 differences, and two for each file that is a list in both.
        Attributes that do not differ are not fetched. If the reserved path of either is bound to something else than a
        map of attributes (protocol section 7), that is a target like any other.

        Args:
            a: The root of the one folder, or a name of the trust store.
            b: That of the other one.
            prefix: A path, as text or segments; empty for the whole map.

        Yields:
            The proven differences. What differs of the records of the folders themselves has no segments, and comes in
            the place of ``.coregw``.

        Raises:
            InvalidInput: `a` or `b` is not a map root, their suites differ (code ``kind_mismatch``), or a record of
                attributes is invalid.
            ProofError: A page is not proven. Everything yielded before is.
            RootNotFound: The gateway says that it does not hold one of them; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        a, b = self.root(a), self.root(b)
        return self._stream(operations.diff.folder_differences(self.settings, a, b, prefix))

    def locate(self, root: CidLike, path: PathLike) -> tuple[str, list[str]]:
        """Return what to list for a path: a CID, and if that is a map, the prefix inside it.

        A resolve finds targets, not directories. So every split of the path is tried: a prefix that resolves to a
        nested map, from none to all segments, and the rest as a directory in that map (protocol section 5, *resolve*
        and *scan*).

        Args:
            root: The root, or a name of the trust store that stands for one.
            path: Path text with ``/`` between segments, or the segments.

        Returns:
            The CID, and the segments of the prefix, which are empty for the whole map.

        Raises:
            InvalidInput: `root` or `path` is not valid.
            PathNotFound: No split of the path leads to anything, which is proven.
            ProofError: The gateway found nothing, but its own proofs show that there is something.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: There are more than ``max_nesting`` maps and lists on the path.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._run(operations.tree.locate(self.settings, self.root(root), path))

    def published(self, scope: str, name: str) -> client.PublishedRecord:
        """Return what is published under a name, as the gateway says: the newest signed revision of a signed name.

        As ``publications.get`` without a token.

        Args:
            scope: The scope of the name.
            name: The name.

        Returns:
            The record.

        Raises:
            InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, or is ``.`` or
                ``..``.
            ProofError: The answer is not the record of this name, or with a trust store, a rollback or a fork.
            RecordNotFound: Nothing is published under the name.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
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
        """Write a root's tree to a new CAR file, which appears complete and verified or not at all.

        After a lost connection it is continued: the payload in which the answer ended by its range, then the blocks
        after the last whole one (protocol section 5, *CAR files*).

        Args:
            root: The root, or a name of the trust store that stands for one.
            path: The file to create.
            payloads: Whether to include the payloads that leaves name.
            progress: Called with the bytes of each chunk, and with a negative number when an attempt restarts.

        Returns:
            What the file has, and what it lacks.

        Raises:
            InvalidInput: `root` is not a root, or `path` exists already (code ``invalid_path``).
            OSError: The file can't be written.
            ProofError: A block does not have its CID's hash, or the tree is not complete.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            TooLarge: A block exceeds ``max_payload_bytes``.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        from coregw.client.operations.car_export import NewCar  # noqa: PLC0415 - few programs need it

        with NewCar(self.settings, self.root(root), path, payloads, progress) as new:
            self._run(new.fetch())
            return new.finish()

    def put_car(self, data: Buffer, what: str = "send a CAR") -> None:
        """Send a CAR that is in memory to the gateway, which imports all of it or nothing.

        See protocol section 5, *CAR files*. If a connection does not last for it, it is sent in parts; what was
        acknowledged is not sent again.

        Args:
            data: The CAR.
            what: The call in words, for messages.

        Raises:
            InvalidInput: The gateway says that it is not a valid CAR.
            ProofError: The gateway's answer describes something other than this CAR.
            TooLarge: The CAR exceeds a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        self._run(operations.car_import.put_car(self.settings, as_bytes(data), what, self._parts))

    def import_car(
        self, path: Path, *, name: str | None = None, progress: operations.car_import.Advance | None = None
    ) -> operations.car_import.ImportedCar:
        """Send a CAR file to the gateway, which imports all of it or nothing (protocol section 5, *CAR files*).

        If a connection does not last for it, a CARv1 is sent in parts: payloads, then trees. What was acknowledged is
        not sent again, and the gateway keeps it if the import fails.

        Args:
            path: The file; each attempt to send all of it reads it from the start.
            name: The file's name in messages; by default its path.
            progress: Called with the bytes of each chunk, and with a negative number when an attempt restarts.

        Returns:
            The roots of the file's header, and the number of blocks and bytes.

        Raises:
            InvalidInput: The file is not a CAR, a block does not have its CID's hash (both found here), or a tree is
                incomplete (found by the gateway, or here); the message names the block. Or `path` is a pipe.
            OSError: The file can't be read.
            ProofError: The gateway's answer describes something other than this file.
            TooLarge: The file exceeds a limit, of this client or of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        steps = operations.car_import.import_car(self.settings, path, name, progress, self._parts)
        return self._run(steps)

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
        progress: Callable[[int], None] | None = None,
    ) -> client.Added:
        """Add a folder or a file, as ``coregw add`` does, and return its root with what was added and skipped.

        Runs in another thread with connections of its own, where `progress` is called, too.

        Args:
            path: The folder or file.
            suite: The hash function of the trees: ``sha2-256`` or ``blake3``.
            attributes: What is recorded besides the bytes: ``all``, modes, times, sizes and folders; ``whole``, those
                of the folder itself, too; ``no-times``, all but times; ``exec``, only symbolic links and whether files
                are executable; or ``none``.
            owner: Whether the numeric ids of owner and group are recorded.
            xattrs: Whether extended attributes are recorded.
            exclude: Patterns of what is left out, in the syntax of ``.gitignore``, relative to `path`. They come before
                those of ``.coregwignore`` files.
            gitignore: Whether ``.gitignore`` files count as well.
            use_cache: Whether files that have not changed since they were added last are not read.
            progress: Called with further numbers of bytes of files that were read or found unchanged.

        Returns:
            The root, what was added, and what was skipped.

        Raises:
            InvalidInput: A name is not UTF-8 or a path too long (code ``invalid_path``; the message names the file), or
                `path` is neither a folder nor a regular file, or an argument is none of those above.
            OSError: `path` can't be read.
            ProofError: The gateway's answer describes something other than what was sent.
            TooLarge: Something exceeds a limit of the gateway.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        from coregw.client.folders.add import AddProgress, add_path  # noqa: PLC0415 - few programs need it
        from coregw.folders.tree import Recorded  # noqa: PLC0415 - the same

        return on_loop(
            lambda client: add_path(
                client,
                path,
                suite=suite,
                recorded=Recorded(attributes, owner, xattrs),
                exclude=exclude,
                gitignore=gitignore,
                use_cache=use_cache,
                progress=AddProgress() if progress is None else AddProgress(hashed=progress),
            ),
            self,
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
        progress: Callable[[int], None] | None = None,
    ) -> client.Restored:
        """Write the verified tree of a map root to the folder `dest`, or update that.

        A new or empty `dest` gets the whole tree or nothing. In any other, files that have the right bytes stay, and
        each of the others is replaced when its new version is complete; so after a failure the same call continues.

        Runs in another thread with connections of its own, where `progress` is called, too.

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

        Returns:
            What was written, kept, deleted and left out.

        Raises:
            InvalidInput: `root` is not a map root; a path can't be made here, and the message names it; another
                process is restoring `dest`; or a file of patterns in it can't be read or parsed.
            OSError: The file system refused an operation.
            PayloadNotFound: The gateway does not hold a payload.
            ProofError: An answer is not proven.
            RootNotFound: The gateway says that it does not hold the root or a nested one; nothing proves that.
            TooLarge: The tree has more bytes than are free on the disk, or more entries than the client's settings
                allow.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        from coregw.client.folders.destination import Extras  # noqa: PLC0415 - few programs need it
        from coregw.client.folders.restore import Deletion, restore_folder  # noqa: PLC0415 - the same
        from coregw.folders.caches import RestoreCache  # noqa: PLC0415 - the same

        root, extras = self.root(root), Extras(owners, xattrs, tuple(xattr_names))
        return on_loop(
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
        """Compare a root with a folder or file of this machine. O(bytes of the folder + entries of the root).

        Nested maps are followed. No payload is fetched, except for records of attributes that are too long for the map.
        Everything that the folder has is compared, as by `coregw.verify_tree`.

        Runs in another thread with connections of its own, and reads files in threads.

        Args:
            root: The root of a folder's map, or a name of the trust store that stands for one.
            path: The folder or file.
            attributes: What is compared beside the bytes, as for `add`; by default what the root records, as its
                records show: owners and extended attributes, too, if it has any.
            exclude: Patterns of what is left out of the folder, as for `add`.
            gitignore: Whether ``.gitignore`` files count as well; only with `as_added`.
            as_added: Whether ``.git``, special files, and what patterns in ``.coregwignore`` files exclude, are left
                out, if the root names those files with the bytes that they have.

        Returns:
            The differences, and what was left out of the comparison.

        Raises:
            InvalidInput: `root` is not a map root, its maps contradict each other, or `gitignore` is without
                `as_added`.
            OSError: `path` can't be read.
            ProofError: A listing is not proven.
            RootNotFound: The gateway says that it does not hold the root; nothing proves that.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        from coregw.client.folders.compare import compare_folder  # noqa: PLC0415 - few programs need it

        root = self.root(root)
        return on_loop(
            lambda client: compare_folder(
                client, root, path, attributes=attributes, exclude=exclude, gitignore=gitignore, as_added=as_added
            ),
            self,
        )

    def mirror(
        self,
        root: CidLike,
        destination: Client,
        *,
        bases: Iterable[CidLike] = (),
        payloads: bool = True,
        line: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> client.Mirrored:
        """Copy a root and everything below it to another gateway. O(differences) from a base, otherwise O(size).

        Everything is proven or compared with its digest before the destination gets it. A copy that is interrupted
        leaves payloads, whole nested roots and parts of maps, never the root; repeat it, and the source does not send
        these again.

        Runs in another thread with connections of its own, where `progress` is called, too.

        Args:
            root: The root of a map or list, or a name of the trust store that stands for one.
            destination: The client of the gateway to copy to.
            bases: Roots of earlier versions; the first of which the destination has everything is the base. After them
                come the roots that were copied from this source to this destination last.
            payloads: Whether payloads are copied, too. Otherwise a root whose tree is held counts as copied.
            line: Which of the earlier roots are versions of the same: a published name, or nothing.
            progress: Called with further numbers of bytes that are sent to the destination.

        Returns:
            What was copied; what the destination held already is not counted.

        Raises:
            InvalidInput: `root` is not a root; roots nest too deep; the destination accepts no writes.
            PayloadNotFound: The source does not hold a payload below the root.
            ProofError: A side sent something else than what was named; the message has its address.
            RootNotFound: The source does not hold the root, or one below it.
            TooLarge: A list has more than ``max_entries`` elements.
            Unavailable: A side does not answer, has no space (`StorageFull`), or lost what it had acknowledged.
        """
        from coregw.client.mirror import mirror  # noqa: PLC0415 - few programs need it
        from coregw.client.mirror_side import Side  # noqa: PLC0415 - the same

        root, bases = self.root(root), [self.root(base) for base in bases]
        return on_loop(
            lambda source, there: mirror(
                Side(source), Side(there), root, bases=bases, payloads=payloads, line=line, progress=progress
            ),
            self,
            destination,
        )

    def mirror_published(
        self,
        scope: str,
        name: str,
        destination: Client,
        *,
        token: str | None = None,
        destination_token: str | None = None,
        payloads: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> client.MirroredName:
        """Copy the root that is published under a name, by what differs from the versions before, and publish it there.

        At the destination it is published when all of it is held there, if there is a token; revisions there are
        counted there. What names a root is what the source says: nothing proves it.

        Runs in another thread with connections of its own, where `progress` is called, too.

        Args:
            scope: The scope of the name.
            name: The name.
            destination: The client of the gateway to copy to.
            token: The bearer token of the source's administration routes; None if it needs none.
            destination_token: That of the destination; None for not publishing there.
            payloads: Whether payloads are copied, too.
            progress: Called with further numbers of bytes that are sent to the destination.

        Returns:
            What is published at both, and what was copied.

        Raises:
            Conflict: The name is frozen at the destination, or somebody else publishes under it.
            InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, or is ``.`` or
                ``..``.
            ProofError: A side sent something else than what was named; or with a trust store, a rollback or fork of the
                source.
            RecordNotFound: Nothing is published under the name.
            RootNotFound: The source does not hold the root, or one below it.
            Unauthorized: A token is missing or wrong.
            Unavailable: A side does not answer, has no space (`StorageFull`), or lost what it had acknowledged.
        """
        from coregw.client.mirror import mirror_published  # noqa: PLC0415 - few programs need it
        from coregw.client.mirror_side import Side  # noqa: PLC0415 - the same

        tokens, observed = (token, destination_token), self._observed
        return on_loop(
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


class _Run(Protocol):
    """Drives an operation of a blocking client."""

    def __call__(self, steps: Steps[T], /) -> T: ...


class Publications:
    """The published names of a blocking client's gateway. `AsyncPublications` has the same methods.

    `verified` returns what the name's signed log proves. Without a log, a record is what the gateway says. With a trust
    store, it is at least no older than what it said before: a rollback, and another root for the same revision, raise
    `ProofError`.

    `token` is that of the gateway's administration routes; None sends the client's own credentials.
    """

    def __init__(
        self,
        run: _Run,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
        trust: TrustStore | None,
    ) -> None:
        """Made by `Client`.

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

    def get(self, scope: str, name: str, *, token: str | None = None, force: bool = False) -> client.PublishedRecord:
        """Return the newest revision of a name, as the gateway says: of a signed name, the newest one that is signed.

        With a token it is the newest revision in any case, unless the address serves no administration (protocol
        section 5, *published records*). With a trust store, the record is remembered.

        Args:
            scope: The scope of the name.
            name: The name.
            token: The bearer token of the gateway's administration routes.
            force: Whether a rollback or fork is returned, too; it is what the trust store knows from then on.

        Returns:
            The record.

        Raises:
            InvalidInput: `scope` or `name` is not 1 to 128 of the characters ``A-Z a-z 0-9 . _ -``, or is ``.`` or
                ``..``.
            ProofError: The answer is not the record of this name; or with a trust store, it is a rollback or a fork.
            RecordNotFound: Nothing is published under the name.
            Unauthorized: The token is wrong.
            Unavailable: The gateway can't be reached or can't answer, after retries.
        """
        return self._noted(operations.publications.published(self._settings, scope, name, token), force)

    def verified(
        self,
        scope: str,
        name: str,
        policy: operations.publications.Policy,
        *,
        revision: int | None = None,
        force: bool = False,
    ) -> operations.publications.VerifiedPublication:
        """Return a revision of a name, verified by the name's signed log. One request, of O(log n) bytes.

        With a trust store, the checkpoint must continue the one that was verified last, and is remembered (protocol
        section 9).

        Args:
            scope: The scope of the name.
            name: The name.
            policy: Whose signatures the log's checkpoints must have.
            revision: The revision, from 1; None is the newest one.
            force: Whether any checkpoint that meets the policy replaces the one that is remembered.

        Returns:
            The revision, with the checkpoint and the signed note that prove it.

        Raises:
            InvalidInput: `scope` or `name` is malformed, or `revision` is less than 1.
            ProofError: The gateway has no checkpoint of the name (check ``unsigned``), or one that does not meet the
                policy (``signature`` or ``witnesses``), is older than the one before (``rollback``) or contradicts it
                (``fork``; the details have both notes), or the revision is not proven to be in it, or to be its newest
                one.
            RecordNotFound: Nothing is published under the name, as the gateway says.
            TypeError: `revision` is not an int.
            Unavailable: The gateway can't be reached; or other processes remember other checkpoints of the log
                meanwhile, again and again.
        """
        origin = policy.origin
        for _ in range(_ATTEMPTS):
            held = self._head(origin)
            before = None if force else held
            steps = operations.publications.verified(self._settings, scope, name, policy, before, revision)
            found = self._run(steps)
            if self._kept(origin, held, found.note):
                return found
        raise Unavailable(f"verify {scope}/{name}: other processes remember other checkpoints of its log meanwhile")

    def publish(self, scope: str, name: str, root: CidLike, *, token: str | None = None) -> client.PublishedRecord:
        """Publish a root as the revision that follows the newest one, whichever that is.

        It is conditional on the revision that was found, so that a repetition after a lost answer publishes nothing
        twice (protocol section 5, *published records*).

        Args:
            scope: The scope of the name.
            name: The name.
            root: The root of a map or list that the gateway holds, or a name of the trust store that stands for one.
            token: The bearer token of the gateway's administration routes; None sends the client's own credentials.

        Returns:
            The record of the new revision.

        Raises:
            Conflict: Somebody else publishes under the name at the same time, or it is frozen.
            InvalidInput: `scope`, `name` or `root` is malformed.
            ProofError: The answer is not the record of this name and root; or with a trust store, a rollback or a fork.
            RootNotFound: The gateway does not hold the root.
            Unauthorized: The token is wrong, or the gateway has no administration routes.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        root = self._root(root)
        return self._noted(operations.publications.publish_next(self._settings, scope, name, root, token))

    def freeze(self, scope: str, name: str, *, token: str | None = None) -> client.PublishedRecord:
        """Freeze what is published under a name for good (protocol section 5, *published records*). Idempotent.

        Args:
            scope: The scope of the name.
            name: The name.
            token: The bearer token of the gateway's administration routes; None sends the client's own credentials.

        Returns:
            The frozen record.

        Raises:
            InvalidInput: `scope` or `name` is malformed.
            ProofError: The answer is not the frozen record of this name; or with a trust store, a rollback or a fork.
            RecordNotFound: Nothing is published under the name.
            Unauthorized: The token is wrong, or the gateway has no administration routes.
            Unavailable: The gateway can't be reached or can't answer, after retries, or has no space (`StorageFull`).
        """
        return self._noted(operations.publications.freeze(self._settings, scope, name, token))

    def _noted(self, steps: Steps[client.PublishedRecord], force: bool = False) -> client.PublishedRecord:
        return self._observed(self._run(steps), force)

    def _head(self, origin: str) -> str | None:
        """Return the checkpoint that is remembered; it blocks."""
        return None if self._trust is None else self._trust.head(origin)

    def _kept(self, origin: str, held: str | None, note: str) -> bool:
        """Remember a checkpoint, unless another process has done so meanwhile; it blocks."""
        return self._trust is None or self._trust.advance(origin, held, note)
