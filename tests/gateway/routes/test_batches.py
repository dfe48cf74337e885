"""Batches of payloads: many stored, or looked up, in one request."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from coregw._core import Cid as CoreCid
from coregw.messages.batch import MAX_BATCH_BLOCKS, MAX_BATCH_BYTES
from coregw.store.memory import MemoryStore

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
Cid = Callable[..., str]

PUT = "cas.put-batch/v0alpha1"
HAS = "cas.has-batch/v0alpha1"
CAS = "/v1/cas/batch"


def block(data: bytes, **more: object) -> dict[str, object]:
    return {"data": base64.b64encode(data).decode(), **more}


def put(*blocks: dict[str, object]) -> dict[str, object]:
    return {"profile": PUT, "blocks": list(blocks)}


def has(*cids: str) -> dict[str, object]:
    return {"profile": HAS, "cids": list(cids)}


def test_put_batch_reports_which_payloads_are_new(ask: Ask, client: httpx2.Client) -> None:
    datas = [os.urandom(size) for size in (0, 16, 17, 18, 100, 3 << 20)]  # short ones are not random enough
    first = ask(CAS, put(*map(block, datas[1:])))
    cids = [coregw.payload_cid(data) for data in datas]
    assert first.status_code == 200
    assert first.json() == {"profile": PUT, "results": [{"cid": cid, "status": "stored"} for cid in cids[1:]]}
    again = ask(CAS, put(block(b"new" + datas[1]), *map(block, datas[1:]))).json()["results"]
    assert [result["status"] for result in again] == ["stored"] + ["already_present"] * 5
    ask(CAS, put(block(b"")))
    for cid, data in zip(cids, datas, strict=True):
        assert client.get(f"/v1/cas/{cid}").content == data


def test_batch_codec_is_a_name_or_number_and_defaults_to_raw(ask: Ask, cid_of: Cid) -> None:
    data = os.urandom(9)
    blocks = [block(data, codec=codec) for codec in ("dag-cbor", "0x55", "113", 113, "raw")] + [block(data)]
    results = ask(CAS, put(*blocks)).json()["results"]
    codecs = [0x71, 0x55, 113, 113, 0x55, 0x55]
    statuses = ["stored"] + ["already_present"] * 5  # payloads are stored by multihash, so the codec does not matter
    assert results == [
        {"cid": cid_of(data, codec), "status": status} for codec, status in zip(codecs, statuses, strict=True)
    ]


def test_repeated_block_in_a_batch_is_stored_once(ask: Ask) -> None:
    a, b = os.urandom(20), os.urandom(20)
    results = ask(CAS, put(*map(block, [a, b, a, a, b]))).json()["results"]
    assert [result["status"] for result in results] == ["stored"] * 2 + ["already_present"] * 3


def test_exactly_one_of_concurrent_batches_stores_each_block(ask: Ask) -> None:
    datas = [os.urandom(30) for _ in range(50)]

    def store(number: int) -> list[str]:
        turned = datas[number * 7 :] + datas[: number * 7]
        results = ask(CAS, put(*map(block, turned))).json()["results"]
        return [result["cid"] for result in results if result["status"] == "stored"]

    with ThreadPoolExecutor(4) as pool:
        stored = list(itertools.chain(*pool.map(store, range(4))))
    assert sorted(stored) == sorted(coregw.payload_cid(data) for data in datas)


def test_acknowledged_batch_survives_sigkill(tmp_path: Path) -> None:
    datas = [os.urandom(50) for _ in range(500)]
    running = serving.start(tmp_path)
    results = httpx2.post(running.url + CAS, json=put(*map(block, datas))).json()["results"]
    assert {result["status"] for result in results} == {"stored"}
    running.popen.kill()
    running.popen.communicate()
    with serving.process(tmp_path) as running:
        answer = httpx2.post(running.url + CAS, json=has(*(result["cid"] for result in results))).json()
    assert answer == {
        "profile": HAS,
        "results": [{"cid": coregw.payload_cid(data), "present": True} for data in datas],
    }


def test_has_batch_reports_in_order_and_in_any_spelling(ask: Ask, cid_of: Cid) -> None:
    here, gone = os.urandom(5), os.urandom(5)
    ask(CAS, put(block(here)))
    other_spelling = "f" + bytes(CoreCid(cid_of(here))).hex()
    cids = [cid_of(gone), cid_of(here), other_spelling, cid_of(here, 0x71), cid_of(gone)]
    assert ask(CAS, has(*cids)).json()["results"] == [
        {"cid": cid_of(gone), "present": False},
        {"cid": cid_of(here), "present": True},
        {"cid": cid_of(here), "present": True},
        {"cid": cid_of(here, 0x71), "present": True},
        {"cid": cid_of(gone), "present": False},
    ]


def test_an_empty_batch_has_no_results(ask: Ask) -> None:
    assert ask(CAS, put()).json() == {"profile": PUT, "results": []}
    assert ask(CAS, has()).json() == {"profile": HAS, "results": []}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        *(
            ({"data": data}, "invalid_request")
            for data in (
                "A",
                "AA",
                "AAA",
                "AR==",
                "AAB=",
                "AA==AA==",
                "AAAA=",
                "====",
                "AA-_",
                "AAAA\n",
                " AAAA",
                "ÄAAA",
            )
        ),
        ({"data": 1}, "invalid_request"),
        ({"data": None}, "invalid_request"),
        ({"data": ["AAAA"]}, "invalid_request"),
        ({}, "invalid_request"),
        ({"data": "AAAA", "hash": "blake3"}, "invalid_request"),
        ({"data": "AAAA", "codec": "no-such-codec"}, "invalid_codec"),
        ({"data": "AAAA", "codec": 0x303110}, "invalid_codec"),
        ({"data": "AAAA", "codec": ""}, "invalid_codec"),
        ({"data": "AAAA", "codec": None}, "invalid_request"),
        ("AAAA", "invalid_request"),
    ],
)
def test_one_bad_block_names_its_index_and_nothing_is_stored(
    ask: Ask, expect_refusal: Refusal, bad: dict[str, object], code: str
) -> None:
    good = [os.urandom(10), os.urandom(10)]
    answer = ask(CAS, put(block(good[0]), bad, block(good[1])))
    assert "blocks[1]" in expect_refusal(answer, 400, code)
    held = ask(CAS, has(*map(coregw.payload_cid, good))).json()["results"]
    assert [result["present"] for result in held] == [False, False]


def test_padding_inside_base64_is_refused(ask: Ask, expect_refusal: Refusal) -> None:
    data = os.urandom((256 << 10) // 4 * 3 - 2)
    spelled = base64.b64encode(data).decode()
    assert (len(spelled), spelled[-2:]) == (256 << 10, "==")
    assert ask(CAS, put({"data": spelled})).json()["results"][0]["cid"] == coregw.payload_cid(data)
    for more in ("AAAA", spelled):
        expect_refusal(ask(CAS, put({"data": spelled + more})), 400, "invalid_request")


def test_escapes_do_not_change_the_value_of_a_string(ask: Ask) -> None:
    data = bytes([255, 239, 254, 63])
    spelled = base64.b64encode(data).decode().replace("/", "\\/").replace("=", "\\u003d")
    assert "\\/" in spelled
    answer = ask(CAS, f'{{"profile": "{PUT}", "blocks": [{{"data": "{spelled}"}}]}}'.encode())
    assert answer.json()["results"][0]["cid"] == coregw.payload_cid(data)


def test_one_bad_cid_names_its_index(ask: Ask, expect_refusal: Refusal, cid_of: Cid) -> None:
    answer = ask(CAS, has(cid_of(b"a"), cid_of(b"b"), "bad"))
    assert "cids[2]" in expect_refusal(answer, 400, "invalid_cid")
    assert answer.json()["details"] == {"index": 2}
    assert "cids[0]" in expect_refusal(ask(CAS, {"profile": HAS, "cids": [1]}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_request"),
        (b"[]", "invalid_request"),
        (b'{"blocks": []}', "invalid_request"),
        (b'{"profile": 1, "blocks": []}', "invalid_request"),
        (b'{"profile": "core.resolve/v0alpha1", "blocks": []}', "unknown_profile"),
        (b'{"profile": "cas.put-batch/v0alpha2", "blocks": []}', "unknown_profile"),
        (b'{"profile": "cas.put-batch/v0alpha1", "cids": []}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": [], "cids": []}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": {}}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": [], "blocks": []}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": [{"data": "", "d\\u0061ta": ""}]}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": [{"data": "", "codec": 1e2}]}', "invalid_request"),
        (b'{"profile": "cas.put-batch/v0alpha1", "blocks": [{"data": "\xff"}]}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": ["\\ud800"]}', "invalid_request"),
        (b"[" * 100_000, "invalid_request"),
    ],
)
def test_a_batch_is_strict_json(ask: Ask, expect_refusal: Refusal, body: bytes, code: str) -> None:
    assert " _" not in expect_refusal(ask(CAS, body), 400, code), "a name of the code's own"
    expect_refusal(ask("/v1/resolve/batch", body), 400, "invalid_request")


def test_a_batch_has_at_most_4096_items(ask: Ask, expect_refusal: Refusal, cid_of: Cid) -> None:
    cid = cid_of(b"x")
    assert MAX_BATCH_BLOCKS == 4096
    assert len(ask(CAS, put(*[block(b"one of many")] * 4096)).json()["results"]) == 4096
    assert len(ask(CAS, has(*[cid] * 4096)).json()["results"]) == 4096
    assert "4096" in expect_refusal(ask(CAS, put(*[block(b"")] * 4097)), 413, "too_large")
    assert "4096" in expect_refusal(ask(CAS, has(*[cid] * 4097)), 413, "too_large")


def test_a_batch_has_at_most_64_mib_of_data(ask: Ask, expect_refusal: Refusal) -> None:
    assert MAX_BATCH_BYTES == 64 << 20
    quarter = [block(bytes([i]) + bytes((16 << 20) - 1)) for i in range(4)]
    assert [r["status"] for r in ask(CAS, put(*quarter)).json()["results"]] == ["stored"] * 4
    last = os.urandom(1)
    assert "blocks[4]" in expect_refusal(ask(CAS, put(*quarter, block(last))), 413, "too_large")
    assert ask(CAS, has(coregw.payload_cid(last))).json()["results"][0]["present"] is False


def test_a_block_is_no_larger_than_a_payload_may_be() -> None:
    with serving.thread(MemoryStore(), payload_bytes=10) as url:
        assert httpx2.post(url + CAS, json=put(block(bytes(10)))).status_code == 200
        answer = httpx2.post(url + CAS, json=put(block(b"a"), block(bytes(11))))
        assert (answer.status_code, answer.json()["details"]) == (413, {"index": 1})


def test_full_store_is_507() -> None:
    with serving.thread(MemoryStore(max_bytes=100)) as url:
        answer = httpx2.post(url + CAS, json=put(*(block(bytes([i]) * 30) for i in range(4))))
        assert (answer.status_code, answer.json()["error"]) == (507, "storage_full")
