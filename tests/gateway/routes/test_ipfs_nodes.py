"""Tree nodes as blocks for IPFS clients: which nodes a CID can name. `test_ipfs` has the rules of HTTP."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable

import httpx2
import pytest

import serving
from coregw._core import Cid, Need, Operation, PageCache, encode_key, payload_cid
from coregw.engine.objects import top_block
from coregw.errors import StoreDamaged
from coregw.store import Table
from coregw.store.memory import MemoryStore

Block = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
MIB = 1 << 20
METHODS = pytest.mark.parametrize("method", ["GET", "HEAD"])


@pytest.fixture(scope="module")
def cid(client: httpx2.Client) -> str:
    return str(client.post("/v1/cas", content=b"a target").json()["cid"])


@pytest.fixture(scope="module")
def block(client: httpx2.Client) -> Block:
    """Request a block by its CID."""

    def ask(method: str = "GET", name: str = "", **headers: str) -> httpx2.Response:
        named = {header.replace("_", "-"): value for header, value in headers.items()}
        return client.request(method, f"/ipfs/{name}?format=raw", headers=named)

    return ask


def hashes_to(data: bytes, name: str) -> bool:
    """Whether the hash of a block is that of a CID."""
    binary = base64.b32decode(name[1:].upper() + "=" * (-len(name[1:]) % 8))
    hashed = {0x12: hashlib.sha256(data).digest(), 0x1E: Cid(payload_cid(data, hash="blake3")).digest}[binary[-34]]
    return (binary[-33], binary[-32:]) == (32, hashed)


def named_like(root: str, digest: bytes) -> str:
    """Return the CID of another node of the same kind and suite."""
    binary = bytes(Cid(root))[:-32] + digest
    return "b" + base64.b32encode(binary).decode().rstrip("=").lower()


def test_the_body_hash_matches_the_multihash_of_the_cid(client: httpx2.Client, block: Block) -> None:
    for hash_name in ("sha2-256", "blake3"):
        name = client.post("/v1/cas", params={"hash": hash_name}, content=b"hashed").json()["cid"]
        assert hashes_to(block(name=name).content, name)


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_a_held_root_is_the_block_of_its_top_node(client: httpx2.Client, block: Block, suite: str, cid: str) -> None:
    arcs = {f"many/{number}": cid for number in range(500)}
    root = client.post("/v1/roots", json={"arcs": arcs, "suite": suite}).json()["root"]
    told, got = block("HEAD", root), block(name=root)
    assert got.content[0] == 0x02  # a map's inner node (protocol section 3)
    assert hashes_to(got.content, root)
    assert told.headers["content-length"] == str(len(got.content))
    assert got.headers["content-type"] == "application/vnd.ipld.raw"
    assert got.headers["content-disposition"] == f'attachment; filename="{root}.bin"'
    assert block(name=root, range="bytes=1-4").content == got.content[1:5]


def new_map(body: bytes) -> tuple[str, dict[bytes, bytes]]:
    """Return the root and the pages of the map that ``POST /v1/roots`` creates from a body."""
    operation = Operation.create_root(PageCache(0), body)
    pages: dict[bytes, bytes] = {}
    while isinstance(need := operation.poll(1), Need):
        if need.roots is not None:
            operation.supply_roots([False] * len(need.roots))
        elif need.store is not None:
            pages.update(need.store[0])
    return json.loads(need)["root"], pages


def test_top_nodes_of_stored_pages_are_blocks(client: httpx2.Client, block: Block, cid: str) -> None:
    body = json.dumps({"arcs": {f"pages/{number}": cid for number in range(500)}}).encode()
    root, pages = new_map(body)
    assert len(pages) > 1
    client.post("/v1/roots", content=body)
    for digest in pages:
        name = named_like(root, digest)
        assert hashes_to(block(name=name).content, name)


def test_a_node_inside_a_page_is_not_found(
    client: httpx2.Client, block: Block, expect_refusal: Refusal, cid: str
) -> None:
    root = client.post("/v1/roots", json={"arcs": {"a": cid, "b": cid}}).json()["root"]
    key, target = encode_key("a"), bytes(Cid(cid))
    leaf = bytes([1, len(key)]) + key + bytes([len(target)]) + target  # protocol section 3
    digest = hashlib.sha256(leaf).digest()
    assert digest in block(name=root).content
    expect_refusal(block(name=named_like(root, digest)), 404, "root_not_found")


def test_list_roots_are_blocks(block: Block, tree: dict[str, str]) -> None:
    for kind in ("root", "nested", "list"):
        assert hashes_to(block(name=tree[kind]).content, tree[kind])


@METHODS
def test_map_requested_as_a_list_is_not_found(block: Block, tree: dict[str, str], method: str) -> None:
    other = bytearray(bytes(Cid(tree["root"])))
    assert other[:5] == bytes([1, 0x90, 0xE2, 0xC0, 1])
    other[2] = 0xE4  # 0x303210, a list of the same suite
    answer = block(method, "b" + base64.b32encode(other).decode().rstrip("=").lower())
    assert answer.status_code == 404


def test_a_root_that_is_not_held_is_not_found(block: Block, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    expect_refusal(block(name=named_like(tree["root"], bytes(32))), 404, "root_not_found")
    for method in ("GET", "HEAD"):
        answer = block(method, named_like(tree["root"], bytes(32)), cache_control="only-if-cached")
        assert answer.status_code == 412
        assert method == "HEAD" or answer.json()["error"] == "precondition_failed"


def test_damaged_page_is_a_500(tree: dict[str, str]) -> None:
    for page in (b"", b"junk", b"\x00"):
        with pytest.raises(StoreDamaged):
            top_block(Cid(tree["root"]), page)


def test_missing_page_of_a_held_root_is_a_500(expect_refusal: Refusal, cid: str) -> None:
    store = MemoryStore()
    root, _ = new_map(json.dumps({"arcs": {"a": cid}}).encode())
    asyncio.run(store.put({Table.ROOTS: [(bytes(Cid(root)), b"")]}))
    with serving.thread(store) as url:
        expect_refusal(httpx2.get(f"{url}/ipfs/{root}?format=raw"), 500, "internal")
