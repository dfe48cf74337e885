"""Blocks for IPFS clients: one test for each rule of the IPFS Trustless Gateway and Path Gateway specifications.

Of the specifications, it is the part on raw blocks, and of the public conformance suite, the cases for them.
Tree nodes as blocks are in `test_ipfs_nodes`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import httpx2
import multiformats
import pytest

import serving
from car_files import header
from tables import rows

Refusal = Callable[[httpx2.Response, int, str], str]
RAW = "application/vnd.ipld.raw"
CAR = "application/vnd.ipld.car"
MIB = 1 << 20
DATA = b"the bytes of a block\r\n" * 40
METHODS = pytest.mark.parametrize("method", ["GET", "HEAD"])


@pytest.fixture(scope="module")
def cid(client: httpx2.Client) -> str:
    return str(client.post("/v1/cas", content=DATA).json()["cid"])


@pytest.fixture(scope="module")
def block(client: httpx2.Client, cid: str) -> Callable[..., httpx2.Response]:
    """Request a block with ``format=raw``, or with another query and headers."""

    def ask(method: str = "GET", name: str = cid, query: str = "format=raw", **headers: str) -> httpx2.Response:
        named = {header.replace("_", "-"): value for header, value in headers.items()}
        return client.request(method, f"/ipfs/{name}?{query}", headers=named)

    return ask


Block = Callable[..., httpx2.Response]


# --- what a block response is -----------------------------------------------------------------------------------------


def test_get_with_format_raw_returns_a_raw_block(block: Block) -> None:
    answer = block()
    assert (answer.status_code, answer.content) == (200, DATA)


@rows(
    "accept",
    [
        RAW,
        "Application/Vnd.IPLD.Raw",
        f"{RAW};q=0.5",
        f"{RAW}; foo=bar",
        f"{CAR};q=0.1, {RAW}",
        f"text/html , {RAW},*/*",
    ],
)
def test_get_with_accept_raw_returns_a_raw_block(block: Block, accept: str) -> None:
    answer = block(query="", accept=accept)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, DATA, RAW)


@METHODS
def test_block_has_the_specified_headers(block: Block, cid: str, method: str) -> None:
    headers = block(method).headers
    assert headers["content-type"] == RAW
    assert headers["content-length"] == str(len(DATA))
    assert headers["content-disposition"] == f'attachment; filename="{cid}.bin"'
    assert headers.get_list("x-content-type-options") == ["nosniff"]
    assert headers["accept-ranges"] == "bytes"


@METHODS
def test_block_has_the_specified_caching_headers(block: Block, cid: str, method: str) -> None:
    headers = block(method).headers
    assert headers["etag"] == f'"{cid}.raw"'
    assert headers["x-ipfs-path"] == f"/ipfs/{cid}"
    assert headers["x-ipfs-roots"] == cid
    public, max_age, immutable = headers["cache-control"].split(", ")
    assert (public, immutable) == ("public", "immutable")
    assert int(max_age.removeprefix("max-age=")) >= 29_030_400


def test_the_etag_of_a_block_is_not_that_of_the_payload_route(client: httpx2.Client, block: Block, cid: str) -> None:
    assert block().headers["etag"] != client.get(f"/v1/cas/{cid}").headers["etag"]


def test_head_is_get_without_a_body(block: Block) -> None:
    told, got = block("HEAD"), block("GET")
    assert told.content == b""
    told.headers.pop("date")
    got.headers.pop("date")
    assert dict(told.headers) == dict(got.headers)


# --- which blocks there are -------------------------------------------------------------------------------------------


def test_any_codec_reads_a_payload(block: Block, cid_of: Callable[..., str]) -> None:
    for codec in (0x55, 0x70, 0x71, 0x0129):
        name = cid_of(DATA, codec)
        answer = block(name=name)
        assert (answer.content, answer.headers["content-type"]) == (DATA, RAW)
        assert answer.headers["etag"] == f'"{name}.raw"'


def test_a_cidv0_reads_a_payload(block: Block, cid_of: Callable[..., str]) -> None:
    name = str(multiformats.CID("base58btc", 0, "dag-pb", ("sha2-256", hashlib.sha256(DATA).digest())))
    assert name.startswith("Qm")
    answer = block(name=name)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert (answer.headers["x-ipfs-path"], answer.headers["x-ipfs-roots"]) == (f"/ipfs/{name}", name)
    assert answer.headers["etag"] == f'"{cid_of(DATA, 0x70)}.raw"'


def test_a_cid_in_another_base_reads_a_payload(block: Block, cid: str) -> None:
    name = str(multiformats.CID.decode(cid).encode("base58btc"))
    answer = block(name=name)
    assert (answer.content, answer.headers["x-ipfs-path"]) == (DATA, f"/ipfs/{name}")
    assert answer.headers["etag"] == f'"{cid}.raw"'


def test_a_large_payload_is_sent_as_one_block(client: httpx2.Client, block: Block) -> None:
    data = bytes(range(256)) * (3 * MIB // 256) + b"!"
    name = client.post("/v1/cas", content=data).json()["cid"]
    answer = block(name=name)
    assert answer.content == data
    assert (answer.headers["content-length"], answer.headers["content-type"]) == (str(len(data)), RAW)
    assert block(name=name, range=f"bytes=5-{2 * MIB}").content == data[5 : 2 * MIB + 1]


# --- what may be requested --------------------------------------------------------------------------------------------


@rows("accept", ["text/html", "", f"{RAW};q=0", f"{RAW}; q=0.000", f"{RAW}x", "nonsense"])
def test_request_for_another_format_is_a_bad_request(block: Block, expect_refusal: Refusal, accept: str) -> None:
    assert "format=raw" in expect_refusal(block(query="", accept=accept), 400, "invalid_request")


def test_a_request_without_accept_is_a_bad_request(gateway: str, cid: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(f"GET /ipfs/{cid} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        assert serving.everything(connection).startswith(b"HTTP/1.1 400 ")


@METHODS
@rows("wanted", ["ipns-record", "dag-json", "dag-cbor", "json", "cbor", "tar", "RAW", ""])
def test_an_unsupported_format_is_a_bad_request(block: Block, method: str, wanted: str) -> None:
    answer = block(method, query=f"format={wanted}", accept=RAW)
    assert answer.status_code == 400
    assert method == "HEAD" or answer.json()["error"] == "invalid_request"


@pytest.mark.parametrize("accept", [CAR, "text/html", "*/*"])
def test_format_takes_precedence_over_accept(block: Block, accept: str) -> None:
    assert block(accept=accept).content == DATA


def test_content_location_and_vary_are_set_if_accept_decides(block: Block, cid: str) -> None:
    negotiated = block(query="filename=a%20b.bin", accept=RAW).headers
    assert negotiated["content-location"] == f"/ipfs/{cid}?format=raw&filename=a%20b.bin"
    assert negotiated["vary"] == "Accept"
    for accept in (RAW, "*/*", "text/html"):
        named = block(accept=accept).headers
        assert "content-location" not in named
        assert "vary" not in named


def test_content_location_is_set_if_format_and_accept_differ(block: Block, cid: str) -> None:
    named = block(accept=f"{CAR}, {RAW};q=0.9").headers
    assert (named["content-type"], named["content-location"]) == (RAW, f"/ipfs/{cid}?format=raw")
    car = block(query="car-dups=n&format=car", accept=RAW).headers
    assert car["content-location"] == f"/ipfs/{cid}?format=car&car-dups=n"
    assert "vary" not in car


@rows(
    ("accept", "sent"),
    [
        (f"{CAR};version=2", None),
        (f"{CAR};version=2, {RAW};q=0.1", RAW),
        (f"{CAR};version=1, {RAW};q=0.1", f"{CAR}; version=1; order=dfs; dups=n"),
        (f"{CAR};order=bfs", None),
        (f"{CAR};order=unk;dups=y", f"{CAR}; version=1; order=dfs; dups=y"),
        (f"{CAR};dups=n;q=0.5, {CAR};dups=y", f"{CAR}; version=1; order=dfs; dups=y"),
        (f"{CAR};dups=n;q=0, {CAR}", f"{CAR}; version=1; order=dfs; dups=y"),
        (f"{CAR};q=0, */*;q=0.1", "application/octet-stream"),
        (f'text/html;a=", {RAW}"', None),
    ],
)
def test_parameters_and_weights_of_accept_count(
    block: Block, expect_refusal: Refusal, accept: str, sent: str | None
) -> None:
    answer = block(query="", accept=accept)
    if sent is None:
        expect_refusal(answer, 400, "invalid_request")
    else:
        assert (answer.status_code, answer.headers["content-type"]) == (200, sent)


def test_repeated_blocks_that_accept_decides_are_named_for_caches(block: Block, cid: str) -> None:
    negotiated = block(query="", accept=f"{CAR};dups=y").headers
    assert negotiated["content-location"] == f"/ipfs/{cid}?format=car&car-dups=y"
    named = block(query="format=car", accept=f"{CAR};dups=y").headers
    assert (named["content-type"][-6:], named["vary"]) == ("dups=y", "Accept")


@METHODS
@rows(
    ("asked", "status"),
    [
        ("0:*", 200),
        ("0:0", 200),
        ("10:99999", 200),
        ("-5:*", 200),
        ("-99999:0", 200),
        ("880:*", 400),
        ("9000:9999", 400),
        ("-9999:-9000", 400),
        ("5:3", 400),
        ("a:b", 400),
    ],
)
def test_entity_bytes_outside_of_the_entity_are_a_bad_request(
    block: Block, method: str, asked: str, status: int
) -> None:
    assert len(DATA) == 880
    answer = block(method, query=f"format=car&entity-bytes={asked}")
    assert answer.status_code == status
    if status == 400 and method == "GET":
        assert "entity-bytes" in answer.json()["message"]


def test_parameters_of_car_requests_are_ignored(block: Block) -> None:
    answer = block(query="format=raw&dag-scope=block&entity-bytes=0:3&car-version=1&car-order=dfs&car-dups=n")
    assert (answer.status_code, answer.content) == (200, DATA)


@pytest.mark.parametrize("query", ["format=raw&format=raw", "format=raw&fromat=car", "format=%ff"])
def test_unknown_query_parameters_of_blocks_are_refused(block: Block, expect_refusal: Refusal, query: str) -> None:
    expect_refusal(block(query=query), 400, "invalid_request")


@METHODS
@rows("path", ["a", "a/b", "a/", "..%2f"])
def test_a_path_below_a_raw_block_is_a_bad_request(client: httpx2.Client, cid: str, method: str, path: str) -> None:
    answer = client.request(method, f"/ipfs/{cid}/{path}?format=raw", headers={"accept": RAW})
    assert answer.status_code == 400
    assert method == "HEAD" or answer.json()["error"] == "invalid_request"


@METHODS
def test_a_service_worker_is_denied(block: Block, method: str) -> None:
    assert block(method, service_worker="script").status_code == 400


# --- the name of the attachment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["format=raw&", ""])
def test_filename_is_the_name_of_the_attachment(block: Block, query: str) -> None:
    answer = block(query=f"{query}filename=foobar.bin", accept=RAW)
    assert answer.headers["content-disposition"] == 'attachment; filename="foobar.bin"'


def test_a_filename_beyond_ascii_comes_in_ascii_and_in_utf8(block: Block) -> None:
    answer = block(query="format=raw&filename=test%D1%82%D0%B5%D1%81%D1%82.pdf")
    expected = "attachment; filename=\"test____.pdf\"; filename*=UTF-8''test%D1%82%D0%B5%D1%81%D1%82.pdf"
    assert answer.headers["content-disposition"] == expected


@rows("name", ['a"; x="b', "a\\b", "a\r\nset-cookie: b=c", "a\0b", "\x7f", "\u202e\U0001f600"])
def test_filename_is_quoted(block: Block, name: str) -> None:
    params = str(httpx2.QueryParams({"format": "raw", "filename": name}))
    headers = block(query=params).headers
    start, plain, encoded = headers["content-disposition"].split('"')
    assert start == "attachment; filename="
    assert len(plain) == len(name)
    assert plain.isascii()
    assert plain.isprintable()
    assert "\\" not in plain
    assert encoded.startswith("; filename*=UTF-8''")
    assert httpx2.QueryParams("n=" + encoded.partition("''")[2])["n"] == name
    assert "set-cookie" not in headers


@pytest.mark.parametrize("query", ["download=false", "download=true", "filename="])
def test_a_block_is_always_an_attachment(block: Block, cid: str, query: str) -> None:
    assert block(query=f"format=raw&{query}").headers["content-disposition"] == f'attachment; filename="{cid}.bin"'


# --- caching and ranges -----------------------------------------------------------------------------------------------


@METHODS
@rows("form", ['"{}.raw"', 'W/"{}.raw"', '"x", "{}.raw"', "*"])
def test_if_none_match_gives_304_without_a_body(block: Block, cid: str, method: str, form: str) -> None:
    answer = block(method, if_none_match=form.replace("{}", cid))
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == f'"{cid}.raw"'
    assert "immutable" in answer.headers["cache-control"]


def test_the_etag_of_another_format_does_not_match(block: Block, cid: str) -> None:
    assert block(if_none_match=f'"{cid}", "{cid}.car"').status_code == 200


@pytest.mark.parametrize(("value", "start", "end"), [("0-3", 0, 4), ("870-", 870, 880), ("-7", 873, 880)])
def test_a_single_range_is_supported(block: Block, cid: str, value: str, start: int, end: int) -> None:
    answer = block(range=f"bytes={value}")
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
    assert answer.headers["content-length"] == str(end - start)
    assert answer.headers["content-type"] == RAW
    assert answer.headers["etag"] == f'"{cid}.raw"'
    assert answer.headers["content-disposition"].startswith("attachment")


def test_a_range_past_the_end_is_not_satisfiable(block: Block, expect_refusal: Refusal) -> None:
    answer = block(range=f"bytes={len(DATA)}-")
    expect_refusal(answer, 416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"


def test_if_range_is_the_etag_of_the_block(block: Block, cid: str) -> None:
    assert block(range="bytes=0-1", if_range=f'"{cid}.raw"').status_code == 206
    assert block(range="bytes=0-1", if_range=f'"{cid}"').status_code == 200


# --- what is not there ------------------------------------------------------------------------------------------------


@METHODS
@rows("accept", [RAW, "*/*"])
def test_a_block_that_is_not_held_is_not_found(
    block: Block, cid_of: Callable[..., str], method: str, accept: str
) -> None:
    answer = block(method, cid_of(b"never stored"), accept=accept, if_none_match="*", range="bytes=0-1")
    assert answer.status_code == 404
    assert method == "HEAD" or answer.json()["error"] == "payload_not_found"


@METHODS
def test_only_if_cached_gives_412_for_what_is_not_held(
    block: Block, cid_of: Callable[..., str], expect_refusal: Refusal, method: str
) -> None:
    answer = block(method, cid_of(b"never stored"), cache_control="max-age=0, Only-If-Cached")
    assert (answer.status_code, answer.headers["cache-control"]) == (412, "no-store")
    if method == "GET":
        expect_refusal(answer, 412, "precondition_failed")
    assert block(method, cache_control="only-if-cached").status_code == 200
    assert block(method, "nonsense", cache_control="only-if-cached").status_code == 400


@METHODS
@rows("name", ["x", "bafk", "QmX", "%ff", "%00", "b" * 2000, "é", "bafyeaaa"])
def test_a_malformed_cid_is_a_bad_request(block: Block, method: str, name: str) -> None:
    answer = block(method, name)
    assert answer.status_code == 400
    assert method == "HEAD" or answer.json()["error"] == "invalid_cid"


def test_a_codec_of_roots_that_names_none_is_a_bad_request(block: Block, expect_refusal: Refusal) -> None:
    name = "b" + base64.b32encode(b"\x01\x80\xe0\xc0\x01\x12\x20" + bytes(32)).decode().rstrip("=").lower()
    expect_refusal(block(name=name), 400, "invalid_cid")


def test_ipns_is_not_served(client: httpx2.Client, expect_refusal: Refusal) -> None:
    answer = client.get("/ipns/k51?format=ipns-record", headers={"accept": "application/vnd.ipfs.ipns-record"})
    expect_refusal(answer, 404, "route_not_found")


# --- CARs and files ---------------------------------------------------------------------------------------------------


def test_a_car_is_negotiated_and_cached(client: httpx2.Client, block: Block, cid: str) -> None:
    answer = block(query="dag-scope=block", accept=f"{CAR};order=dfs;dups=y, {RAW};q=0.5")
    assert answer.headers["content-type"].endswith("dups=y")
    assert answer.headers["content-location"] == f"/ipfs/{cid}?format=car&dag-scope=block&car-dups=y"
    assert (answer.headers["vary"], answer.headers["accept-ranges"]) == ("Accept", "none")
    known = block(query="format=car&dag-scope=block", if_none_match=answer.headers["etag"])
    assert (known.status_code, known.content) == (304, b"")
    assert block(query="format=car", range="bytes=0-1").status_code == 200
    head = block("HEAD", query="format=car")
    assert (head.headers["content-length"], head.content) == (answer.headers["content-length"], b"")
    large = client.post("/v1/cas", content=bytes(3 * MIB)).json()["cid"]
    assert block(name=large, query="format=car").content.endswith(bytes(3 * MIB))
    for query in ("dag-scope=some", "car-version=2", "car-order=bfs", "car-dups=", "entity-bytes=1"):
        assert block(query=f"format=car&{query}").status_code == 400, query


@pytest.mark.parametrize("accept", ["*/*", "application/*", "text/html, */*;q=0.1"])
def test_raw_payloads_are_files_for_clients_that_take_any_type(
    client: httpx2.Client, block: Block, cid: str, accept: str
) -> None:
    answer = block(query="", accept=accept)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (200, DATA, f'"{cid}"')
    assert (answer.headers["content-type"], answer.headers["vary"]) == ("application/octet-stream", "Accept")
    assert answer.headers["content-disposition"].startswith("attachment;")
    other = client.post("/v1/cas", params={"codec": "dag-cbor"}, content=b"\xa0").json()["cid"]
    assert block(name=other, query="", accept=accept).status_code == 400


# --- the probe --------------------------------------------------------------------------------------------------------


@METHODS
@rows(("query", "accept"), [("format=raw", "*/*"), ("", RAW), ("format=raw", RAW)])
def test_the_probe_is_an_empty_block(block: Block, method: str, query: str, accept: str) -> None:
    answer = block(method, "bafkqaaa", query=query, accept=accept)
    assert (answer.status_code, answer.content) == (200, b"")
    assert (answer.headers["content-type"], answer.headers["content-length"]) == (RAW, "0")
    assert answer.headers["etag"] == '"bafkqaaa.raw"'


def test_the_probe_in_the_format_car_names_the_empty_block(block: Block) -> None:
    answer = block(name="bafkqaaa", query="format=car")
    assert (answer.status_code, answer.content) == (200, header(b"\x01\x55\0\0"))


@pytest.mark.parametrize(("name", "data"), [("bafkqaaik", b"\n"), ("f01550000", b""), ("bafyaaaa", b"")])
def test_identity_cid_gets_the_block_that_it_contains(block: Block, name: str, data: bytes) -> None:
    answer = block(name=name)
    assert (answer.status_code, answer.content) == (200, data)


# --- the document -----------------------------------------------------------------------------------------------------


def test_document_lists_the_statuses_of_blocks(client: httpx2.Client) -> None:
    document: dict[str, Any] = client.get("/openapi.json").json()
    item = document["paths"]["/ipfs/{cid}"]
    common = {"200", "304", "400", "404", "412", "500", "503"}
    assert set(item["get"]["responses"]) == common | {"206", "416"}
    assert set(item["head"]["responses"]) == common
    assert list(item["get"]["responses"]["200"]["content"]) == [RAW, CAR, "application/octet-stream"]
    below = document["paths"]["/ipfs/{cid}/{path}"]
    assert set(below["get"]["responses"]) == {"400", "500", "503"}
