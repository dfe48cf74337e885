"""Batches of payloads and paths: few requests, and each result verified like a single one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

import coregw
import serving
from car_files import TYPE, car_of_payloads, frames
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.errors import InvalidInput, ProofError, RootNotFound, StorageFull, TooLarge
from coregw.messages.roots import MAX_WHOLE_CAR_BYTES
from coregw.store.memory import MemoryStore
from gateways import Liar, Lie, Reply
from tables import rows

Results = list[dict[str, Any]]


def changed(change: Callable[[Results], object]) -> Callable[[Reply], Reply]:
    """Return a lie that changes the results of a batch."""

    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body) if reply.path.endswith("/batch") else {}
        if "results" not in document:
            return reply
        change(document["results"])
        return reply.with_body(json.dumps(document).encode())

    return lie


class Recorder:
    """Passes every reply on unchanged, and records the requests of batches with their number of items."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []

    def __call__(self, reply: Reply) -> Reply:
        body = json.loads(reply.request) if reply.path.endswith("/batch") else {}
        self.requests.append((reply.path, len(next((v for v in body.values() if isinstance(v, list)), []))))
        return reply


def test_payloads_stored_in_batches_can_be_fetched_one_by_one(client: Client) -> None:
    datas = [b"", *(os.urandom(size) for size in (1, 100, 5000, 300_000)), b""]
    cids = client.put_payloads(iter(datas))
    assert cids == [coregw.payload_cid(data) for data in datas]
    assert [client.get_payload(cid) for cid in cids] == datas
    assert client.put_payloads(datas[1:3], "dag-cbor") == [coregw.payload_cid(data, "dag-cbor") for data in datas[1:3]]
    assert client.put_payloads([]) == []


def sent_cars(reply_of: Callable[..., Client], datas: list[bytes], settings: ClientSettings) -> list[tuple[str, int]]:
    """Put payloads; the paths of the requests, each with the number of blocks of its CAR, 0 for another body."""
    sent: list[tuple[str, int]] = []

    def note(reply: Reply) -> Reply:
        is_car = reply.path == "/v1/car"
        assert len(reply.request) <= MAX_WHOLE_CAR_BYTES or not is_car
        sent.append((reply.path.partition("?")[0], len(frames(reply.request)) - 1 if is_car else 0))
        return reply

    assert reply_of(note, settings).put_payloads(datas) == [coregw.payload_cid(data) for data in datas]
    return sent


def test_batches_are_split_by_bytes_and_by_count(liar: Liar) -> None:
    small = ClientSettings(batch_bytes=1000, backoff_seconds=0.001)
    datas = [os.urandom(size) for size in (400, 600, 1, 5000, 500, 500, 1)]
    car, alone = "/v1/car", ("/v1/cas", 0)
    assert sent_cars(liar, datas, small) == [(car, 2), alone, alone, (car, 2), alone]
    many = [number.to_bytes(2, "big") for number in range(5000)]
    assert sent_cars(liar, many, ClientSettings()) == [(car, 4096), (car, 904)]


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_a_car_has_at_most_what_a_gateway_takes_in_memory(liar: Liar, spare: int) -> None:
    datas = [os.urandom(5 << 20), os.urandom(5 << 20)]
    head = 4 + 36  # the length of a block of 6 MiB, and its CID
    datas.append(os.urandom(MAX_WHOLE_CAR_BYTES - spare - len(car_of_payloads(*datas)) - head))
    assert len(car_of_payloads(*datas)) == MAX_WHOLE_CAR_BYTES - spare
    expected = [("/v1/car", 2), ("/v1/cas", 0)] if spare < 0 else [("/v1/car", 3)]
    for batch_bytes in (16 << 20, 64 << 20):
        assert sent_cars(liar, datas, ClientSettings(batch_bytes=batch_bytes)) == expected


def test_payloads_are_put_while_all_places_for_imports_are_taken() -> None:
    with (
        serving.thread(MemoryStore(), cars_at_once=1, proxies="none") as url,
        serving.connect(url) as importing,
        Client(url, ClientSettings(attempts=1)) as client,
    ):
        head = f"POST /v1/car HTTP/1.1\r\nHost: x\r\nContent-Type: {TYPE['content-type']}\r\n"
        importing.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {1 << 30}\r\n\r\n".encode())
        assert importing.recv(100).startswith(b"HTTP/1.1 100 ")
        spooled = httpx2.post(f"{url}/v1/car", content=iter([car_of_payloads(b"a")]), headers=TYPE)
        assert (spooled.status_code, spooled.json()["error"]) == (503, "unavailable")
        datas = [os.urandom(4096) for _ in range(5000)]
        assert client.put_payloads(datas) == [coregw.payload_cid(data) for data in datas]


def test_payloads_that_occur_twice_or_are_held_are_put_again(client: Client) -> None:
    a, b, long = os.urandom(20), os.urandom(20), os.urandom(3 << 20)
    for _ in range(2):
        cids = client.put_payloads([a, b, long, a, b"", a, b""])
        assert cids == [coregw.payload_cid(data) for data in (a, b, long, a, b"", a, b"")]
    assert [client.get_payload(cid) for cid in cids[:5]] == [a, b, long, a, b""]


def test_the_same_payloads_are_put_by_several_clients_at_once(gateway: str) -> None:
    datas = [os.urandom(30) for _ in range(50)]

    def put(number: int) -> list[str]:
        with Client(gateway) as client:
            return client.put_payloads(datas[number * 7 :] + datas[: number * 7])

    with ThreadPoolExecutor(4) as pool:
        assert {frozenset(cids) for cids in pool.map(put, range(4))} == {frozenset(map(coregw.payload_cid, datas))}


def test_acknowledged_payloads_survive_sigkill(tmp_path: Path) -> None:
    datas = [os.urandom(50) for _ in range(500)]
    running = serving.start(tmp_path)
    with Client(running.url) as client:
        cids = client.put_payloads(datas)
    running.popen.kill()
    running.popen.communicate()
    with serving.process(tmp_path) as running, Client(running.url) as client:
        assert client.has_payloads(cids) == [True] * 500


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_payload_that_is_too_large_is_named_and_nothing_of_its_batch_is_stored(index: int) -> None:
    datas = [b"a", b"b", b"c"]
    datas[index] = bytes(11)
    with serving.thread(MemoryStore(), payload_bytes=10) as url:
        with (
            Client(url) as client,
            pytest.raises(TooLarge, match=f"put 3 payloads: .*block {index} .* 11 bytes; 10 is"),
        ):
            client.put_payloads(datas)
        strict = ClientSettings(max_payload_bytes=10)
        with (
            Client(url, strict) as client,
            pytest.raises(TooLarge, match=rf"datas\[{index}\]: 11 bytes; the limit is 10"),
        ):
            client.put_payloads(datas)
        with Client(url) as client:
            assert client.has_payloads(map(coregw.payload_cid, datas)) == [False] * 3


def test_a_full_store_refuses_payloads() -> None:
    with (
        serving.thread(MemoryStore(max_bytes=100)) as url,
        Client(url, ClientSettings(attempts=1)) as client,
        pytest.raises(StorageFull),
    ):
        client.put_payloads([bytes([number]) * 30 for number in range(4)])


@rows("codec", ["no-such-codec", "", 0x303110, -1])
def test_an_unknown_codec_is_refused_before_a_payload_is_taken(client: Client, codec: str | int) -> None:
    datas = iter([b"a"])
    with pytest.raises(InvalidInput):
        client.put_payloads(datas, codec)
    assert list(datas) == [b"a"]


def test_presence_is_looked_up_in_batches(client: Client, liar: Liar) -> None:
    here, gone = client.put_payload(os.urandom(9)), coregw.payload_cid(os.urandom(9))
    assert client.has_payloads([gone, coregw.Cid(here), here, gone]) == [False, True, True, False]
    assert client.has_payloads([]) == []
    with pytest.raises(InvalidInput):
        client.has_payloads(["x"])
    asked: list[int] = []

    def count(reply: Reply) -> Reply:
        asked.append(len(reply.request) // 36)
        return reply

    assert liar(count).has_payloads([here, gone] * 10_000) == [True, False] * 10_000
    assert asked == [16_384, 3616]


@rows("bits", [b"", b"\x01", b"\x01\x00\x00", b"\x01\x02"], ids=["none", "less", "more", "beyond"])
def test_an_answer_without_one_bit_for_each_payload_is_refused(liar: Liar, bits: bytes) -> None:
    cids = [coregw.payload_cid(bytes([number])) for number in range(9)]
    assert liar(lambda reply: reply.with_body(b"\x81\x01")).has_payloads(cids) == [True, *[False] * 6, True, True]
    with pytest.raises(ProofError, match="one bit for each"):
        liar(lambda reply: reply.with_body(bits)).has_payloads(cids)


def test_a_gateway_that_stored_something_else_is_refused(liar: Liar) -> None:
    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        return reply.with_body(json.dumps(document | {"bytes": document["bytes"] - 1}).encode())

    with pytest.raises(ProofError, match="put 2 payloads: the gateway imported something other than this CAR"):
        liar(lie).put_payloads([b"a", b"b"])


@pytest.mark.parametrize(
    "lie",
    [lambda results: results.pop(), lambda results: results.append(results[0]), lambda results: results.clear()],
    ids=["one less", "one more", "none"],
)
def test_too_few_or_too_many_results_are_refused(liar: Liar, client: Client, lie: Callable[[Results], object]) -> None:
    root = nested(client)
    lying = liar(changed(lie))
    with pytest.raises(ProofError, match="requested"):
        lying.resolve_many(root, ["inner/a", "inner/b"])


def nested(client: Client) -> str:
    """Create a map with the payloads "a" and "b" in a map nested in it."""
    inner = client.create_root({name: coregw.payload_cid(name.encode()) for name in "ab"})
    return client.create_root({"inner": inner})


def test_many_paths_are_resolved_in_order(liar: Liar, client: Client) -> None:
    arcs = {f"folder/{number}": coregw.payload_cid(str(number).encode()) for number in range(5000)}
    listed = client.create_list([arcs["folder/4999"]])
    root = client.create_root(arcs | {"map": nested(client), "list": listed})
    recorder = Recorder()
    recorded = liar(recorder)
    assert recorded.resolve_many(root, arcs) == list(arcs.values())
    assert [path for path, _ in recorder.requests] == ["/v1/map-proof"] * 2
    recorder.requests.clear()
    paths: list[str | list[str]] = [["folder", "7"], "folder/none", "", "map/inner/b", "list/0", "map/x", "folder/7"]
    b, seven = coregw.payload_cid(b"b"), arcs["folder/7"]
    assert recorded.resolve_many(root, paths) == [seven, None, root, b, arcs["folder/4999"], None, seven]
    assert recorder.requests == [("/v1/map-proof", 0), ("/v1/resolve/batch", 5)]
    recorder.requests.clear()
    assert recorded.resolve_many(listed, ["0", "1"]) == [arcs["folder/4999"], None]
    assert recorder.requests == [("/v1/resolve/batch", 2)]
    assert client.resolve_many(root, []) == []
    with pytest.raises(InvalidInput):
        client.resolve_many(root, ["a//b"])
    with pytest.raises(RootNotFound):
        client.resolve_many(coregw.Map({"never": root}).root, ["never"])


def test_many_keys_are_proven_present_or_absent(liar: Liar, client: Client) -> None:
    arcs = {f"folder/{number}": coregw.payload_cid(str(number).encode()) for number in range(100)}
    root = client.create_root(arcs | {"map": nested(client)})
    paths = ["folder/7", "none", "map/inner", "folder/7", "folder"]
    assert client.prove_keys(root, paths) == [arcs["folder/7"], None, None, arcs["folder/7"], None]
    assert client.prove_keys(root, []) == []
    with pytest.raises(InvalidInput):
        client.prove_keys(root, [""])
    with pytest.raises(InvalidInput):
        client.prove_keys(client.create_list([]), ["0"])


def test_no_request_for_many_keys_is_refused_and_repeated(client: Client, liar: Liar) -> None:
    """All paths above a deep one: short segments, which JSON makes four times as long."""
    statuses: list[int] = []

    def note(reply: Reply) -> Reply:
        statuses.append(reply.status)
        return reply

    root = client.create_root({"a": coregw.payload_cid(b"a")})
    paths = ["/".join("a" * depth) for depth in range(1, 1101)]
    assert liar(note).prove_keys(root, paths) == [coregw.payload_cid(b"a"), *[None] * 1099]
    assert statuses == [200] * 3


def older(gateway: str) -> Lie:
    """Return a lie that replies as a gateway does that sends results alone."""

    def reply_with_result(reply: Reply) -> Reply:
        headers = {"content-type": "application/json"}
        answer = httpx2.post(gateway + reply.path, content=reply.request, headers=headers)
        return replace(reply, headers=headers, body=answer.content)

    return reply_with_result


def test_bare_proofs_are_asked_for_and_results_understood(liar: Liar, client: Client, gateway: str) -> None:
    root = client.create_root({name: coregw.payload_cid(name.encode()) for name in "abc"})
    received: list[tuple[str, str]] = []

    def note(reply: Reply) -> Reply:
        received.append((reply.received["accept"], reply.headers["content-type"]))
        return reply

    targets = [coregw.payload_cid(b"b"), None]
    assert liar(note).prove_keys(root, ["b", "d"]) == targets
    assert received == [("application/octet-stream, */*;q=0.5", "application/octet-stream")]
    assert liar(older(gateway)).prove_keys(root, ["b", "d"]) == targets
    assert liar(older(gateway)).resolve_many(root, ["b", "d"]) == targets

    def lie(reply: Reply) -> Reply:
        result = older(gateway)(reply)
        document = json.loads(result.body)
        document["targets"] = document["targets"][::-1]
        return result.with_body(json.dumps(document).encode())

    for lying in (liar(lie).prove_keys, liar(lie).resolve_many):
        with pytest.raises(ProofError, match="targets"):
            lying(root, ["b", "d"])


@rows(
    ("forge", "check"),
    [
        (lambda proof: b"", "the bytes end inside a node"),
        (lambda proof: proof[:-1], "the bytes end inside a node"),
        (lambda proof: proof[: len(proof) // 2], "the bytes end inside a node"),
        (lambda proof: proof + b"\0", "bytes follow the tree"),
        (lambda proof: proof[:-1] + bytes([proof[-1] ^ 1]), "the proof's digest"),
        (lambda proof: b'{"profile": "core.map-proof/v0alpha1"}', "an unknown node tag"),
        (lambda proof: b"\xff" * len(proof), "an unknown node tag"),
    ],
    ids=["empty", "a byte less", "half", "a byte more", "altered", "JSON", "no tree"],
)
def test_a_forged_bare_proof_is_refused(
    liar: Liar, client: Client, forge: Callable[[bytes], bytes], check: str
) -> None:
    root = client.create_root({name: coregw.payload_cid(name.encode()) for name in "abc"})
    forging = liar(lambda reply: reply.with_body(forge(reply.body)))
    with pytest.raises(ProofError, match=f"prove 2 keys in {root}: ") as refused:
        forging.prove_keys(root, ["b", "d"])
    assert refused.value.check.startswith(check)


def test_a_bare_proof_of_other_keys_or_another_root_is_refused(liar: Liar, client: Client) -> None:
    arcs = {str(number): coregw.payload_cid(bytes([number])) for number in range(100)}
    first, second = client.create_root(arcs), client.create_root(arcs | {"more": arcs["1"]})
    other_keys = coregw.Map(arcs).prove_keys(["7", "8", "9"])
    forging = liar(lambda reply: reply.with_body(other_keys))
    assert forging.prove_keys(first, ["7", "8", "9"]) == [arcs["7"], arcs["8"], arcs["9"]]
    for root, keys in ((first, ["7", "8"]), (first, ["7", "50"]), (second, ["7", "8", "9"])):
        with pytest.raises(ProofError):
            forging.prove_keys(root, keys)


def _swapped(results: Results) -> None:
    results[0], results[1] = results[1], results[0]


def _retargeted(results: Results) -> None:
    results[1]["result"]["target"] = coregw.payload_cid(b"another")


def _both(results: Results) -> None:
    results[0]["error"] = {"error": "path_not_found", "message": "no"}


@rows("lie", [_swapped, _retargeted, _both, lambda results: results[0].clear()])
def test_a_result_that_is_not_proven_is_refused(liar: Liar, client: Client, lie: Callable[[Results], object]) -> None:
    root = nested(client)
    with pytest.raises(ProofError):
        liar(changed(lie)).resolve_many(root, ["inner/a", "inner/b"])


def test_a_batch_whose_answer_is_too_large_is_split_in_halves(liar: Liar, client: Client) -> None:
    arcs = {f"{number:02}": coregw.payload_cid(bytes([number])) for number in range(40)}
    inner = client.create_root(arcs)
    root = client.create_root({"inner": inner})
    for paths, asked, route, limit in (
        (arcs, inner, "/v1/map-proof", 1_000),
        ([f"inner/{path}" for path in arcs], root, "/v1/resolve/batch", 5_000),
    ):
        recorder = Recorder()
        narrow = liar(recorder, ClientSettings(max_result_bytes=limit))
        assert narrow.resolve_many(asked, paths) == list(arcs.values())
        assert [path for path, _ in recorder.requests].count(route) > 2
        with pytest.raises(TooLarge):
            liar(recorder, ClientSettings(max_result_bytes=100)).resolve_many(asked, paths)


@pytest.mark.anyio
async def test_the_asyncio_client_returns_the_same(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        datas = [os.urandom(20) for _ in range(5)]
        cids = await client.put_payloads(datas)
        assert await client.has_payloads([*cids, coregw.payload_cid(os.urandom(20))]) == [True] * 5 + [False]
        root = await client.create_root({"a": cids[0]})
        assert await client.resolve_many(root, ["a", "b"]) == [cids[0], None]
