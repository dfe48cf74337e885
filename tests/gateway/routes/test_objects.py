"""``/v1/pages`` and ``GET /v1/roots/{root}``: immutable objects by name, checked before they are sent."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence

import httpx2
import pytest

import serving
from car_files import block, cid, frames, header
from car_support import RAW, post, put
from coregw._core import Cid, page_links, payload_cid
from coregw.store import Table
from coregw.store.memory import MemoryStore

EMPTY_PAYLOAD = bytes.fromhex("01550000")
PROFILE = "pages.get-batch/v0alpha1"
FOR_EVER = "public, max-age=31536000, immutable"


class Served:
    """A gateway in a thread, with its store."""

    def __init__(self, store: MemoryStore, client: httpx2.Client) -> None:
        self.client = client
        self.pages = store._tables[Table.PAGES]
        arcs = {f"folder {i % 7}/{i}": payload_cid(b"%d" % i) for i in range(6000)}
        self.roots = [post(client, "/v1/roots", {"arcs": arcs, "suite": each}).json()["root"] for each in SUITES]


SUITES = ("sha2-256", "blake3")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    store = MemoryStore()
    with serving.thread(store) as url, httpx2.Client(base_url=url, timeout=60) as client:
        yield Served(store, client)


def ask(client: httpx2.Client, digests: Sequence[bytes]) -> httpx2.Response:
    return post(client, "/v1/pages/car", {"profile": PROFILE, "pages": [each.hex() for each in digests]})


def test_held_roots_are_served_as_their_pages_immutable(served: Served) -> None:
    for root in served.roots:
        answer = served.client.get(f"/v1/roots/{root}")
        assert answer.content == served.pages[Cid(root).digest]
        assert (answer.headers["cache-control"], answer.headers["etag"]) == (FOR_EVER, f'"{root}"')
        assert answer.headers["content-type"] == "application/octet-stream"
        head = served.client.head(f"/v1/roots/{root}")
        assert (head.status_code, head.content) == (200, b"")
        assert {**head.headers, "date": ""} == {**answer.headers, "date": ""}
        known = served.client.get(f"/v1/roots/{root}", headers={"if-none-match": f'"{root}"'})
        assert (known.status_code, known.content) == (304, b"")
        part = served.client.get(f"/v1/roots/{root}", headers={"range": "bytes=1-4"})
        assert (part.status_code, part.content) == (206, answer.content[1:5])
        other_form = "f" + bytes(Cid(root)).hex()
        assert served.client.get(f"/v1/roots/{other_form}").headers["etag"] == f'"{root}"'


def test_a_whole_tree_is_read_page_by_page(served: Served) -> None:
    for root, suite in zip(served.roots, SUITES, strict=True):
        pending, payloads = [Cid(root).digest], set()
        while pending:
            digest = pending.pop()
            url = f"/v1/pages/{digest.hex()}"
            answer = served.client.get(url)
            assert (answer.headers["cache-control"], answer.headers["etag"]) == (FOR_EVER, f'"{digest.hex()}"')
            assert served.client.head(url).headers["content-length"] == str(len(answer.content))
            [links] = page_links([(digest, answer.content)])
            assert links is not None
            assert Cid(links.root).suite == suite
            pending += links.pages
            payloads |= {*links.payloads}
        assert payloads == {Cid(payload_cid(b"%d" % i)).multihash for i in range(6000)}


def test_many_pages_come_in_the_requested_order(served: Served) -> None:
    held = [*served.pages]
    assert len(held) > 64  # several batches
    asked = [*held, *(hashlib.sha256(bytes([i])).digest() for i in range(5)), held[3]]
    random.Random(1).shuffle(asked)
    answer = ask(served.client, asked)
    assert answer.headers["content-type"] == "application/vnd.ipld.car; version=1"
    assert answer.headers["cache-control"] == "no-cache"
    pages = [served.pages[each] for each in asked if each in served.pages]
    assert answer.content == header(EMPTY_PAYLOAD) + b"".join(block(cid(RAW, page), page) for page in pages)
    assert ask(served.client, []).content == header(EMPTY_PAYLOAD)


def test_a_damaged_page_is_neither_served_nor_cached(served: Served, expect_refusal: Callable[..., str]) -> None:
    digest = Cid(served.roots[0]).digest
    page, other = served.pages[digest], next(each for each in served.pages if each != digest)
    served.pages[digest] = page[:10] + bytes([page[10] ^ 1]) + page[11:]
    try:
        for path in (f"/v1/pages/{digest.hex()}", f"/v1/roots/{served.roots[0]}"):
            answer = served.client.get(path)
            expect_refusal(answer, 500, "internal")
            assert served.client.head(path).status_code == 500
        assert len(frames(ask(served.client, [digest, other]).content)) == 2  # the header, and the other
    finally:
        served.pages[digest] = page


def test_names_of_objects_are_checked_and_what_is_absent_is_not_cached(
    served: Served, expect_refusal: Callable[..., str]
) -> None:
    absent = hashlib.sha256(b"absent").digest()
    root = Cid(bytes(Cid(served.roots[0]))[:-32] + absent).text
    other_kind = bytearray(bytes(Cid(served.roots[0])))
    other_kind[2] ^= 0x06  # a list with the digest of a map
    for path, status, code in [
        (f"/v1/pages/{absent.hex()}", 404, "page_not_found"),
        (f"/v1/pages/{next(iter(served.pages)).hex().upper()}", 400, "invalid_request"),
        ("/v1/pages/x", 400, "invalid_request"),
        (f"/v1/roots/{root}", 404, "root_not_found"),
        (f"/v1/roots/{Cid(bytes(other_kind)).text}", 404, "root_not_found"),
        (f"/v1/roots/{put(served.client, b'payload')}", 400, "kind_mismatch"),
        ("/v1/roots/x", 400, "invalid_cid"),
        (f"/v1/roots/{served.roots[0]}?payloads=true", 400, "invalid_request"),
    ]:
        answer = served.client.get(path)
        expect_refusal(answer, status, code)
        assert served.client.head(path).status_code == status


def test_malformed_requests_for_pages_are_refused(served: Served, expect_refusal: Callable[..., str]) -> None:
    client, digest = served.client, bytes(32).hex()
    assert "pages[1]" in expect_refusal(ask(client, [bytes(32), b"short"]), 400, "invalid_request")
    expect_refusal(ask(client, [bytes(32)] * 1025), 413, "too_large")
    assert ask(client, [bytes(32)] * 1024).status_code == 200
    for body in ({"pages": [digest]}, {"profile": PROFILE}, {"profile": PROFILE, "pages": digest}):
        expect_refusal(post(client, "/v1/pages/car", body), 400, "invalid_request")
    other = {"profile": "cas.get-batch/v0alpha1", "pages": [digest]}
    expect_refusal(post(client, "/v1/pages/car", other), 400, "unknown_profile")
