"""What a gateway's failures become: classes of coregw.errors, bounded and printable."""

from __future__ import annotations

import json
import socket

import pytest

import coregw
from coregw import errors
from coregw.client import Client, ClientSettings
from coregw.errors import CoregwError
from gateways import Liar, Told

ROOT = coregw.Map({}).root
ONCE = ClientSettings(attempts=1)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", errors.InvalidInput),
        (400, "invalid_cid", errors.InvalidInput),
        (400, "invalid_path", errors.InvalidInput),
        (400, "invalid_codec", errors.InvalidInput),
        (400, "unknown_profile", errors.InvalidInput),
        (400, "kind_mismatch", errors.InvalidInput),
        (401, "unauthorized", errors.Unauthorized),
        (404, "root_not_found", errors.RootNotFound),
        (404, "path_not_found", errors.PathNotFound),
        (404, "payload_not_found", errors.PayloadNotFound),
        (404, "record_not_found", errors.RecordNotFound),
        (404, "route_not_found", errors.NotFound),
        (405, "method_not_allowed", errors.InvalidInput),
        (409, "before_mismatch", errors.Conflict),
        (409, "expected_root_mismatch", errors.Conflict),
        (409, "revision_mismatch", errors.Conflict),
        (409, "record_frozen", errors.Conflict),
        (409, "invalid_change", errors.Conflict),
        (413, "too_large", errors.TooLarge),
        (415, "unsupported_media_type", errors.InvalidInput),
        (416, "range_not_satisfiable", errors.InvalidInput),
        (500, "internal", errors.CoregwError),
        (503, "unavailable", errors.Unavailable),
        (507, "storage_full", errors.StorageFull),
    ],
)
def test_each_code_of_the_protocol_has_its_class(liar: Liar, status: int, code: str, kind: type[CoregwError]) -> None:
    body = json.dumps({"error": code, "message": "because", "details": {"at": 1}}).encode()
    with pytest.raises(CoregwError) as raised:
        liar(lambda told: told.saying(body, status), ONCE, honest=None).resolve(ROOT, "a")
    assert type(raised.value) is kind
    assert raised.value.code == code
    assert raised.value.details == b'{"at": 1}'
    assert "because" in str(raised.value)
    assert "resolve 'a'" in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b'{"error": 1, "message": 2}', b'{"error": "x"}'],
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, errors.CoregwError),
        (401, errors.Unauthorized),
        (404, errors.NotFound),
        (413, errors.TooLarge),
        (418, errors.CoregwError),
        (500, errors.CoregwError),
        (502, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_an_answer_without_a_code_goes_by_its_status(
    liar: Liar, status: int, kind: type[CoregwError], body: bytes
) -> None:
    with pytest.raises(CoregwError) as raised:
        liar(lambda told: told.saying(body, status), ONCE, honest=None).resolve(ROOT, "a")
    assert type(raised.value) is kind


def test_a_code_that_nobody_knows_goes_by_its_status(liar: Liar) -> None:
    body = b'{"error": "from_the_future", "message": "hm"}'
    with pytest.raises(errors.Conflict, match="hm"):
        liar(lambda told: told.saying(body, 409), honest=None).resolve(ROOT, "a")


def test_what_a_gateway_says_is_one_bounded_printable_line(liar: Liar) -> None:
    body = json.dumps({"error": "internal", "message": "\x1b[31mred\nnext\x07" + "x" * 10_000}).encode()
    with pytest.raises(CoregwError) as raised:
        liar(lambda told: told.saying(body, 500), honest=None).resolve(ROOT, "a")
    said = str(raised.value)
    assert said.isprintable()
    assert "\\x1b[31mred\\nnext\\x07" in said
    assert len(said) < 1000


def test_an_error_longer_than_any_answer_is_not_taken(liar: Liar) -> None:
    small = ClientSettings(max_result_bytes=1000)
    with pytest.raises(errors.TooLarge):
        liar(lambda told: told.saying(b" " * 1001, 500), small, honest=None).resolve(ROOT, "a")


def test_a_gateway_that_recovers_is_asked_again(liar: Liar) -> None:
    heard: list[Told] = []

    def lie(told: Told) -> Told:
        heard.append(told)
        return told if len(heard) > 2 else told.saying(b"", 503)

    assert liar(lie).create_root({}) == ROOT
    assert len(heard) == 3


def test_a_gateway_that_does_not_recover_is_given_up(liar: Liar) -> None:
    heard: list[Told] = []

    def lie(told: Told) -> Told:
        heard.append(told)
        return told.saying(b"", 503)

    few = ClientSettings(attempts=3, backoff_seconds=0.001, backoff_max_seconds=0.002)
    with pytest.raises(errors.Unavailable):
        liar(lie, few).create_root({})
    assert len(heard) == 3


def test_a_refusal_is_not_asked_for_twice(liar: Liar) -> None:
    heard: list[Told] = []

    def lie(told: Told) -> Told:
        heard.append(told)
        return told.saying(b"", 500)

    with pytest.raises(CoregwError):
        liar(lie).create_root({})
    assert len(heard) == 1


def test_a_gateway_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, ONCE) as client, pytest.raises(errors.Unavailable, match=url):
            client.resolve(ROOT, "a")


def test_a_gateway_that_says_nothing_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hasty = ClientSettings(attempts=1, idle_seconds=0.05)
        with Client(url, hasty) as client, pytest.raises(errors.Unavailable, match="the answer timed out"):
            client.resolve(ROOT, "a")


def test_an_answer_that_takes_too_long_is_given_up(liar: Liar) -> None:
    hasty = ClientSettings(attempts=1, answer_seconds=1e-9)
    with pytest.raises(errors.Unavailable, match="took longer"):
        liar(lambda told: told, hasty).create_root({})


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8080", "ftp://host", "http://", "http://host?q=1", "http://host#f", "http://[::1", "file:///"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidInput, match="gateway address"):
        Client(url)


@pytest.mark.parametrize("setting", ["attempts", "connect_seconds", "max_payload_bytes", "max_entries"])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_are_above_zero(setting: str, value: int) -> None:
    with pytest.raises(errors.InvalidInput, match=setting):
        ClientSettings(**{setting: value})


def test_a_gateway_below_a_path_is_reached_there(liar: Liar) -> None:
    heard: list[str] = []

    def lie(told: Told) -> Told:
        heard.append(told.path)
        return told.saying(b'{"root": "%s"}' % ROOT.encode())

    lying = liar(lie, honest=None)
    with Client(f"{lying.base_url}/below/", ONCE) as client:
        client.create_root({})
    assert heard == ["/below/v1/roots"]
