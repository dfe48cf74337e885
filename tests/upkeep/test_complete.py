"""Whether a root is held completely: only if everything below it is, and then garbage collection keeps all of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

import coregw
from coregw import Cid
from coregw.engine import Engine
from coregw.engine.completeness import forget_whole
from coregw.engine.pages import COMPLETE, INCOMPLETE, WHOLE
from coregw.errors import InvalidInput
from coregw.store import Stored, Table
from upkeep_site import Site, Time, site_on

pytestmark = pytest.mark.anyio


async def missing(site: Site, root: str) -> str | None:
    """What is missing of a root; None if it is complete."""
    answer = json.loads(await site.engine.check_complete(root))
    assert answer["root"] == root
    assert answer["complete"] == (answer["missing"] is None)
    found: str | None = answer["missing"]
    return found


async def value(site: Site, root: str) -> bytes | None:
    [row] = await site.store.get(Table.ROOTS, [bytes(Cid(root))])
    return row


async def make_list(site: Site, elements: Sequence[str]) -> str:
    changes = [{"index": i, "after": {"target": element, "size": 1}} for i, element in enumerate(elements)]
    body = json.dumps({"deltas": [{"kind": "list", "changes": changes}]}).encode()
    return str(json.loads(await site.engine.mutate(await site.create({}), body))["new_root"])


async def test_every_payload_and_nested_root_at_any_depth_is_needed(site: Site) -> None:
    payloads = {name: f"payload {name}".encode() for name in ("top", "of map", "of list", "below")}
    cids = {name: coregw.payload_cid(data) for name, data in payloads.items()}
    identity = coregw.encode_attributes("file", size=3)[0]
    below = coregw.Map({"x": cids["below"]}).root
    nested = await site.create({"a": cids["of map"], "below": below})
    listed = await make_list(site, [cids["of list"], identity])
    root = await site.create({"p": cids["top"], "m": nested, "l": listed, "i": identity})
    for _ in range(10):
        if (what := await missing(site, root)) is None:
            break
        assert await value(site, root) != WHOLE
        if what == below:
            await site.create({"x": cids["below"]})
        else:
            (name,) = (name for name, cid in cids.items() if cid == what)
            del cids[name]
            await site.put(payloads[name])
    assert cids == {}
    assert await value(site, root) == WHOLE
    assert await missing(site, root) is None
    assert await value(site, nested) != WHOLE


async def test_a_large_tree_lacks_one_payload(site: Site) -> None:
    arcs = {f"folder/{i:05}": await site.put(b"%d" % i) for i in range(300)}
    arcs |= {f"same/{i:05}": arcs["folder/00000"] for i in range(9000)}
    root = await site.create(arcs | {"folder/00150": coregw.payload_cid(b"absent")})
    assert await missing(site, root) == coregw.payload_cid(b"absent")
    assert await missing(site, await site.create(arcs)) is None


async def test_what_is_not_held_or_has_lost_pages_is_incomplete(site: Site) -> None:
    assert await missing(site, coregw.Map({"a": "bafkqaaa"}).root) == coregw.Map({"a": "bafkqaaa"}).root
    root = await site.create({"a": "bafkqaaa"})
    await site.store.put({Table.ROOTS: [(bytes(Cid(root)), INCOMPLETE)]})
    site = Site(Engine(site.store), site.store, site.time)  # a repair is not done while an engine is running
    assert await missing(site, root) == root
    above = await site.create({"above": root})
    assert await missing(site, above) == root
    await site.create({"a": "bafkqaaa"})
    assert await missing(site, above) is None
    with pytest.raises(InvalidInput, match="is a payload, not a root"):
        await site.engine.check_complete("bafkqaaa")


async def test_a_complete_root_stays_complete_for_the_grace_period_and_is_marked_anew_after_it(site: Site) -> None:
    payload = await site.put(b"payload")
    nested = await site.create({"x": payload})
    root = await site.create({"nested": nested, "p": payload})
    assert await missing(site, root) is None
    for _ in range(3):
        site.time.seconds += 50
        assert await missing(site, root) is None  # as young as if just stored
        site.time.seconds += 50
        await site.collect(grace=60)
        assert await site.is_stored(payload)
        assert await missing(site, root) is None
        await site.export(root)
    site.time.seconds += 100
    await site.collect(grace=60)
    assert await missing(site, root) == root
    await site.create({"nested": nested, "p": payload})  # the same root, without what it names
    assert await missing(site, root) in (nested, payload)


async def test_a_root_that_expires_and_is_stored_again_meanwhile_is_not_marked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = await site.put(b"payload")
    root = await site.create({"p": payload})
    renew = site.store.renew

    async def slow(kind: Stored, keys: Sequence[bytes], below_held: bool) -> list[int | None]:
        found = await renew(kind, keys, below_held)
        monkeypatch.undo()
        site.time.seconds += 100
        await site.collect(grace=60)
        assert not await site.is_stored(payload)
        await site.create({"p": payload})
        return found

    monkeypatch.setattr(site.store, "renew", slow)
    assert await missing(site, root) == payload
    assert await value(site, root) not in (WHOLE, None)


async def test_a_collection_that_begins_during_a_check_keeps_what_is_below_the_root(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = await site.put(b"payload")
    root = await site.create({"p": payload})
    site.time.seconds += 50
    renew = site.store.renew

    async def slow(kind: Stored, keys: Sequence[bytes], below_held: bool) -> list[int | None]:
        found = await renew(kind, keys, below_held)
        monkeypatch.undo()
        site.time.seconds += 50
        await site.collect(grace=60)  # for which the payload is old, and the root is not
        return found

    monkeypatch.setattr(site.store, "renew", slow)
    assert await missing(site, root) is None
    assert await value(site, root) == WHOLE
    assert await site.is_stored(payload)


async def test_a_collection_that_is_in_progress_during_a_check_keeps_what_is_below_the_root(site: Site) -> None:
    payload = await site.put(b"payload")
    site.time.seconds += 100
    async with site.store.collect(60) as collection:
        root = await site.create({"p": payload})  # the collection has listed the roots before
        assert await missing(site, root) is None
        assert await collection.remove(Stored.PAYLOADS, [Cid(payload).multihash]) == [False]


async def test_storing_a_root_again_or_salvaging_the_store_removes_the_mark(site: Site) -> None:
    roots = [await site.create({str(i): "bafkqaaa"}) for i in range(3)]
    assert [await missing(site, root) for root in roots[:2]] == [None, None]
    await forget_whole(site.store)
    assert [await value(site, root) for root in roots] == [COMPLETE] * 3
    assert await missing(site, roots[0]) is None


# --- roots that were made of complete ones ----------------------------------------------------------------------------


@pytest.fixture
def looked_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The multihashes of the payloads that were looked up."""
    names: list[bytes] = []
    renew = site.store.renew

    async def noted(kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        names.extend(keys if kind is Stored.PAYLOADS else ())
        return await renew(kind, keys, below_held)

    monkeypatch.setattr(site.store, "renew", noted)
    return names


async def test_of_a_changed_tree_only_what_is_new_is_looked_up(site: Site, looked_up: list[bytes]) -> None:
    records = await site.create({f"file/{i:05}": await site.put(b"record %d" % i) for i in range(300)})
    arcs = {f"file/{i:05}": await site.put(b"%d" % i) for i in range(3000)}
    first = await site.create(arcs | {".records": records})
    assert await missing(site, first) is None
    assert len(looked_up) == 3300
    absent, new = coregw.payload_cid(b"absent"), await site.put(b"new")
    changed_records = await site.change(records, "file/00007", new, coregw.payload_cid(b"record 7"))
    looked_up.clear()
    second = await site.change(first, ".records", changed_records, records)
    third = await site.change(second, "file/01234", absent, arcs["file/01234"])
    assert await missing(site, third) == absent
    await site.put(b"absent")
    looked_up.clear()
    assert await missing(site, third) is None
    assert sorted(looked_up) == sorted(Cid(cid).multihash for cid in (absent, new))
    assert await value(site, third) == WHOLE
    await forget_whole(site.store)
    looked_up.clear()
    assert await missing(site, second) is None
    assert len(looked_up) == 3300


async def test_changes_of_complete_trees_lack_what_a_walk_of_the_whole_tree_would_miss(site: Site) -> None:
    random = Random(7)
    held = [await site.put(b"%d" % i) for i in range(50)]
    absent = [coregw.payload_cid(b"absent %d" % i) for i in range(50)]
    arcs = {f"{i}": held[i % 50] for i in range(2000)}
    roots = [(await site.create(arcs), arcs)]
    assert await missing(site, roots[0][0]) is None
    for _ in range(60):
        root, arcs = random.choice(roots)
        path, after = f"{random.randrange(2100)}", random.choice(held if random.random() < 0.8 else absent)
        if arcs.get(path) == after:
            continue
        root, arcs = await site.change(root, path, after, arcs.get(path)), arcs | {path: after}
        roots.append((root, arcs))
        lacking = set(arcs.values()) & set(absent)
        found = await missing(site, root)
        assert (found in lacking) if lacking else (found is None)


async def test_a_collection_in_progress_keeps_what_is_below_the_base_of_a_root_that_is_checked(site: Site) -> None:
    root = await site.create({"p": await site.put(b"payload"), "q": await site.put(b"other")})
    assert await missing(site, root) is None
    new = await site.put(b"new")
    site.time.seconds += 100
    async with site.store.collect(60) as collection:  # has listed the roots before, and keeps none
        changed = await site.change(root, "q", new, coregw.payload_cid(b"other"))
        assert await collection.expire() == [bytes(Cid(root))]  # it walks what is below this one, and asks again
        assert await missing(site, changed) is None
        assert await collection.expire() == [bytes(Cid(root))]
        assert await collection.expire() == []
        assert await missing(site, root) is None
        assert await collection.remove(Stored.PAYLOADS, [Cid(new).multihash]) == [False]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_on(tmp_path / "store", Time()) as made:
        yield made
