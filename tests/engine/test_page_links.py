"""`page_links` and `KeyFilter`: what stored pages lead to, for checks and collections of a whole store."""

from __future__ import annotations

import asyncio
import json

import pytest

import coregw
from coregw._core import Cid, KeyFilter, page_links
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.memory import MemoryStore

PAYLOADS = [coregw.payload_cid(str(number).encode()) for number in range(2000)]


def stored(arcs: dict[str, str], suite: str) -> tuple[str, dict[bytes, bytes]]:
    """Store a map; its root and all pages."""

    async def store() -> tuple[str, dict[bytes, bytes]]:
        memory = MemoryStore()
        engine = Engine(memory)
        created = await engine.create_root(json.dumps({"arcs": arcs, "suite": suite}).encode())
        pages: dict[bytes, bytes] = {}
        for first in range(256):
            pages.update(await memory.list_rows(Table.PAGES, bytes((first,)), None, 1000))
        await engine.close()
        root: str = json.loads(created)["root"]
        return root, pages

    return asyncio.run(store())


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_links_lead_from_the_root_to_every_page_and_target(suite: str) -> None:
    nested = coregw.Map({"a": PAYLOADS[0]}).root
    identity = coregw.payload_cid(b"short", hash="identity")
    arcs = {f"d/{number}": cid for number, cid in enumerate(PAYLOADS)} | {"nested": nested, "identity": identity}
    root, pages = stored(arcs, suite)
    assert len(pages) > 3
    waiting, seen = [Cid(root).digest], set[bytes]()
    roots: list[bytes] = []
    payloads: list[bytes] = []
    while waiting:
        digest = waiting.pop()
        seen.add(digest)
        (links,) = page_links([(digest, pages[digest])])
        assert links is not None
        assert page_links([(digest, pages[digest])], payloads=False) == [links._replace(payloads=[])]
        waiting += links.pages
        roots += links.roots
        payloads += links.payloads
        kind = Cid(links.root)
        assert (kind.digest, kind.kind, kind.suite) == (digest, "map", suite)
    assert seen == set(pages)
    assert roots == [bytes(Cid(nested))]
    assert sorted(payloads) == sorted(Cid(cid).multihash for cid in PAYLOADS)


def test_a_page_that_is_not_what_its_digest_names_has_no_links() -> None:
    _, pages = stored({f"d/{number}": cid for number, cid in enumerate(PAYLOADS[:50])}, "sha2-256")
    ((digest, page),) = pages.items()
    for position in range(0, len(page), 37):
        damaged = bytearray(page)
        damaged[position] ^= 1
        assert page_links([(digest, bytes(damaged)), (digest, page)])[0] is None
    assert page_links([(digest, page[:-1]), (bytes(32), page), (digest[:-1], page)]) == [None] * 3


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_a_filter_holds_every_payload_that_pages_name_and_nothing_of_a_damaged_page(suite: str) -> None:
    _, pages = stored({f"d/{number}": cid for number, cid in enumerate(PAYLOADS)}, suite)
    named = [Cid(cid).multihash for cid in PAYLOADS]
    others = [Cid(coregw.payload_cid(b"other %d" % number)).multihash for number in range(1000)]
    keys = KeyFilter(1 << 16)
    damaged = [(digest, page[:-1]) for digest, page in pages.items()]
    assert keys.add_payloads_of([*damaged, (b"short", b"")]) == [False] * (len(pages) + 1)
    assert not any(keys.may_hold(named))
    assert keys.add_payloads_of(list(pages.items())) == [True] * len(pages)
    assert all(keys.may_hold(named))
    assert not any(keys.may_hold(others))
    keys.add(others)
    assert all(keys.may_hold([*named, *others]))


def test_the_smallest_filter_claims_keys_that_were_not_added_and_denies_none_that_was() -> None:
    keys = KeyFilter(0)
    added = [b"%d" % number for number in range(100)]
    keys.add(added)
    assert all(keys.may_hold(added))
    assert any(keys.may_hold([b"other %d" % number for number in range(100)]))
