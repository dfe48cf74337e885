"""The rules of docs/plant-store.md, one test or more each, named after them."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import pytest

from plant_services import TOKEN

Create = Callable[..., httpx2.Response]
Fresh = Callable[[], int]
ExpectError = Callable[..., str]

_LEAST, _MOST = -(2**63), 2**63 - 1
_NAMES = ["fern", "", "Ä 花 🌱", 'a\u0000b\n"\\', " x ", "n" * 10_000]


# --- resources and their fields: Plant --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _NAMES)
def test_plant_name_is_that_of_the_new_plant(create: Create, fresh: Fresh, name: str) -> None:
    answer = create({"name": name, "id": fresh()})
    assert (answer.status_code, json.loads(answer.content)) == (200, {"name": name})


@pytest.mark.parametrize("tag", _NAMES)
def test_plant_tag_is_that_of_the_new_plant(create: Create, fresh: Fresh, tag: str) -> None:
    answer = create({"name": "fern", "tag": tag, "id": fresh()})
    assert (answer.status_code, json.loads(answer.content)) == (200, {"name": "fern", "tag": tag})


def test_plant_tag_is_omitted_if_the_new_plant_has_none(create: Create, fresh: Fresh) -> None:
    assert create({"name": "fern", "id": fresh()}).content == b'{"name":"fern"}'


# --- resources and their fields: NewPlant -----------------------------------------------------------------------------


def test_new_plant_name_is_required(create: Create, fresh: Fresh, expect_error: ExpectError) -> None:
    assert "name" in expect_error(create({"tag": "shade", "id": fresh()}), 400)


def test_new_plant_id_is_required(create: Create, expect_error: ExpectError) -> None:
    assert "id" in expect_error(create({"name": "fern", "tag": "shade"}), 400)


@pytest.mark.parametrize("member", ["name", "tag"])
@pytest.mark.parametrize("value", [None, 1, True, [], {}, ["fern"]])
def test_new_plant_name_and_tag_are_strings(
    create: Create, fresh: Fresh, expect_error: ExpectError, member: str, value: object
) -> None:
    assert f"$.{member}" in expect_error(create({"name": "fern", "id": fresh()} | {member: value}), 400)


@pytest.mark.parametrize(
    "plant_id", [_LEAST, _LEAST + 1, -(2**53) - 1, -(2**53), -1, 0, 2, 2**53, 2**53 + 1, _MOST - 1, _MOST]
)
def test_new_plant_id_may_be_any_int64(create: Create, expect_error: ExpectError, plant_id: int) -> None:
    assert create({"name": f"plant {plant_id}", "id": plant_id}).status_code == 200
    assert str(plant_id) in expect_error(create({"name": "another", "id": plant_id}), 400, 409)


@pytest.mark.parametrize(
    "text",
    f'{_MOST + 1} {_LEAST - 1} {2**64} 1e3 1.0 -0 01 +1 1e999 NaN 0x1 "1" null true [1] {{}}'.split(),
)
def test_new_plant_id_outside_int64_is_refused(create: Create, expect_error: ExpectError, text: str) -> None:
    expect_error(create(f'{{"name": "fern", "id": {text}}}'.encode()), 400)


def test_new_plant_has_no_other_members(create: Create, fresh: Fresh, expect_error: ExpectError) -> None:
    plant_id = fresh()
    assert "colour" in expect_error(create({"name": "fern", "id": plant_id, "colour": "green"}), 400)
    assert create({"name": "fern", "id": plant_id}).status_code == 200  # nothing was kept before


# --- resources and their fields: Error --------------------------------------------------------------------------------


def test_error_is_an_int32_and_message_a_string(create: Create) -> None:
    told = create({}).json()
    assert set(told) == {"error", "message"}
    assert type(told["error"]) is int
    assert -(2**31) <= told["error"] < 2**31
    assert isinstance(told["message"], str)


# --- endpoints --------------------------------------------------------------------------------------------------------


def test_post_plants_creates_a_plant(create: Create, fresh: Fresh) -> None:
    answer = create({"id": fresh(), "tag": "shade", "name": "fern"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b'{"name":"fern","tag":"shade"}'


def test_the_request_body_is_required(create: Create, expect_error: ExpectError) -> None:
    expect_error(create(b""), 400)


_LOOSE = {
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


@pytest.mark.parametrize("body", _LOOSE.values(), ids=_LOOSE.keys())
def test_400_for_json_that_is_not_strict(create: Create, expect_error: ExpectError, body: bytes) -> None:
    expect_error(create(body), 400)


# --- authentication ---------------------------------------------------------------------------------------------------


def test_the_scheme_may_be_written_in_any_case(create: Create, fresh: Fresh) -> None:
    for scheme in ("bearer", "BEARER"):
        assert create({"name": "fern", "id": fresh()}, authorization=f"{scheme} {TOKEN}").status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        *("", "Bearer", "Bearer wrong", "Bearer {token}x", "Bearer x{token}", "Bearer {cut}", "{token}"),
        *("Basic {token}", "Bearer {token},", "Bearer {token} {token}", 'Bearer "{token}"', "Bearer \u00ff"),
    ],
)
def test_401_for_a_wrong_token(
    create: Create, client: httpx2.Client, fresh: Fresh, expect_error: ExpectError, given: str
) -> None:
    plant_id = fresh()
    text = given.format(token=TOKEN, cut=TOKEN[:-1])
    headers = [(b"authorization", text.encode("latin-1"))]
    answer = client.post("/plants", json={"name": "fern", "id": plant_id}, headers=headers)
    expect_error(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text
    assert create({"name": "fern", "id": plant_id}).status_code == 200  # nothing was kept before


def test_401_for_a_missing_token(client: httpx2.Client, fresh: Fresh, expect_error: ExpectError) -> None:
    answer = client.post("/plants", json={"name": "fern", "id": fresh()})
    expect_error(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_401_for_two_tokens(client: httpx2.Client, fresh: Fresh, expect_error: ExpectError) -> None:
    twice = [(b"authorization", f"Bearer {TOKEN}".encode())] * 2
    expect_error(client.post("/plants", json={"name": "fern", "id": fresh()}, headers=twice), 401)


def test_401_comes_before_any_other_failure(client: httpx2.Client, expect_error: ExpectError) -> None:
    expect_error(client.post("/plants?a=b", content=b"{", headers={"content-type": "text/plain"}), 401)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_400_for_a_second_plant_with_the_same_id(create: Create, fresh: Fresh, expect_error: ExpectError) -> None:
    plant = {"name": "fern", "id": fresh()}
    assert create(plant).status_code == 200
    for again in (plant, plant | {"name": "moss"}, plant | {"tag": "shade"}):
        assert str(plant["id"]) in expect_error(create(again), 400, 409)


def test_400_for_an_invalid_body_names_the_place(create: Create, expect_error: ExpectError) -> None:
    assert "$.id" in expect_error(create({"name": "fern", "id": "7"}), 400, 400)
    assert "line 2" in expect_error(create(b'{"name": "fern",\n"id": 1.5}'), 400, 400)
