"""The rules of docs/plant-store.md about requests, as tables: each row that fails is reported."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import serving
from coregw.plants.messages import document
from plant_services import TOKEN

if TYPE_CHECKING:
    import httpx2
    import pytest

LEAST, MOST = -(2**63), 2**63 - 1
LIMIT = 64 << 10
NAMES = ["fern", "", "Ä 花 🌱", 'a\u0000b\n"\\', " x ", "n" * 10_000]
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"}
CARRIED = AUTHORIZATION | {"content-type": "application/json"}
_IDS = itertools.count(1_000_000)


def post(
    client: httpx2.Client, plant: object, headers: object = None, path: str = "/plants", **further: str
) -> httpx2.Response:
    """Post a plant: an object, or bytes or an iterator of bytes as they are."""
    content: Any = plant if isinstance(plant, bytes | Iterator) else json.dumps(plant).encode()
    given: Any = CARRIED if headers is None else headers
    return client.post(path, content=content, headers=given | further if further else given)


def failure(answer: httpx2.Response, status: int, error: int | None = None) -> str:
    """Check the shape of a failure, and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body = json.loads(answer.content)
    assert set(body) == {"error", "message"}
    assert type(body["error"]) is int
    assert body["error"] == (status if error is None else error)
    assert isinstance(body["message"], str)
    assert body["message"]
    return str(body["message"])


class Accepted(NamedTuple):
    """A plant that is created, and the body of the answer."""

    plant: object
    answer: Mapping[str, object]
    headers: Mapping[str, str] = CARRIED


def named(name: str, **further: object) -> dict[str, object]:
    """A plant with an unused id."""
    return {"name": name, "id": next(_IDS)} | further


def padded(size: int) -> bytes:
    body = json.dumps(named("fern")).encode()
    return body + b" " * (size - len(body))


def accepted() -> Iterator[tuple[str, Accepted]]:
    for name in NAMES:
        yield f"name {name!r:.20}", Accepted(named(name), {"name": name})
        yield f"tag {name!r:.20}", Accepted(named("fern", tag=name), {"name": "fern", "tag": name})
    for plant_id in (LEAST, LEAST + 1, -(2**53) - 1, -(2**53), -1, 0, 2, 2**53, 2**53 + 1, MOST - 1, MOST):
        yield f"id {plant_id}", Accepted({"name": f"plant {plant_id}", "id": plant_id}, {"name": f"plant {plant_id}"})
    for scheme in ("bearer", "BEARER"):
        yield scheme, Accepted(named("fern"), {"name": "fern"}, CARRIED | {"authorization": f"{scheme} {TOKEN}"})
    yield "no Content-Type", Accepted(json.dumps(named("fern")).encode(), {"name": "fern"}, AUTHORIZATION)
    yield "the largest body", Accepted(padded(LIMIT), {"name": "fern"})


def test_a_plant_is_created_and_returned_as_sent(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    for about, row in accepted():
        with subtests.test(about):
            answer = post(client, row.plant, row.headers)
            assert ("content-type" in answer.request.headers) == ("content-type" in row.headers)
            assert (answer.status_code, json.loads(answer.content)) == (200, row.answer)
            assert answer.headers["content-type"] == "application/json"


def test_answers_are_compact_and_omit_a_tag_that_was_not_sent(client: httpx2.Client) -> None:
    assert post(client, named("fern")).content == b'{"name":"fern"}'
    assert post(client, {"id": next(_IDS), "tag": "shade", "name": "fern"}).content == b'{"name":"fern","tag":"shade"}'


def test_an_id_is_taken_by_the_first_plant_that_has_it(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    for plant_id in (LEAST + 2, -7, 7, 2**53 + 3, MOST - 2):
        plant = {"name": "fern", "id": plant_id}
        assert post(client, plant).status_code == 200
        for again in (plant, plant | {"name": "moss"}, plant | {"tag": "shade"}):
            with subtests.test(str(again)):
                assert str(plant_id) in failure(post(client, again), 400, 409)


_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" ",
    "no object": b'[{"name": "fern", "id": 1}]',
    "a string": b'"fern"',
    "two values": b'{"name": "fern", "id": 1}{}',
    "a trailing comma": b'{"name": "fern", "id": 1,}',
    "a comment": b'{"name": "fern", "id": 1} // green',
    "a duplicate": b'{"name": "fern", "id": 1, "id": 2}',
    "a duplicate in escapes": b'{"name": "fern", "id": 1, "\\u0069d": 2}',
    "a duplicate of the same value": b'{"name": "fern", "name": "fern", "id": 1}',
    "a byte order mark": b'\xef\xbb\xbf{"name": "fern", "id": 1}',
    "UTF-16": '{"name": "fern", "id": 1}'.encode("utf-16"),
    "invalid UTF-8": b'{"name": "\xff", "id": 1}',
    "a surrogate in UTF-8": b'{"name": "\xed\xa0\x80", "id": 1}',
    "a lone surrogate": b'{"name": "\\ud800", "id": 1}',
    "a control character": b'{"name": "\x01", "id": 1}',
    "an unknown escape": b'{"name": "\\x41", "id": 1}',
    "33 levels": b'{"name": "fern", "id": ' + b"[" * 32 + b"]" * 32 + b"}",
    "deep": b"[" * 30_000,
    "a member of another case": b'{"Name": "fern", "id": 1}',
}
_NO_IDS = f'{MOST + 1} {LEAST - 1} {2**64} 1e3 1.0 -0 01 +1 1e999 NaN 0x1 "1" null true [1] {{}}'.split()


def refused() -> Iterator[tuple[str, object, str]]:
    """Bodies that are refused: what they are, the body, and what the message has."""
    for about, body in _BODIES.items():
        yield about, body, ""
    for text in _NO_IDS:
        yield f"id {text}", f'{{"name": "fern", "id": {text}}}'.encode(), ""
    for member, value in itertools.product(("name", "tag"), (None, 1, True, [], {}, ["fern"])):
        yield f"{member} {value}", {"name": "fern", "id": 1, member: value}, f"$.{member}"
    yield "no name", {"tag": "shade", "id": 1}, "name"
    yield "no id", {"name": "fern", "tag": "shade"}, "id"
    yield "an unknown member", {"name": "fern", "id": 1, "colour": "green"}, "colour"
    yield "the place in a body", {"name": "fern", "id": "7"}, "$.id"
    yield "the place in a text", b'{"name": "fern",\n"id": 1.5}', "line 2"


def test_an_invalid_body_is_refused_with_its_place(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    for about, body, place in refused():
        with subtests.test(about):
            assert place in failure(post(client, body), 400, 400)
    assert post(client, {"name": "fern", "id": 1}).status_code == 200  # nothing was kept before


_TOKENS: dict[str, list[str]] = {
    **{
        repr(text): [text.format(token=TOKEN, cut=TOKEN[:-1])]
        for text in (
            *("", "Bearer", "Bearer wrong", "Bearer {token}x", "Bearer x{token}", "Bearer {cut}", "{token}"),
            *("Basic {token}", "Bearer {token},", "Bearer {token} {token}", 'Bearer "{token}"', "Bearer \u00ff"),
        )
    },
    "none": [],
    "two": [f"Bearer {TOKEN}"] * 2,
}


def test_401_without_the_token_before_any_other_failure(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    plant_id = next(_IDS)
    good, bad = json.dumps({"name": "fern", "id": plant_id}).encode(), b"{"
    for about, tokens in _TOKENS.items():
        headers = [(b"authorization", each.encode("latin-1")) for each in tokens]
        for kind, path, body in (("application/json", "/plants", good), ("text/plain", "/plants?a=b", bad)):
            with subtests.test(f"{about} {path}"):
                answer = post(client, body, [*headers, (b"content-type", kind.encode())], path)
                failure(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert TOKEN not in answer.text
    assert post(client, good).status_code == 200  # nothing was kept before


_NO_ROUTES = ["/plants/1", "/plants/a/b", "/plants/%ff", "/plants/openapi.yaml", "/plants/openapi.json", "/plants/docs"]
_OF_A_GATEWAY = ["/", "/pets", "/plantsx", "/plants/healthz", "/docs", "/readyz", "/metrics", "/v1/resolve", "/v1/cas"]


def test_404_for_unknown_routes(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    for method, path in itertools.product(["GET", "POST", "PUT", "DELETE", "OPTIONS"], _NO_ROUTES + _OF_A_GATEWAY):
        with subtests.test(f"{method} {path}"):
            failure(client.request(method, path), 404)


def test_405_for_other_methods(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    allowed = {"/plants": {"POST", "OPTIONS"}, "/healthz": {"GET", "HEAD", "OPTIONS"}}
    rows = [(method, "/plants") for method in ("GET", "PUT", "DELETE", "PATCH", "TRACE")] + [("POST", "/healthz")]
    for method, path in rows:
        with subtests.test(f"{method} {path}"):
            answer = client.request(method, path)
            failure(answer, 405)
            assert set(answer.headers["allow"].split(", ")) == allowed[path]
    head = client.head("/plants")
    assert (head.status_code, head.content) == (405, b"")


def test_other_requests_are_refused(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    def longer(size: int) -> bytes:
        return b" " * size

    def chunked(size: int) -> Iterator[bytes]:
        return iter([longer(size // 2), longer(size - size // 2)])

    rows: list[tuple[str, Callable[[], httpx2.Response], int, str]] = [
        ("a query", lambda: post(client, named("fern"), path="/plants?colour=red"), 400, "colour"),
        ("a query of the document", lambda: client.get("/openapi.json?a=b"), 400, "a"),
        ("a query of the health check", lambda: client.get("/healthz?a=b"), 400, "a"),
        *((kind, lambda k=kind: post(client, named("fern"), CARRIED | {"content-type": k}), 415, "") for kind in TYPES),
        ("compressed", lambda: post(client, named("fern"), CARRIED | {"content-encoding": "gzip"}), 415, ""),
        *(
            (f"{size} bytes, {how.__name__}", lambda s=size, h=how: post(client, h(s)), 413, str(LIMIT))
            for size, how in itertools.product((LIMIT + 1, 1 << 20), (longer, chunked))
        ),
    ]
    for about, send, status, words in rows:
        with subtests.test(about):
            assert words in failure(send(), status)


TYPES = ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"]

_MALFORMED = {
    "no Host": b"POST /plants HTTP/1.1\r\n\r\n",
    "two Hosts": b"POST /plants?a=b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no length": b"POST /plants HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    "a head without an end": b"POST /plants HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000,
    "another coding": b"POST /plants/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a null byte": b"\0\r\n\r\n",
    "no target": b"PLANTS\r\n\r\n",
}


def test_400_for_malformed_http(client: httpx2.Client, subtests: pytest.Subtests) -> None:
    for about, head in _MALFORMED.items():
        with subtests.test(about), serving.connect(str(client.base_url).rstrip("/")) as connection:
            connection.sendall(head)
            assert serving.everything(connection).startswith(b"HTTP/1.1 400 ")


def test_healthz_needs_no_token(client: httpx2.Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["status"], answer.headers["cache-control"]) == (200, "ok", "no-store")
    head = client.head("/healthz")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(answer.content)))


# --- the document -----------------------------------------------------------------------------------------------------


def of_table(fields: Iterable[tuple[str, str, str | None, bool]]) -> tuple[dict[str, tuple[str, str | None]], set[str]]:
    rows = list(fields)
    return {name: (kind, form) for name, kind, form, _ in rows}, {name for name, _, _, required in rows if required}


PLANT = [("name", "string", None, True), ("tag", "string", None, False)]
SCHEMAS = {
    "Plant": of_table(PLANT),
    "NewPlant": of_table([*PLANT, ("id", "integer", "int64", True)]),
    "Error": of_table([("error", "integer", "int32", True), ("message", "string", None, True)]),
}


def schema_of(message: Mapping[str, Any]) -> str:
    return str(message["content"]["application/json"]["schema"]["$ref"]).removeprefix("#/components/schemas/")


def test_the_document_is_version_1_0_0_of_one_operation_in_openapi_3_1_0(client: httpx2.Client) -> None:
    answer = client.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "application/json", document())
    told = answer.json()
    assert (told["openapi"], told["info"]["version"]) == ("3.1.0", "1.0.0")
    assert told["info"]["license"] == {"name": "MIT", "identifier": "MIT"}
    (scheme,) = told["security"]
    (name,) = scheme
    assert told["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}
    assert [(path, list(item)) for path, item in told["paths"].items()] == [("/plants", ["post"])]
    operation = told["paths"]["/plants"]["post"]
    assert "security" not in operation
    assert operation["requestBody"]["required"] is True
    assert schema_of(operation["requestBody"]) == "NewPlant"
    assert schema_of(operation["responses"].pop("200")) == "Plant"
    assert set(operation["responses"]) == {"400", "401", "413", "415", "500", "503", "507"}
    assert {schema_of(answer) for answer in operation["responses"].values()} == {"Error"}
    assert "nexpected error" in operation["responses"]["400"]["description"]


def test_the_schemas_of_the_document_match_the_service_page(subtests: pytest.Subtests) -> None:
    schemas = json.loads(document())["components"]["schemas"]
    assert set(schemas) == set(SCHEMAS)
    for name, (fields, required) in SCHEMAS.items():
        with subtests.test(name):
            told = schemas[name]["properties"]
            assert {each: (about["type"], about.get("format")) for each, about in told.items()} == fields
            assert set(schemas[name]["required"]) == required


def test_the_examples_of_the_document_work(client: httpx2.Client) -> None:
    operation = json.loads(document())["paths"]["/plants"]["post"]
    plant = operation["requestBody"]["content"]["application/json"]["example"] | {"id": next(_IDS)}
    expected = operation["responses"]["200"]["content"]["application/json"]["example"]
    assert post(client, plant).json() == expected
