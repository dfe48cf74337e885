"""Error answers and failed connections: mapped to exceptions, bounded, printable, and retried if transient."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

import coregw
from coregw import errors, messages
from coregw.client import Client, ClientSettings
from coregw.errors import CoregwError
from gateways import Liar, Reply
from tables import rows

ROOT = coregw.Map({}).root
LIST = coregw.List([]).root
ONCE = ClientSettings(attempts=1)


@rows(
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
        (404, "path_not_found", errors.UnprovenAbsence),
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
def test_each_error_code_is_raised_as_its_class(liar: Liar, status: int, code: str, kind: type[CoregwError]) -> None:
    body = json.dumps({"error": code, "message": "because", "details": {"at": 1}}).encode()
    with pytest.raises(CoregwError) as raised:
        liar(lambda reply: reply.with_body(body, status), ONCE, honest=None).resolve(ROOT, "a")
    assert type(raised.value) is kind
    assert raised.value.code == code
    assert raised.value.details == b'{"at": 1}'
    assert "because" in str(raised.value)
    assert "resolve 'a'" in str(raised.value)


@rows(
    "body",
    [b"", b"<html>", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b'{"error": 1, "message": 2}', b'{"error": "x"}'],
)
@rows(
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
def test_an_error_answer_without_a_code_is_mapped_by_its_status(
    liar: Liar, status: int, kind: type[CoregwError], body: bytes
) -> None:
    with pytest.raises(CoregwError) as raised:
        liar(lambda reply: reply.with_body(body, status), ONCE, honest=None).resolve(ROOT, "a")
    assert type(raised.value) is kind


@rows(
    "operation",
    [
        lambda client: client.prove_key(ROOT, "a"),
        lambda client: client.read_key(ROOT, "a"),
        lambda client: client.read_index(LIST, 0),
        lambda client: client.scan(ROOT),
        lambda client: list(client.children(ROOT)),
        lambda client: list(client.walk(ROOT)),
        lambda client: list(client.diff(ROOT, ROOT)),
        lambda client: client.update(ROOT, {}, ["a"]),
        lambda client: client.mutate(ROOT, [messages.Delta(kind="map", changes=[])]),
        lambda client: client.create_root({}),
        lambda client: client.get_payload(coregw.payload_cid(b"")),
    ],
)
def test_an_absence_without_the_proof_that_the_protocol_requires_is_not_proven(
    liar: Liar, operation: Callable[[Client], object]
) -> None:
    body = b'{"error": "path_not_found", "message": "no"}'
    with pytest.raises(errors.ProofError, match="an absence without a proof"):
        operation(liar(lambda reply: reply.with_body(body, 404), ONCE, honest=None))


def test_a_claimed_absence_is_no_proven_absence(liar: Liar) -> None:
    body = b'{"error": "path_not_found", "message": "no"}'
    client = liar(lambda reply: reply.with_body(body, 404), ONCE, honest=None)
    with pytest.raises(errors.NotFound) as raised:
        client.resolve(ROOT, "a")
    assert type(raised.value) is errors.UnprovenAbsence
    assert not isinstance(raised.value, errors.PathNotFound | LookupError)


def test_an_unknown_code_is_mapped_by_its_status(liar: Liar) -> None:
    body = b'{"error": "from_the_future", "message": "hm"}'
    with pytest.raises(errors.Conflict, match="hm"):
        liar(lambda reply: reply.with_body(body, 409), honest=None).resolve(ROOT, "a")


def test_a_gateways_message_becomes_one_bounded_printable_line(liar: Liar) -> None:
    body = json.dumps({"error": "internal", "message": "\x1b[31mred\nnext\x07" + "x" * 10_000}).encode()
    with pytest.raises(CoregwError) as raised:
        liar(lambda reply: reply.with_body(body, 500), honest=None).resolve(ROOT, "a")
    message = str(raised.value)
    assert message.isprintable()
    assert "\\x1b[31mred\\nnext\\x07" in message
    assert len(message) < 1000


def test_an_oversized_error_answer_is_not_read(liar: Liar) -> None:
    small = ClientSettings(max_result_bytes=1000)
    with pytest.raises(errors.TooLarge):
        liar(lambda reply: reply.with_body(b" " * 1001, 500), small, honest=None).resolve(ROOT, "a")


def test_a_request_is_retried_until_the_gateway_recovers(liar: Liar) -> None:
    received: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply)
        return reply if len(received) > 2 else reply.with_body(b"", 503)

    assert liar(lie).create_root({}) == ROOT
    assert len(received) == 3


def test_retries_stop_after_the_last_attempt(liar: Liar) -> None:
    received: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply)
        return reply.with_body(b"", 503)

    few = ClientSettings(attempts=3, backoff_seconds=0.001, backoff_max_seconds=0.002)
    with pytest.raises(errors.Unavailable):
        liar(lie, few).create_root({})
    assert len(received) == 3


def test_an_internal_error_is_not_retried(liar: Liar) -> None:
    received: list[Reply] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply)
        return reply.with_body(b"", 500)

    with pytest.raises(CoregwError):
        liar(lie).create_root({})
    assert len(received) == 1


def test_a_refused_connection_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, ONCE) as client, pytest.raises(errors.Unavailable, match=url):
            client.resolve(ROOT, "a")


def test_a_gateway_that_does_not_answer_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hasty = ClientSettings(attempts=1, idle_seconds=0.05)
        with Client(url, hasty) as client, pytest.raises(errors.Unavailable, match="the answer timed out"):
            client.resolve(ROOT, "a")


def test_an_answer_that_takes_too_long_is_unavailable(liar: Liar) -> None:
    hasty = ClientSettings(attempts=1, answer_seconds=1e-9)
    with pytest.raises(errors.Unavailable, match=r"took longer|timed out"):  # by who notices first
        liar(lambda reply: reply, hasty).create_root({})


@rows(
    "url",
    ["", "127.0.0.1:8080", "ftp://host", "http://", "http://host?q=1", "http://host#f", "http://[::1", "file:///"],
)
def test_an_invalid_gateway_address_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidInput, match="gateway address"):
        Client(url)


@rows("setting", ["attempts", "connect_seconds", "max_payload_bytes", "max_entries"])
@rows("value", [0, -1])
def test_settings_must_be_above_zero(setting: str, value: int) -> None:
    with pytest.raises(errors.InvalidInput, match=setting):
        ClientSettings(**{setting: value})


def test_the_path_of_the_gateway_address_is_kept(liar: Liar) -> None:
    received: list[str] = []

    def lie(reply: Reply) -> Reply:
        received.append(reply.path)
        return reply.with_body(b'{"root": "%s"}' % ROOT.encode())

    lying = liar(lie, honest=None)
    with Client(f"{lying.base_url}/below/", ONCE) as client:
        client.create_root({})
    assert received == ["/below/v1/roots"]
