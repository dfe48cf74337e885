"""Random histories of writes and collections, compared with a model; and collections that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from coregw.errors import RootNotFound
from coregw.upkeep.pins import Pins
from upkeep_site import Site, Time, site_on

GRACE = 60
_TEN_YEARS = 10 * 365 * 86_400.0


@dataclass
class Model:
    """What was acknowledged: arcs of each root, when roots and payloads were confirmed, and what is kept forever."""

    arcs: dict[str, dict[str, str]] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def owed(self, now: float) -> set[str]:
        """The roots and payloads that the store must have, with all that they led to when they were confirmed."""
        owed = {cid for cid, at in self.confirmed.items() if at >= now - GRACE} | self.kept
        rest = list(owed)
        while rest:
            for target in self.arcs.get(rest.pop(), {}).values():
                # What was garbage already when it was bound is not owed; the history below binds only what is owed.
                if target not in owed:
                    owed.add(target)
                    rest.append(target)
        return owed


class History:
    """A random history on one site."""

    def __init__(self, site: Site, model: Model, rng: random.Random) -> None:
        self.site, self.model, self.rng = site, model, rng

    def _some_owed(self, *, is_root: bool | None = None) -> str | None:
        owed = sorted(self.model.owed(self.site.time.seconds))
        fitting = [cid for cid in owed if is_root is None or (cid in self.model.arcs) == is_root]
        return self.rng.choice(fitting) if fitting else None

    def _note(self, cid: str, arcs: dict[str, str] | None = None) -> None:
        self.model.confirmed[cid] = self.site.time.seconds
        if arcs is not None:
            self.model.arcs[cid] = arcs

    async def put(self) -> None:
        self._note(await self.site.put(b"payload %d" % self.rng.randrange(8)))

    async def ask(self) -> None:
        cid = coregw.payload_cid(b"payload %d" % self.rng.randrange(8))
        if await self.site.has(cid):
            self._note(cid)

    async def create(self) -> None:
        arcs = {}
        for number in range(self.rng.choice([1, 3, 400])):
            target = self._some_owed()
            if target is not None:
                arcs[f"folder/{number}"] = target
        self._note(await self.site.create(arcs), arcs)

    async def change(self) -> None:
        root, target = self.rng.choice([*self.model.arcs] or [""]), self._some_owed(is_root=False)
        if not root or target is None or not self.model.arcs[root]:
            return
        arcs = dict(self.model.arcs[root])
        path = self.rng.choice(sorted(arcs))
        before, arcs[path] = arcs[path], target
        if before == target:
            return
        try:
            self._note(await self.site.change(root, path, target, before), arcs)
        except RootNotFound:
            assert root not in self.model.owed(self.site.time.seconds)

    async def keep(self) -> None:
        root = self.rng.choice([*self.model.arcs] or [""])
        if not root:
            return
        try:
            if self.rng.random() < 0.5:
                await self.site.publish(root, f"name-{self.rng.randrange(3)}")
            else:
                await Pins(self.site.store).add(root, f"pin-{len(self.model.kept)}", None)
            self.model.kept.add(root)
        except RootNotFound:
            assert root not in self.model.owed(self.site.time.seconds)

    async def wait(self) -> None:
        self.site.time.seconds += self.rng.choice([1, 10, 30])

    async def run(self, steps: int) -> None:
        actions = [self.put, self.ask, self.create, self.change, self.change, self.keep, self.wait]
        for _ in range(steps):
            await self.rng.choice(actions)()
            await asyncio.sleep(0)

    async def check(self) -> None:
        for cid in self.model.owed(self.site.time.seconds):
            if cid in self.model.arcs:
                for path, target in list(self.model.arcs[cid].items())[:5]:
                    assert await self.site.resolve(cid, *path.split("/")) == target
                await self.site.export(cid)
            else:
                assert await self.site.is_stored(cid)


@pytest.mark.anyio
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 100, 116, 142])
async def test_everything_owed_is_readable_after_any_history(tmp_path: Path, seed: int) -> None:
    """Collections run beside writes, some are cancelled halfway, and the store is closed and opened in between.

    The system's clock is wrong by up to ten years at some openings.
    """
    rng, clock, model = random.Random(seed), Time(), Model()
    for _ in range(3):
        clock.error = rng.choice([0.0, 0.0, rng.uniform(-_TEN_YEARS, _TEN_YEARS)])
        async with site_on(tmp_path, clock) as site:
            history = History(site, model, rng)
            for _ in range(3):
                collecting = asyncio.create_task(site.collect(grace=GRACE))
                await history.run(12)
                if rng.random() < 0.3:
                    collecting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await collecting
                await history.check()


# --- killed collections -----------------------------------------------------------------------------------------------


def test_everything_acknowledged_lately_or_published_is_there_after_a_kill_during_collections(tmp_path: Path) -> None:
    """What is owed is decided by the time that each call took, so a slow machine changes only how much that is."""
    rng = random.Random(0)
    published: list[tuple[str, str]] = []
    stored: list[tuple[float, str, str]] = []
    process = serving.start(tmp_path, serving.ADMIN, gc_seconds=0.01, gc_grace_seconds=_KILLED_GRACE)
    with coregw.Client(process.url) as client:
        # Until garbage was removed beside something that is owed forever.
        while len(stored) < 20 or not published or _is_held(client, stored[0][1]):
            began = time.monotonic()
            payload = client.put_payload(rng.randbytes(2000))
            root = client.create_root({"file": payload, **{f"folder/{i}": payload for i in range(200)}})
            if not _in_grace(began):  # the payload may have been garbage before the root named it
                continue
            stored.append((began, root, payload))
            if len(stored) % 10 == 5 and _publish(process.url, f"name-{len(stored)}", root, began):
                published.append((root, payload))
    assert process.end(signal.SIGKILL) == -signal.SIGKILL
    process.popen.communicate()
    owed = [*published, *((root, payload) for began, root, payload in stored if _in_grace(began))]
    with serving.process(tmp_path) as process, coregw.Client(process.url) as client:
        for root, payload in owed:
            assert client.resolve(root, "folder/7") == payload
            assert coregw.payload_cid(client.get_payload(payload)) == payload


_KILLED_GRACE = 1.5


def _in_grace(began: float) -> bool:
    """Whether what was stored since then cannot be garbage now; the dates of a store have a resolution of their own."""
    return time.monotonic() - began < 0.8 * _KILLED_GRACE


def _is_held(client: coregw.Client, root: str) -> bool:
    try:
        client.resolve(root, "file")
    except RootNotFound:
        return False
    return True


def _publish(url: str, name: str, root: str, began: float) -> bool:
    """Publish a root that was stored after `began`. Returns whether it is owed: too late, it may have been garbage."""
    headers = {"Authorization": f"Bearer {serving.ADMIN_TOKEN}"}
    answer = httpx2.post(f"{url}/admin/v1/scopes/docs/roots", json={"name": name, "root": root}, headers=headers)
    if not _in_grace(began):
        return False
    assert answer.status_code == 200, answer.text
    return True
