"""Published names at an edge: read from the upstream, kept for a few seconds, and shown as stale while that is away."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NoReturn, TypeVar
from urllib.parse import quote

from msgspec import UNSET

from coregw.client.exchange.answers import decode
from coregw.client.exchange.call import Answer, Call
from coregw.client.operations.record import check_name, check_roots
from coregw.client.static.upstream import HttpUpstream
from coregw.engine.publications import FoundRecord, Publications
from coregw.errors import InvalidInput, RecordNotFound, Unauthorized, Unavailable, UpstreamDamaged
from coregw.gateway.edge.lasting import LastingNames
from coregw.messages import encode
from coregw.messages.publication import PublicationProof, SignedCheckpoint
from coregw.messages.record import PublishedRecord, PublishedRecords, PublishRequest, RecordHistory
from coregw.store import Store
from coregw.waiting import result_of

__all__ = ["UPSTREAM_TOKEN_VARIABLE", "UpstreamNames"]

T = TypeVar("T")

UPSTREAM_TOKEN_VARIABLE: Final = "GATEWAY_UPSTREAM_TOKEN"  # noqa: S105 - the variable's name

_MAX_NAMES: Final = 10_000
_MAX_ANSWER_BYTES: Final = 4 << 20


class UpstreamNames(Publications):
    """The published records of an upstream, ``engine.publications`` of an edge.

    A record is asked for again when its lifetime is over. If the upstream does not answer then, the old one is returned
    with its age, also if an earlier process was told (`coregw.gateway.edge.lasting`).

    Args:
        store: The edge's store.
        upstream: The upstream.
        token: The bearer token of the upstream's administration routes; None if it needs none, as a static tree.
        lifetime: How many seconds a record is fresh.
        takes_writes: Whether publications are passed on.
    """

    def __init__(
        self, store: Store, upstream: HttpUpstream, token: str | None, lifetime: float, *, takes_writes: bool
    ) -> None:
        super().__init__(store)
        self._upstream = upstream
        self._token = token
        self._lifetime = lifetime
        self._takes_writes = takes_writes
        self._lasting = LastingNames(store, upstream.url)
        self._written: dict[tuple[str, str], tuple[float, PublishedRecord]] = {}  # of names that are known
        self._known: OrderedDict[tuple[str, str], tuple[float, PublishedRecord]] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Future[tuple[float, PublishedRecord]]] = {}

    async def get(self, scope: str, name: str) -> PublishedRecord:
        """Return the newest revision of a record that is known; see `find`."""
        return (await self.find(scope, name)).record

    async def find(self, scope: str, name: str) -> FoundRecord:
        """Return the newest revision of a record that is known, and how old that knowledge is.

        Raises:
            RecordNotFound: The upstream has nothing under the name.
            Unavailable: The upstream is away or refuses the token, and nothing is known.
            InvalidInput: A malformed scope or name.
        """
        check_name(scope, name)
        key = (scope, name)
        known = self._known.get(key)
        if known is None or time.monotonic() - known[0] > self._lifetime:
            try:
                known = await self._asked(key)
            except Unavailable:
                if known is None and (known := await self._known_before(key)) is None:
                    raise
            except RecordNotFound:
                self._known.pop(key, None)
                self._written.pop(key, None)
                await self._lasting.forget(scope, name)
                raise
        return FoundRecord(known[1], time.monotonic() - known[0], self._lifetime)

    async def _known_before(self, key: tuple[str, str]) -> tuple[float, PublishedRecord] | None:
        """Return what an earlier process was told, as stale, and when, by this process's clock; None if unknown."""
        if (lasting := await self._lasting.find(*key)) is None:
            return None
        age, record = lasting
        return time.monotonic() - max(age, self._lifetime), record

    async def _asked(self, key: tuple[str, str]) -> tuple[float, PublishedRecord]:
        """Ask the upstream for a record, once for all who wait for it."""
        if (asking := self._asking.get(key)) is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(*key))
            asking.add_done_callback(lambda _: self._asking.pop(key))
        return await result_of(asking)

    async def _ask(self, scope: str, name: str) -> tuple[float, PublishedRecord]:
        return await self._note(scope, name, await self._send(PublishedRecord, "GET", scope, f"/{name}"))

    async def _note(self, scope: str, name: str, record: PublishedRecord) -> tuple[float, PublishedRecord]:
        """Keep a record as what is known from now on; of those that were asked for longest ago, one is dropped."""
        if (record.scope, record.name) != (scope, name):
            said = f"{record.scope:.200}/{record.name:.200}"
            raise UpstreamDamaged(f"{self._upstream.url} answers for {scope}/{name} with the record of {said}")
        try:
            check_roots(record)
        except InvalidInput as error:
            raise UpstreamDamaged(f"{self._upstream.url}: the record of {scope}/{name}: {error.message}") from None
        known = self._known[scope, name] = time.monotonic(), record
        self._known.move_to_end((scope, name))
        if len(self._known) > _MAX_NAMES:
            self._written.pop(self._known.popitem(last=False)[0], None)
        written = self._written.get((scope, name))
        before = None if written is None else (known[0] - written[0], written[1])
        if await self._lasting.note(record, before) and (scope, name) in self._known:
            self._written[scope, name] = known
        return known

    async def publish(self, scope: str, name: str, root: str, expected_revision: int | None) -> PublishedRecord:
        """Publish at the upstream, in one attempt: without an expected revision, another would publish again."""
        if not self._takes_writes:
            self._refuse()
        check_name(scope, name)
        wanted = UNSET if expected_revision is None else expected_revision
        body = encode(PublishRequest(name=name, root=root, expected_revision=wanted))
        record = await self._send(PublishedRecord, "POST", scope, "", body, is_repeatable=wanted is not UNSET)
        await self._note(scope, name, record)
        return record

    async def freeze(self, scope: str, name: str) -> PublishedRecord:
        """Freeze a record of the upstream."""
        if not self._takes_writes:
            self._refuse()
        check_name(scope, name)
        record = await self._send(PublishedRecord, "POST", scope, f"/{name}/freeze")
        await self._note(scope, name, record)
        return record

    async def in_scope(self, scope: str, after: str | None, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List records of the upstream; nothing of it is kept."""
        params = {"limit": str(limit)} | ({} if after is None else {"after": after})
        page = await self._send(PublishedRecords, "GET", scope, "", params=params)
        return page.records, page.next is not UNSET

    async def history(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List revisions of the upstream; nothing of it is kept."""
        check_name(scope, name)
        params = {"after": str(after), "limit": str(limit)}
        page = await self._send(RecordHistory, "GET", scope, f"/{name}/history", params=params)
        return page.records, page.next is not UNSET

    async def prove(
        self, scope: str, name: str, old: int = 0, revision: int | None = None, size: int | None = None
    ) -> PublicationProof:
        """Get a proof of the upstream for an operator; nothing of it is kept, and its clients verify it."""
        check_name(scope, name)
        params = {"old": str(old)} | ({} if size is None else {"size": str(size)})
        return await self._send(PublicationProof, "GET", scope, f"/{name}/proof", params=params)

    async def signed(self, scope: str, name: str, old: int = 0, revision: int | None = None) -> PublicationProof:
        """Get a proof of the upstream; nothing of it is kept, and its clients verify it."""
        check_name(scope, name)
        params = {"old": str(old)} | ({} if revision is None else {"revision": str(revision)})
        return await self._get(PublicationProof, f"/v1/publications/{scope}/{name}", params)

    async def entries(self, scope: str, name: str, after: int, limit: int) -> tuple[list[PublishedRecord], bool]:
        """List signed revisions of the upstream; nothing of it is kept."""
        check_name(scope, name)
        params = {"after": str(after), "limit": str(limit)}
        page = await self._get(RecordHistory, f"/v1/publications/{scope}/{name}/entries", params)
        return page.records, page.next is not UNSET

    async def sign(self, scope: str, name: str, note: str) -> PublicationProof:
        """Publish a signed checkpoint at the upstream."""
        if not self._takes_writes:
            self._refuse()
        check_name(scope, name)
        body = encode(SignedCheckpoint(checkpoint=note))
        return await self._send(PublicationProof, "POST", scope, f"/{name}/checkpoint", body)

    async def _get(self, kind: type[T], path: str, params: Mapping[str, str]) -> T:
        """Return what everybody may read of the upstream."""
        call = Call("GET", path, _MAX_ANSWER_BYTES, f"{self._upstream.url}{path}", params=params)
        answer: Answer = await self._upstream.send(call, is_repeatable=True)
        return decode(call, answer, kind)

    async def _send(
        self,
        kind: type[T],
        method: str,
        scope: str,
        below: str,
        content: bytes | None = None,
        *,
        params: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
    ) -> T:
        path = f"/admin/v1/scopes/{quote(scope, safe='')}/roots{below}"
        what = f"{self._upstream.url}{path}"
        call = Call(method, path, _MAX_ANSWER_BYTES, what, content=content, params=params or {}, token=self._token)
        try:
            answer: Answer = await self._upstream.send(call, is_repeatable=is_repeatable)
        except Unauthorized:
            raise Unavailable(f"{what}: the upstream refuses the token in {UPSTREAM_TOKEN_VARIABLE}") from None
        return decode(call, answer, kind)

    def _refuse(self) -> NoReturn:
        raise InvalidInput(
            f"this is an edge, which accepts no writes: send them to {self._upstream.url}", code="read_only"
        )
