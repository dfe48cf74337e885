"""Payloads over HTTP: CIDs, limits, caching, ranges, and truncated uploads."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator

import httpx2
import pytest

import coregw
import serving
from tables import rows

Refusal = Callable[[httpx2.Response, int, str], str]
MIB = 1 << 20
DATA = bytes(range(256)) * 4


@pytest.fixture(scope="module")
def cid(client: httpx2.Client, cid_of: Callable[..., str]) -> str:
    answer = client.post("/v1/cas", content=DATA)
    assert (answer.status_code, answer.json()) == (201, {"cid": cid_of(DATA)})
    assert answer.headers["location"] == f"/v1/cas/{cid_of(DATA)}"
    return str(answer.json()["cid"])


@pytest.fixture(scope="module")
def big(client: httpx2.Client) -> tuple[str, bytes]:
    block = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(4099))
    data = (block * 32)[: 3 * MIB + 17]
    return str(client.post("/v1/cas", content=data).json()["cid"]), data


@rows("data", [b"", b"x", DATA, DATA * 64, DATA * 64 + b"x", b"\0" * (MIB + 1)], ids=len)
def test_download_returns_the_uploaded_bytes(client: httpx2.Client, cid_of: Callable[..., str], data: bytes) -> None:
    name = client.post("/v1/cas?codec=raw", content=data).json()["cid"]
    assert name == cid_of(data)
    answer = client.get(f"/v1/cas/{name}")
    assert answer.content == data
    assert answer.headers["content-length"] == str(len(data))
    assert answer.headers["content-type"] == "application/octet-stream"


@rows(("codec", "number"), [("raw", 0x55), ("dag-cbor", 0x71), ("85", 0x55), ("0x71", 0x71)])
def test_codecs_are_named_or_numbered(
    client: httpx2.Client, cid_of: Callable[..., str], codec: str, number: int
) -> None:
    answer = client.post("/v1/cas", params={"codec": codec}, content=b"coded")
    assert answer.json() == {"cid": cid_of(b"coded", number)}


@rows("codec", ["", "no-such-codec", "-1", "0x303110", "3158288", "0x30ffff", "1e3", "raw "])
def test_unknown_and_root_codecs_are_refused(client: httpx2.Client, expect_refusal: Refusal, codec: str) -> None:
    expect_refusal(client.post("/v1/cas", params={"codec": codec}, content=b"x"), 400, "invalid_codec")


@pytest.mark.parametrize(("data", "expected"), [(b"", "bafkqaaa"), (b"\n", "bafkqaaik"), (b"x" * 128, None)])
def test_identity_payload_is_in_its_cid(client: httpx2.Client, data: bytes, expected: str | None) -> None:
    answer = client.post("/v1/cas?hash=identity", content=data)
    name = answer.json()["cid"]
    binary = base64.b32decode(name[1:].upper() + "=" * (-len(name[1:]) % 8))
    assert answer.status_code == 201
    assert name == (expected or name)
    assert binary.endswith(data)
    got = client.get(f"/v1/cas/{name}")
    assert (got.status_code, got.content, got.headers["etag"]) == (200, data, f'"{name}"')


def test_identity_payload_is_held_without_an_upload(client: httpx2.Client) -> None:
    name = "bafkqadlomv3gk4raon2g64tfmqqq"  # b"never stored!"
    answer = client.head(f"/v1/cas/{name}")
    assert (answer.status_code, answer.headers["content-length"]) == (200, "13")
    assert client.get(f"/v1/cas/{name}", headers={"range": "bytes=0-4"}).content == b"never"
    assert client.get(f"/v1/cas/{name}", headers={"if-none-match": f'"{name}"'}).status_code == 304


@pytest.mark.parametrize("chunked", [False, True])
def test_identity_payload_past_128_bytes_is_too_large(
    client: httpx2.Client, expect_refusal: Refusal, chunked: bool
) -> None:
    content = iter([b"x" * 129]) if chunked else b"x" * 129
    expect_refusal(client.post("/v1/cas?hash=identity", content=content), 413, "too_large")


def test_blake3_can_be_chosen(client: httpx2.Client) -> None:
    name = client.post("/v1/cas?hash=blake3", content=b"").json()["cid"]
    binary = base64.b32decode(name[1:].upper() + "=" * (-len(name[1:]) % 8))
    assert binary[:4] == b"\x01\x55\x1e\x20"
    assert binary[4:].hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert client.get(f"/v1/cas/{name}").content == b""


@pytest.mark.parametrize("hash_name", ["", "sha2-384", "md5"])
def test_other_hash_functions_are_refused(client: httpx2.Client, expect_refusal: Refusal, hash_name: str) -> None:
    expect_refusal(client.post("/v1/cas", params={"hash": hash_name}, content=b"x"), 400, "invalid_request")


@rows("query", ["codec=raw&codec=raw", "code=raw", "codec", "codec=%ff", "codec=%zz", "a=b&c=d"])
def test_bad_query_strings_are_refused(client: httpx2.Client, expect_refusal: Refusal, query: str) -> None:
    expect_refusal(client.post(f"/v1/cas?{query}", content=b"x"), 400, "invalid_request")


@rows("media_type", ["text/html", "application/json", "nonsense", ""])
def test_a_payload_may_be_of_any_type(client: httpx2.Client, media_type: str) -> None:
    assert client.post("/v1/cas", content=b"x", headers={"content-type": media_type}).status_code == 201


def test_a_compressed_upload_is_refused(client: httpx2.Client, expect_refusal: Refusal) -> None:
    answer = client.post("/v1/cas", content=b"x", headers={"content-encoding": "gzip"})
    expect_refusal(answer, 415, "unsupported_media_type")


def test_a_payload_of_64_mib_is_taken_and_one_byte_more_is_not(
    client: httpx2.Client, expect_refusal: Refusal, cid_of: Callable[..., str]
) -> None:
    data = bytes(64 * MIB)

    def pieces(extra: bytes) -> Iterator[bytes]:
        yield data
        yield extra

    assert client.post("/v1/cas", content=pieces(b"")).json() == {"cid": cid_of(data)}
    expect_refusal(client.post("/v1/cas", content=pieces(b"!")), 413, "too_large")
    expect_refusal(client.post("/v1/cas", content=data + b"!"), 413, "too_large")
    assert client.head(f"/v1/cas/{cid_of(data + b'!')}").status_code == 404


def test_a_payload_is_read_by_any_codec_and_form_of_its_cid(
    client: httpx2.Client, cid: str, cid_of: Callable[..., str]
) -> None:
    digest = hashlib.sha256(DATA).digest()
    as_cbor = cid_of(DATA, 0x71)
    for asked, normal in [(as_cbor, as_cbor), ("f" + (b"\x01\x55\x12\x20" + digest).hex(), cid)]:
        answer = client.get(f"/v1/cas/{asked}")
        assert (answer.content, answer.headers["etag"]) == (DATA, f'"{normal}"')


def test_download_is_immutable_for_caches(client: httpx2.Client, cid: str) -> None:
    headers = client.get(f"/v1/cas/{cid}").headers
    assert headers["etag"] == f'"{cid}"'
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["accept-ranges"] == "bytes"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_unheld_payload_is_not_found(client: httpx2.Client, cid_of: Callable[..., str], method: str) -> None:
    answer = client.request(method, f"/v1/cas/{cid_of(b'never stored')}", headers={"if-none-match": "*"})
    assert answer.status_code == 404
    assert method == "HEAD" or answer.json()["error"] == "payload_not_found"


@rows("name", ["x", "bafk", "%ff", "%00", "%zz", "Qm", "b" * 2000, "zzzz", "bafkqaab", "é"])
def test_malformed_cid_is_refused(client: httpx2.Client, expect_refusal: Refusal, name: str) -> None:
    expect_refusal(client.get(f"/v1/cas/{name}"), 400, "invalid_cid")


def test_a_cid_may_be_in_any_base_and_case(client: httpx2.Client, cid: str) -> None:
    in_hex = bytes(coregw.Cid(cid)).hex()
    for name in (cid.upper(), f"b{cid[1:].upper()}", f"f{in_hex}", f"F{in_hex.upper()}", f"F{in_hex}"):
        answer = client.get(f"/v1/cas/{name}")
        assert (answer.content, answer.headers["etag"]) == (DATA, f'"{cid}"')


def test_head_has_the_headers_of_get(client: httpx2.Client, cid: str, big: tuple[str, bytes]) -> None:
    for name in (cid, big[0]):
        told = client.head(f"/v1/cas/{name}")
        got = client.get(f"/v1/cas/{name}")
        assert told.content == b""
        told.headers.pop("date")
        got.headers.pop("date")
        assert dict(told.headers) == dict(got.headers)


def test_head_ignores_range(client: httpx2.Client, cid: str) -> None:
    for value in ("bytes=0-1", "bytes=5000-"):
        answer = client.head(f"/v1/cas/{cid}", headers={"range": value})
        assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(DATA)))


@rows("method", ["GET", "HEAD"])
@rows("form", ['"{}"', 'W/"{}"', '"x", "{}"', '"x",W/"{}" , "y"', "*"])
def test_matching_if_none_match_is_304(client: httpx2.Client, cid: str, method: str, form: str) -> None:
    headers = {"if-none-match": form.replace("{}", cid), "range": "bytes=0-1"}
    answer = client.request(method, f"/v1/cas/{cid}", headers=headers)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", f'"{cid}"')
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@rows("form", ['"x"', "{}", '"{}x"', "", '"{}', 'w/"x"'])
def test_other_if_none_match_is_200(client: httpx2.Client, cid: str, form: str) -> None:
    answer = client.get(f"/v1/cas/{cid}", headers={"if-none-match": form.replace("{}", cid)})
    assert (answer.status_code, answer.content) == (200, DATA)


def test_all_if_none_match_headers_count(client: httpx2.Client, cid: str) -> None:
    answer = client.get(f"/v1/cas/{cid}", headers=[("if-none-match", '"x"'), ("if-none-match", f'"{cid}"')])
    assert answer.status_code == 304


@rows(
    ("value", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-99", 0, 100),
        ("bytes=100-", 100, 1024),
        ("bytes=1023-", 1023, 1024),
        ("bytes=1000-5000", 1000, 1024),
        ("bytes=-1", 1023, 1024),
        ("bytes=-5000", 0, 1024),
        ("Bytes = 1-2", 1, 3),
        ("bytes=,1-2,", 1, 3),
        ("bytes=0-" + "9" * 5000, 0, 1024),
    ],
)
def test_single_range_is_206(client: httpx2.Client, cid: str, value: str, start: int, end: int) -> None:
    answer = client.get(f"/v1/cas/{cid}", headers={"range": value})
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/1024"
    assert answer.headers["etag"] == f'"{cid}"'


@rows("value", ["bytes=1024-", "bytes=5000-6000", "bytes=-0", "bytes=" + "9" * 5000 + "-"])
def test_range_past_the_end_is_416(client: httpx2.Client, expect_refusal: Refusal, cid: str, value: str) -> None:
    answer = client.get(f"/v1/cas/{cid}", headers={"range": value})
    expect_refusal(answer, 416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */1024"


@rows(
    "value",
    [
        "bytes=0-1,3-4",
        "bytes=5000-,6000-",
        "bytes=2-1",
        "bytes=-",
        "bytes=a-b",
        "bytes=1",
        "items=0-1",
        "bytes",
        "=0-1",
    ],
)
def test_several_or_malformed_ranges_get_the_whole(client: httpx2.Client, cid: str, value: str) -> None:
    answer = client.get(f"/v1/cas/{cid}", headers={"range": value})
    assert (answer.status_code, answer.content) == (200, DATA)
    assert "content-range" not in answer.headers


def test_if_range_must_name_the_payload(client: httpx2.Client, cid: str) -> None:
    for tag, status in [(f'"{cid}"', 206), (f'W/"{cid}"', 200), ('"x"', 200), ("Sat, 21 Nov 2026 00:00:00 GMT", 200)]:
        answer = client.get(f"/v1/cas/{cid}", headers={"range": "bytes=0-1", "if-range": tag})
        assert answer.status_code == status


@rows(("start", "end"), [(0, None), (1, 2 * MIB + 5), (MIB - 1, MIB + 1), (5, 3 * MIB)])
def test_large_payload_is_streamed(client: httpx2.Client, big: tuple[str, bytes], start: int, end: int | None) -> None:
    name, data = big
    value = f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"
    answer = client.get(f"/v1/cas/{name}", headers={"range": value})
    assert answer.content == data[start:end]
    assert answer.headers["content-length"] == str(len(data[start:end]))


@pytest.mark.parametrize("framing", ["content-length: 3000000", "transfer-encoding: chunked"])
def test_truncated_upload_is_not_committed(
    gateway: str, client: httpx2.Client, cid_of: Callable[..., str], framing: str
) -> None:
    sent = b"2dc6c0\r\n" if "chunked" in framing else b""  # 3,000,000 in one chunk
    fill = framing[:1].encode()
    part = fill * 2_500_000
    with serving.connect(gateway) as connection:
        connection.sendall(f"POST /v1/cas HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n".encode() + sent + part)
    for length in (2_500_000, 3_000_000, 2 * MIB, MIB):
        assert client.head(f"/v1/cas/{cid_of(fill * length)}").status_code == 404
    whole = client.post("/v1/cas", content=fill * 3_000_000)
    assert client.get(f"/v1/cas/{whole.json()['cid']}").content == fill * 3_000_000


def test_a_bit_for_each_cid_says_whether_its_payload_is_held(client: httpx2.Client) -> None:
    here = [client.post("/v1/cas", content=bytes([number])).json()["cid"] for number in range(5)]
    identity = coregw.payload_cid(b"inside", hash="identity")
    gone = coregw.payload_cid(os.urandom(9))
    asked = [*here, gone, identity, gone, coregw.payload_cid(b"\0", "dag-cbor"), here[0], gone]
    response = client.post("/v1/cas/has", content=b"".join(bytes(coregw.Cid(cid)) for cid in asked))
    assert (response.status_code, response.headers["content-type"]) == (200, "application/octet-stream")
    assert response.content == bytes([0b01011111, 0b011])
    assert client.post("/v1/cas/has", content=b"").content == b""
    assert client.post("/v1/cas/has?x=1", content=b"").status_code == 400
    refused = client.post("/v1/cas/has", content=b"".join(bytes(coregw.Cid(cid)) for cid in here[:3])[:-1])
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_cid")
    assert refused.json()["details"] == {"index": 2}
    assert refused.json()["message"].startswith("cids[2]: ")
    assert client.get("/v1/cas/has").status_code == 405


def ask_json(client: httpx2.Client, *cids: object, **more: object) -> httpx2.Response:
    body = {"profile": "cas.has-batch/v0alpha1", "cids": cids} | more
    return client.post("/v1/cas/has", json=body)


def test_json_is_answered_in_order_and_in_any_spelling(client: httpx2.Client, cid: str) -> None:
    gone, other_codec = coregw.payload_cid(os.urandom(9)), coregw.payload_cid(DATA, "dag-cbor")
    asked = [gone, cid, "f" + bytes(coregw.Cid(cid)).hex(), other_codec, gone]
    answer = ask_json(client, *asked)
    expected = [(gone, False), (cid, True), (cid, True), (other_codec, True), (gone, False)]
    assert answer.json() == {
        "profile": "cas.has-batch/v0alpha1",
        "results": [{"cid": text, "present": is_present} for text, is_present in expected],
    }
    assert ask_json(client).json()["results"] == []


def test_json_with_a_malformed_cid_names_its_index(
    client: httpx2.Client, expect_refusal: Refusal, cid_of: Callable[..., str]
) -> None:
    answer = ask_json(client, cid_of(b"a"), cid_of(b"b"), "bad")
    assert "cids[2]" in expect_refusal(answer, 400, "invalid_cid")
    assert answer.json()["details"] == {"index": 2}
    assert "cids[0]" in expect_refusal(ask_json(client, 1), 400, "invalid_request")


@rows(
    ("body", "code"),
    [
        (b"", "invalid_request"),
        (b"[]", "invalid_request"),
        (b'{"cids": []}', "invalid_request"),
        (b'{"profile": 1, "cids": []}', "invalid_request"),
        (b'{"profile": "core.resolve/v0alpha1", "cids": []}', "unknown_profile"),
        (b'{"profile": "cas.has-batch/v0alpha2", "cids": []}', "unknown_profile"),
        (b'{"profile": "cas.has-batch/v0alpha1"}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "blocks": [], "cids": []}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": {}}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": [], "cids": []}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": [], "cid\\u0073": []}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": ["\xff"]}', "invalid_request"),
        (b'{"profile": "cas.has-batch/v0alpha1", "cids": ["\\ud800"]}', "invalid_request"),
        (b"[" * 100_000, "invalid_request"),
    ],
)
def test_batches_are_strict_json(client: httpx2.Client, expect_refusal: Refusal, body: bytes, code: str) -> None:
    headers = {"content-type": "application/json"}
    refused = expect_refusal(client.post("/v1/cas/has", content=body, headers=headers), 400, code)
    assert " _" not in refused, "a name of the code's own"
    expect_refusal(client.post("/v1/resolve/batch", content=body, headers=headers), 400, "invalid_request")


def test_at_most_4096_cids_are_looked_up_at_once_in_json(
    client: httpx2.Client, expect_refusal: Refusal, cid: str
) -> None:
    assert [each["present"] for each in ask_json(client, *[cid] * 4096).json()["results"]] == [True] * 4096
    assert "4096" in expect_refusal(ask_json(client, *[cid] * 4097), 413, "too_large")


def test_at_most_16384_cids_are_looked_up_at_once(client: httpx2.Client) -> None:
    cid = bytes(coregw.Cid(client.post("/v1/cas", content=b"here").json()["cid"]))
    assert client.post("/v1/cas/has", content=cid * 16_384).content == b"\xff" * 2048
    for count in (16_385, 40_000):
        refused = client.post("/v1/cas/has", content=cid * count)
        assert (refused.status_code, refused.json()["error"]) == (413, "too_large")
