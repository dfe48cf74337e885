"""How clients reach gateways: headers, credentials and proxies; and that no secret is shown."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import coregw
from client_calls import Call, both_clients
from coregw.client import Client, ClientSettings, ConnectionOptions
from coregw.errors import CoregwError, InvalidInput, Unauthorized, Unavailable
from gateways import read_head, scripted_gateway
from proxies import running_proxy
from tables import rows

DATA = b"the payload"
CID = coregw.payload_cid(DATA)
ONCE = ClientSettings(attempts=1)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(DATA), DATA)
BASIC = "Basic dXNlcjpodW50ZXIy"  # user:hunter2


def keeping(heads: list[str]) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 16)
        heads.append(head.decode())
        connection.sendall(OK)

    return script


def value(head: str, name: str) -> list[str]:
    return re.findall(rf"^{name}: (.*)\r$", head, re.MULTILINE | re.IGNORECASE)


@both_clients
@pytest.mark.parametrize(
    ("options", "user", "expected"),
    [
        pytest.param({"bearer_token": "t0k3n"}, "", "Bearer t0k3n", id="bearer"),
        pytest.param({"basic_auth": ("user", "hunter2")}, "", BASIC, id="basic"),
        pytest.param({"headers": {"authorization": "X y"}}, "", "X y", id="header"),
        pytest.param({"bearer_token": "t0k3n"}, "user:hunter2@", BASIC, id="the address first"),
        pytest.param({"headers": {"Authorization": "X y"}}, "user:hunter2@", BASIC, id="the address before a header"),
        pytest.param({"netrc": "machine 127.0.0.1 login user password hunter2"}, "", BASIC, id="netrc"),
        pytest.param({"netrc": "machine example.org login user password hunter2"}, "", None, id="netrc of others"),
    ],
)
def test_headers_and_credentials_are_sent_with_every_request(
    call: Call, options: dict[str, object], user: str, expected: str | None, tmp_path: Path
) -> None:
    if "netrc" in options:
        (tmp_path / "netrc").write_text(str(options["netrc"]))
        options = {"netrc": tmp_path / "netrc"}
    options = {**options, "headers": {"X-Tenant": "a b", **options.get("headers", {})}}  # type: ignore[dict-item]
    heads: list[str] = []
    with scripted_gateway(keeping(heads)) as url:
        connection = ConnectionOptions(**options)  # type: ignore[arg-type]
        assert call(url.replace("//", f"//{user}"), ONCE, "get_payload", CID, connection=connection) == DATA
    (head,) = heads
    assert value(head, "X-Tenant") == ["a b"]
    assert value(head, "Authorization") == ([] if expected is None else [expected])


@both_clients
def test_the_netrc_of_the_home_folder_is_not_read(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("default login user password hunter2")
    monkeypatch.setenv("HOME", str(tmp_path))
    heads: list[str] = []
    with scripted_gateway(keeping(heads)) as url:
        call(url, ONCE, "get_payload", CID)
    assert value(heads[0], "Authorization") == []


@rows(
    "options",
    [
        {"headers": {"X-Key": "hunter2\r\nX-Evil: 1"}},
        {"headers": {"hunter2 x": "y"}},
        {"headers": {"Content-Length": "7"}},
        {"headers": {f"X-{number}": "hunter2" for number in range(65)}},
        {"bearer_token": "hunter2 x"},
        {"bearer_token": ""},
        {"basic_auth": ("a:b", "hunter2")},
        {"basic_auth": ("a", "hunter2\n")},
        {"bearer_token": "hunter2", "basic_auth": ("a", "hunter2")},
        {"client_key": Path("/")},
        {"ca_cert": Path("/no/such/file")},
    ],
)
def test_malformed_options_are_refused_and_not_shown(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))) as raised:
        ConnectionOptions(**options)  # type: ignore[arg-type]
    assert "hunter2" not in shown(raised.value)


def test_options_are_read_from_the_environment() -> None:
    environ = {
        "COREGW_HEADERS": "X-A: 1\n\nX-B: 2",
        "COREGW_BASIC_AUTH": "user:a:b",
        "COREGW_PROXY": "none",
        "COREGW_CA_CERT": "/",
        "COREGW_NETRC": "",
    }
    found = ConnectionOptions.from_environment({"proxy": None, "ca_cert": "/etc"}, ["X-B: 3"], environ)
    assert found == ConnectionOptions(
        headers={"X-A": "1", "X-B": "3"}, basic_auth=("user", "a:b"), proxy="", ca_cert=Path("/etc")
    )
    assert "user" not in repr(found)
    for variable, text in {"HEADERS": "hunter2", "BASIC_AUTH": "hunter2", "BEARER_TOKEN": "hunter2\x7f"}.items():
        with pytest.raises(InvalidInput) as raised:
            ConnectionOptions.from_environment(environ={f"COREGW_{variable}": text})
        assert "hunter2" not in shown(raised.value)


def shown(error: CoregwError) -> str:
    return f"{error}{error!r}" + "".join(traceback.format_exception(error))


@both_clients
def test_a_proxy_is_used_also_for_loopback_if_it_is_given(
    call: Call, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_proxy("user:hunter2") as proxy:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert call(gateway, ONCE, "put_payload", DATA) == CID  # not those of the environment
        monkeypatch.setenv("no_proxy", "*")
        url = f"http://user:hunter2@{proxy.address}"
        through = ConnectionOptions(proxy=url, bearer_token="t0k3n")
        assert call(gateway, ONCE, "get_payload", CID, connection=through) == DATA
        assert len(proxy.heads) == 1
        assert proxy.heads[0].startswith(f"GET {gateway}/v1/cas/{CID} HTTP/1.1\r\n".encode())
        wrong = ConnectionOptions(proxy=url.replace("hunter2", "hunter3"))
        with pytest.raises(Unauthorized, match="407") as raised:
            call(gateway, ONCE, "get_payload", CID, connection=wrong)
        assert "hunter" not in shown(raised.value)


@both_clients
@rows("proxy", ["http://user:hunter2@127.0.0.1:1", "socks5h://user:hunter2@127.0.0.1:1"])
def test_a_proxy_that_is_away_is_not_shown_with_its_password(call: Call, proxy: str) -> None:
    with pytest.raises(Unavailable) as raised:
        call("http://127.0.0.1:2", ONCE, "get_payload", CID, connection=ConnectionOptions(proxy=proxy))
    assert "hunter2" not in shown(raised.value)


@both_clients
def test_a_malformed_proxy_of_the_environment_is_not_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "gopher://user:hunter2@127.0.0.1:1")
    with pytest.raises(CoregwError) as raised:
        call("http://coregw.invalid:2", ONCE, "get_payload", CID)
    assert "hunter2" not in shown(raised.value)


@rows("proxy", ["127.0.0.1:3128", "ftp://hunter2@h", "http://hunter2@h/x", "http://hunter2@h:x"])
def test_the_address_of_a_proxy_is_checked(proxy: str) -> None:
    with pytest.raises(InvalidInput, match="proxy: expected a URL") as raised:
        Client(connection=ConnectionOptions(proxy=proxy))
    assert "hunter2" not in shown(raised.value).replace(repr(proxy), "")


@both_clients
def test_a_redirect_gets_no_credentials(call: Call) -> None:
    heads: list[str] = []
    with scripted_gateway(keeping(heads)) as other:

        def script(connection: socket.socket) -> None:
            read_head(connection)
            connection.sendall(b"HTTP/1.1 302 X\r\nLocation: %b/\r\nContent-Length: 0\r\n\r\n" % other.encode())

        with scripted_gateway(script) as url, pytest.raises(CoregwError, match="302"):
            call(url, ONCE, "get_payload", CID, connection=ConnectionOptions(bearer_token="t0k3n"))
    assert heads == []
