"""The engine: request bytes in, response bytes out, over one store. The only place where a store and _core meet.

The extension does all work on trees and says what it needs (pages, root records, more time); the engine fetches that
and lets it go on. What is found in the cache is answered on the event loop, without a thread; disk reads are the
store's business; long work moves to worker threads. Writing goes pages first, root records last, then the answer.

Leaves out HTTP, limits on bodies, and what a status is (``coregw.gateway``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Final, NamedTuple, ParamSpec, TypeVar

from msgspec import UNSET

from coregw import _core, batches
from coregw._core import Build, Cid, Mutation, Need, Operation, PageCache, PayloadHasher
from coregw.batch_messages import HasBatchResult, Presence, PutBatchResult, PutOutcome
from coregw.batches import BatchNeed, Payload, ResolveBatch
from coregw.blocks import top_block
from coregw.errors import (
    InvalidInput,
    PayloadNotFound,
    ProofError,
    RecordNotFound,
    RootNotFound,
    StoreDamaged,
    Unavailable,
)
from coregw.messages import encode
from coregw.record_messages import PublishedRecord
from coregw.store import CHUNK_BYTES, Record, Store

__all__ = ["Engine", "StoredPayload"]

P = ParamSpec("P")
R = TypeVar("R")

BATCH_BYTES: Final = 1 << 20
"""The most bytes of pages given to the store at once."""

HEAVY_BODY_BYTES: Final = 1 << 20
"""Larger root creations and mutations wait for a place: they need memory several times their body's size."""

INLINE_BODY_BYTES: Final = 64 << 10
"""Larger bodies are parsed and worked on in a worker thread: a millisecond is what the event loop may lose."""

CHANGE_WEIGHT: Final = 16
"""A byte of a mutation is as much work as this many of a query: each of its coordinates is a walk, hashes and pages."""

INLINE_PAGES: Final = 32
"""More pages at once are checked and parsed in a worker thread."""

PUTS_AT_ONCE: Final = 256
"""How many payloads of a batch are written at once: they share syncs."""

PATH_COST: Final = 4096
"""Bytes of a request that cost about as much as resolving one path of a batch."""

WORKER_BUDGET_FACTOR: Final = 16
"""A worker's turn is this many times the event loop's; after each turn it is checked whether time is up."""


class StoredPayload(NamedTuple):
    """A payload that the store has: the CID as it was asked for (normalised), its multihash, its size in bytes."""

    cid: str
    multihash: bytes
    size: int


class Engine:
    """Answers queries and makes changes over one store. Safe for any number of tasks of one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        cache_bytes: int = 256 << 20,
        budget: int = 4096,
        worker_threads: int = 4,
        held_roots: int = 65_536,
        heavy_requests: int = 2,
        max_lookups: int = 10_000,
        operation_seconds: float = 30.0,
        batch_answer_bytes: int = 64 << 20,
    ) -> None:
        """Wraps a store. The engine closes it (`close`).

        Args:
            store: Where pages, root records and payloads are.
            cache_bytes: Memory for parsed pages.
            budget: Tree nodes that a query may visit before it leaves the event loop.
            worker_threads: Threads for long work.
            held_roots: How many roots known to be held are remembered.
            heavy_requests: Root creations and mutations with large bodies worked on at once.
            max_lookups: Look-ups that one resolve may need.
            operation_seconds: Time one query or change may take, writing aside.
            batch_answer_bytes: The longest answer to a batch of resolves.
        """
        self._store = store
        self._cache = PageCache(cache_bytes)
        self._budget = budget
        self._workers = ThreadPoolExecutor(worker_threads, thread_name_prefix="coregw-engine")
        self._held: OrderedDict[bytes, None] = OrderedDict()
        self._most_held = held_roots
        self._heavy = asyncio.Semaphore(heavy_requests)
        self._max_lookups = max_lookups
        self._seconds = operation_seconds
        self._batch_answer_bytes = batch_answer_bytes

    async def close(self) -> None:
        """Waits for worker threads and closes the store. Idempotent."""
        await asyncio.to_thread(self._workers.shutdown)
        await self._store.close()

    async def healthy(self) -> bool:
        """Whether the store can read and write. Cheap."""
        return await self._store.healthy()

    # --- queries ------------------------------------------------------------------------------------------------------

    async def resolve(self, request: bytes) -> bytes:
        """Answers a resolve request (protocol section 5) with its result, both as JSON.

        Raises:
            InvalidInput: It is no such request.
            RootNotFound: The store does not hold the root.
            PathNotFound: The path leads nowhere, as far as this store knows.
            Unavailable: The query took too long, or the store does not answer.
            StoreDamaged: A page is missing or is not what its digest says.
        """
        return await self._answer(request, Operation.resolve, self._max_lookups)

    async def read(self, request: bytes) -> bytes:
        """Answers a read request. As `resolve`; a `NotFound` of a read has the proof of the absence as details.

        Raises:
            TooLarge: A range has more than 10,000 segments. Else as `resolve`.
        """
        return await self._answer(request, Operation.read)

    async def map_proof(self, request: bytes) -> bytes:
        """Answers a map-proof request. Raises as `resolve`, but absence is an answer."""
        return await self._answer(request, Operation.map_proof)

    async def scan(self, request: bytes) -> bytes:
        """Answers a scan request. Raises as `resolve`; an empty listing is an answer."""
        return await self._answer(request, Operation.scan)

    async def diff(self, a: str, b: str, prefix: str, after: str | None, limit: int) -> bytes:
        """The differences between two maps with their proofs, a page of them, as JSON. Cost as their number x depth.

        Args:
            a: The root of the first map.
            b: The root of the second map.
            prefix: The path, in text form, that all differences are at or below; empty for all.
            after: The path, in text form, behind which the page starts; None for the first page.
            limit: The most differences, 1 to 1,000.

        Raises:
            InvalidInput: A root is no CID or no map (code ``kind_mismatch``, also for maps of different suites), a
                path is none or `after` is outside the prefix (code ``invalid_path``), or the limit is another number.
            RootNotFound: The store does not hold one of the roots.
            Unavailable, StoreDamaged: As `resolve`.
        """
        operation = Operation.diff(self._cache, a, b, prefix, after, limit)
        await self._drive(operation, 0)
        return operation.result()

    async def resolve_batch(self, request: bytes) -> bytes:
        """Answers a batch of resolves of one root, which share what is fetched.

        Raises:
            TooLarge: More than 1,000 paths, or the outcomes together are longer than ``batch_answer_bytes``. Else as
                `resolve`, but what is not found is the outcome of its path alone.
        """
        limits = self._max_lookups, self._batch_answer_bytes
        batch = await self._call(len(request), ResolveBatch, self._cache, request, *limits)
        await self._drive(batch, max(len(request), len(batch) * PATH_COST))
        return await self._call(len(batch) * PATH_COST, batch.result)

    async def verify_resolve(self, request: bytes, result: bytes) -> str | None:
        """Checks a resolve result: None if it is proven, else why not. O(size).

        Raises:
            InvalidInput: `request` is no resolve request.
        """
        return await self._verdict(_core.verify_resolve, request, result)

    async def verify_read(self, request: bytes, result: bytes) -> str | None:
        """Checks a read result, or the details of a read's 404: None if it is proven, else why not. O(size).

        Raises:
            InvalidInput: `request` is no read request.
        """
        return await self._verdict(_core.verify_read, request, result)

    async def _answer(self, request: bytes, start: Callable[..., Operation], *arguments: int) -> bytes:
        operation = await self._call(len(request), start, self._cache, request, *arguments)
        await self._drive(operation, len(request))
        return operation.result()

    async def _verdict(self, verify: Callable[[bytes, bytes], object], request: bytes, result: bytes) -> str | None:
        try:
            await self._call(len(request) + len(result), verify, request, result)
        except ProofError as error:
            return error.message
        return None

    # --- changes ------------------------------------------------------------------------------------------------------

    async def create_root(self, request: bytes) -> str:
        """Makes a map from the JSON of ``POST /v1/roots`` and returns its root; durable on return. O(n log n).

        Raises:
            InvalidInput: It is no such request; the message names the arc.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        async with self._place_for(request):
            build = await self._in_worker(Build.arcs, request)
            await self._keep(build.next_pages, [bytes(Cid(build.root))])
            return build.root

    async def mutate(self, base_root: str, request: bytes) -> bytes:
        """Applies the deltas of a mutation request to a base root; the receipt as JSON, durable on return.

        Raises:
            InvalidInput: It is no such request, or `base_root` is no root.
            RootNotFound: The base root, or an object named in a delta, is not held.
            Conflict: A delta does not fit; the message names delta and coordinate. Nothing was stored.
            Unavailable: It took too long, or the store cannot write now (`StorageFull`: it has no room).
        """
        async with self._place_for(request):
            mutation = await self._call(len(request), Mutation, self._cache, base_root, request)
            await self._drive(mutation, CHANGE_WEIGHT * len(request))
            receipt = mutation.result()
            await self._keep(mutation.next_pages, mutation.roots)
            return receipt

    def _place_for(self, request: bytes) -> AbstractAsyncContextManager[object]:
        return self._heavy if len(request) > HEAVY_BODY_BYTES else nullcontext()

    async def _keep(self, next_pages: Callable[[int], list[tuple[bytes, bytes]]], roots: Sequence[bytes]) -> None:
        """Stores pages, then root records. Roots that are held have their pages already."""
        if all(await self._are_held(roots)):
            return
        pages = await self._in_worker(next_pages, BATCH_BYTES)
        while following := await self._in_worker(next_pages, BATCH_BYTES):
            await self._store.put_pages(pages)
            pages = following
        await self._store.put_roots(roots, pages)
        for root in roots:
            self._remember(root)

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def put_payload(self, chunks: AsyncIterator[bytes], codec: str, hash_name: str) -> str:
        """Stores a payload that comes in pieces and returns its CID; durable on return.

        Args:
            chunks: The bytes. What it raises passes through, and nothing is stored.
            codec: Multicodec name or number.
            hash_name: ``sha2-256`` or ``blake3``.

        Raises:
            InvalidInput: The codec (code ``invalid_codec``) or the hash function is none that payloads may have.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        hasher = PayloadHasher(codec, hash_name)
        async with self._store.begin_payload() as writer:
            async for chunk in chunks:
                hasher.update(chunk)
                await writer.write(chunk)
            cid = hasher.cid()
            await writer.commit(Cid(cid).multihash)
        return cid

    async def cas_batch(self, request: bytes, largest: int) -> bytes:
        """Stores the payloads of a batch, or says which are held; what is said is durable on return.

        If one item is wrong, nothing of the batch is stored. If the store fails half way, what was stored stays.

        Args:
            request: The JSON of ``POST /v1/cas/batch``.
            largest: The most bytes of one payload.

        Raises:
            InvalidInput: It is no such request; the message names the item.
            TooLarge: Too many items or bytes.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        async with self._place_for(request):
            to_store, payloads = await self._call(len(request), batches.read_cas_batch, request, largest)
            if to_store:
                return encode(PutBatchResult(results=await self._put_payloads(payloads)))
            held = await self._store.has_payloads([payload.multihash for payload in payloads])
            found = zip(payloads, held, strict=True)
            return encode(HasBatchResult(results=[Presence(cid=item.cid, present=is_held) for item, is_held in found]))

    async def _put_payloads(self, payloads: Sequence[Payload]) -> list[PutOutcome]:
        """Stores payloads, each once, and says in their order which are new."""
        first = {payload.multihash: payload for payload in reversed(payloads)}
        different = list(first.values())
        new: set[bytes] = set()
        for start in range(0, len(different), PUTS_AT_ONCE):
            turn = different[start : start + PUTS_AT_ONCE]
            stored = await asyncio.gather(*map(self._put_one, turn), return_exceptions=True)  # none is left under way
            for payload, outcome in zip(turn, stored, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome:
                    new.add(payload.multihash)
        return [
            PutOutcome(
                cid=payload.cid,
                status="stored"
                if payload.multihash in new and payload is first[payload.multihash]
                else "already_present",
            )
            for payload in payloads
        ]

    async def _put_one(self, payload: Payload) -> bool:
        async with self._store.begin_payload() as writer:
            await writer.write(payload.data or b"")
            return await writer.commit(payload.multihash)

    async def find_payload(self, cid: str) -> StoredPayload:
        """Looks a payload up by any CID with its multihash.

        Raises:
            InvalidInput: `cid` is no CID of the protocol (code ``invalid_cid``).
            PayloadNotFound: The store does not have it.
        """
        parsed = Cid(cid)
        size = await self._store.stat_payload(parsed.multihash)
        if size is None:
            raise PayloadNotFound(f"no payload {parsed.text} is held here")
        return StoredPayload(parsed.text, parsed.multihash, size)

    async def find_block(self, cid: Cid) -> StoredPayload | bytes:
        """Looks up what an IPFS client asks for: a payload by its multihash, or the tree node that a root CID names.

        Of tree nodes, those are blocks here that pages begin with: the top of every held root, and of what hangs below
        it at its pages' edges.

        Raises:
            PayloadNotFound: The store does not have the payload.
            RootNotFound: No stored page begins with such a node.
            StoreDamaged: The page of a held root is missing, or a page is not what its digest says.
        """
        if cid.kind == "cas":
            return await self.find_payload(cid.text)
        [held] = await self._are_held([bytes(cid)])  # first, since a root comes after its pages
        [page] = await self._store.get_pages([cid.digest])
        if page is not None:
            return top_block(cid, page)
        if held:
            raise StoreDamaged(f"the page of the held root {cid.text} is missing")
        raise RootNotFound(f"the store has no root or page {cid.text}")

    def read_payload(self, payload: StoredPayload, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes `start` to `end` (exclusive) of a payload in chunks of at most 1 MiB. Raises as the store does."""
        return self._store.read_payload(payload.multihash, start, end)

    async def read_small_payload(self, payload: StoredPayload, start: int, end: int) -> bytes | None:
        """The same bytes at once, or None where they are more than one chunk."""
        if end - start > CHUNK_BYTES:
            return None
        return b"".join([chunk async for chunk in self.read_payload(payload, start, end)])

    # --- published records --------------------------------------------------------------------------------------------

    async def publish(self, scope: str, name: str, root: str, expected_revision: int | None) -> PublishedRecord:
        """Publishes a root that is held as the next revision of a name; durable on return. Changes nothing else.

        Args:
            scope: The scope.
            name: The name in it.
            root: The CID of a map or list.
            expected_revision: The newest revision as the caller knows it, 0 for none; None for any.

        Raises:
            InvalidInput: A scope or name of another form, no CID, or no root (code ``kind_mismatch``).
            RootNotFound: The store does not hold the root.
            Conflict: The record is frozen, or at another revision; nothing was published.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        cid = Cid(root)
        if cid.kind == "cas":
            raise InvalidInput(f"{cid.text} is a payload; what is published is a map or a list", code="kind_mismatch")
        if not all(await self._are_held([bytes(cid)])):
            raise RootNotFound(f"the store has no root {cid.text}; nothing was published")
        return _published(await self._store.publish(scope, name, bytes(cid), expected_revision, datetime.now(UTC)))

    async def freeze(self, scope: str, name: str) -> PublishedRecord:
        """Freezes a record for good; durable on return. Idempotent.

        Raises:
            RecordNotFound: The name was never published. Else as `publish`.
        """
        return _published(await self._store.freeze(scope, name, datetime.now(UTC)))

    async def get_record(self, scope: str, name: str) -> PublishedRecord:
        """The newest revision of a record. Raises `RecordNotFound`, or `InvalidInput` for names of another form."""
        record = await self._store.get_record(scope, name)
        if record is None:
            raise RecordNotFound(f"nothing is published as {scope}/{name}")
        return _published(record)

    async def list_records(self, scope: str, after: str | None, limit: int) -> tuple[list[PublishedRecord], bool]:
        """At most `limit` records of a scope with names behind `after`, by name, and whether more follow."""
        records = await self._store.list_records(scope, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit

    async def record_history(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """At most `limit` revisions of a record greater than `after`, oldest first, and whether more follow."""
        records = await self._store.history(scope, name, after, limit + 1)
        return [_published(record) for record in records[:limit]], len(records) > limit

    # --- plants -------------------------------------------------------------------------------------------------------

    async def put_plant(self, plant_id: int, plant: bytes) -> bool:
        """Keeps a plant of the plant store under its id, durable on return; False if the id was taken. O(size).

        Raises:
            InvalidInput: `plant_id` is no int64.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        return await self._store.put_plant(plant_id, plant)

    # --- driving the extension ----------------------------------------------------------------------------------------

    async def _drive(self, work: Operation | Mutation | ResolveBatch, size: int) -> None:
        """Runs a query or change to its end, supplying what it asks for. `size` is that of its request.

        A query minds its budget between nodes; a change may take long for all its coordinates at once. So what a large
        request asks for is done in a worker thread from the start.
        """
        try:
            async with asyncio.timeout(self._seconds):
                need = await self._call(size, work.run, self._budget)
                while need is not None:
                    need = await self._supply(work, need, size)
        except TimeoutError:
            raise Unavailable(f"this took longer than {self._seconds:g} seconds") from None

    async def _supply(
        self, work: Operation | Mutation | ResolveBatch, need: Need | BatchNeed, size: int
    ) -> Need | BatchNeed | None:
        """Fetches one need, and runs on."""
        if need.budget:
            return await self._in_worker(work.run, self._budget * WORKER_BUDGET_FACTOR)
        if need.roots is not None:
            work.supply_roots(await self._are_held(need.roots))
        elif need.pages is not None:
            pages = await self._store.get_pages(need.pages)
            if len(pages) > INLINE_PAGES:
                await self._in_worker(work.supply_pages, pages)
            else:
                work.supply_pages(pages)
        return await self._call(size, work.run, self._budget)

    async def _are_held(self, roots: Sequence[bytes]) -> list[bool]:
        """Whether the store has a record of each root. Only "yes" is remembered: a root is never deleted."""
        unknown = [root for root in roots if root not in self._held]
        found = await self._store.has_roots(unknown) if unknown else []
        absent = {root for root, held in zip(unknown, found, strict=True) if not held}
        for root in roots:
            if root not in absent:
                self._remember(root)
        return [root not in absent for root in roots]

    def _remember(self, root: bytes) -> None:
        self._held[root] = None
        self._held.move_to_end(root)
        if len(self._held) > self._most_held:
            self._held.popitem(last=False)

    async def _call(self, size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function that takes time in proportion to a request's `size`: here, or in a worker thread."""
        if size <= INLINE_BODY_BYTES:
            return function(*args, **kwargs)
        return await self._in_worker(function, *args, **kwargs)

    async def _in_worker(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, lambda: function(*args, **kwargs))


def _published(record: Record) -> PublishedRecord:
    """A record as clients see it, its CIDs as text."""
    return PublishedRecord(
        scope=record.scope,
        name=record.name,
        root=Cid(record.root).text,
        revision=record.revision,
        previous_root=None if record.previous_root is None else Cid(record.previous_root).text,
        published_at=record.published_at,
        frozen=record.frozen,
        frozen_at=UNSET if record.frozen_at is None else record.frozen_at,
    )
