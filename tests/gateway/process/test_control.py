"""The control socket: how a command finds the gateway of a data directory, and who else does not."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.errors import Unavailable
from coregw.gateway import control
from coregw.gateway.control import connect_to_control, control_file, listen_for_control
from coregw.store.collection import Identity

STATUS = "/admin/v1/maintenance/status"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def is_reached(data: Path) -> bool:
    connection = connect_to_control(data)
    if connection is not None:
        connection.socket.close()
    return connection is not None


@pytest.fixture(params=["linux", "darwin"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Platforms with abstract names, and without."""
    monkeypatch.setattr(control, "_HAS_ABSTRACT_NAMES", request.param == "linux")
    return str(request.param)


def test_the_gateway_of_a_directory_is_found_while_it_runs(tmp_path: Path, platform: str) -> None:
    assert not is_reached(tmp_path)
    with listen_for_control(tmp_path, None) as listener:
        assert listener.address.startswith("@" if platform == "linux" else "/")
        assert is_reached(tmp_path)
        assert [each.name for each in tmp_path.iterdir()] == [control_file(tmp_path).name]
        assert stat.S_IMODE(control_file(tmp_path).stat().st_mode) == 0o600
    assert not is_reached(tmp_path)
    assert not Path(listener.address).exists()


def test_the_gateway_of_a_store_that_was_replaced_is_not_found(tmp_path: Path) -> None:
    """A restored store may have the inode of the removed one, whose process is still running."""
    identity, marker = Identity.new(), tmp_path / "coregw-store.json"
    named = {"id": str(identity.store), "incarnation": str(identity.incarnation)}
    with listen_for_control(tmp_path, identity):
        written = json.loads(control_file(tmp_path).read_bytes())
        assert (written["store"], written["incarnation"]) == tuple(named.values())
        for content in (named, {"store": "coregw"}, None):
            marker.write_text(json.dumps(content))
            assert is_reached(tmp_path)
        for other in (
            named | {"incarnation": str(Identity.new().incarnation)},
            named | {"id": str(Identity.new().store)},
        ):
            marker.write_text(json.dumps(other))
            assert not is_reached(tmp_path)


def test_the_top_of_a_data_directory_holds_the_store_alone(tmp_path: Path) -> None:
    with serving.process(tmp_path):
        assert sorted(each.name for each in tmp_path.iterdir()) == ["coregw-store.json", "rocksdb"]
        assert is_reached(tmp_path)


def test_every_file_of_a_killed_gateway_can_be_copied(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with serving.process(one) as process:
        cid = httpx2.post(f"{process.url}/v1/cas", content=b"acknowledged").json()["cid"]
        process.end(signal.SIGKILL)
    shutil.copytree(one, two)
    assert not is_reached(one)
    assert not is_reached(two)
    with serving.process(one), serving.process(two) as copy:
        assert httpx2.get(f"{copy.url}/v1/cas/{cid}").content == b"acknowledged"
        for data in (one, two):
            with serving.control(data) as client:
                assert client.get(STATUS).json()["data"] == str(data)


@pytest.mark.parametrize("copying", [["cp", "-a"], ["cp", "-al"]], ids=["copies", "hard links"])
def test_a_copy_of_a_served_directory_does_not_reach_its_gateway(tmp_path: Path, copying: list[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    with listen_for_control(one, None):
        subprocess.run([*copying, one, two], check=True)
        assert not is_reached(two)
        assert is_reached(one)
        with listen_for_control(two, None):
            assert is_reached(two)
            assert is_reached(one)


def test_a_directory_that_was_renamed_reaches_its_gateway(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    with listen_for_control(one, None):
        one.rename(two)
        assert is_reached(two)
        one.symlink_to(two)
        assert is_reached(one)


@needs_root
def test_another_user_cannot_read_the_token_and_gets_no_answer_without_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving.process(data), serving.control(data) as client:
        data.chmod(0o755)  # the file protects itself
        for each in (tmp_path, *tmp_path.parents):
            if each.stat().st_mode & 0o005 != 0o005:
                each.chmod(0o755)
        client.headers = httpx2.Headers()
        assert serving.as_nobody(lambda: control_file(data).stat().st_size > 0) == "True"
        assert serving.as_nobody(control_file(data).read_text) == "PermissionError"
        assert serving.as_nobody(lambda: connect_to_control(data)) == "PermissionError"
        assert serving.as_nobody(lambda: client.get("/healthz").status_code) == "401"


@needs_root
def test_another_user_who_takes_the_name_of_a_killed_gateway_is_not_reached(tmp_path: Path) -> None:
    with listen_for_control(tmp_path, None) as listener:
        address = listener.address.replace("@", "\0")

    with socket.socket(socket.AF_UNIX) as squatter:

        def squat() -> str:
            squatter.bind(address)
            squatter.listen()
            return "listens"

        assert serving.as_nobody(squat) == "listens"
        assert not is_reached(tmp_path)
        connection, _ = squatter.accept()
        with connection:
            assert connection.recv(100) == b""


def test_the_name_of_a_file_that_another_process_has_taken_is_used_by_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen_for_control(tmp_path, None):
        assert is_reached(tmp_path)
        monkeypatch.setattr(control, "_listening_user", lambda *_: os.geteuid() + 1)
        assert not is_reached(tmp_path)


def test_an_operator_who_may_not_read_the_file_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with listen_for_control(tmp_path, None):
        monkeypatch.setattr(control, "_read", refuse)
        with pytest.raises(PermissionError):
            connect_to_control(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "null", '{"socket": "@x", "token": "", "device": 0, "inode": 0}', "\xff", "{" * 9000, "[" * 4096],
)
def test_a_file_that_names_no_socket_is_replaced(tmp_path: Path, content: str) -> None:
    control_file(tmp_path).write_text(content, "latin-1")
    assert not is_reached(tmp_path)
    with listen_for_control(tmp_path, None):
        assert is_reached(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"socket": "@\ud800"},
        {"socket": "@coregw-" + "a" * 300},
        {"socket": ""},
        {"socket": "/a/\0/coregw-" + "0" * 32 + ".sock"},
        {"token": "a\r\nHost: b"},
        {"token": None},
    ],
)
def test_a_file_that_no_gateway_has_written_leads_nowhere(tmp_path: Path, changed: dict[str, str | None]) -> None:
    with listen_for_control(tmp_path, None):
        record = json.loads(control_file(tmp_path).read_text())
        control_file(tmp_path).write_text(json.dumps(record | changed))
        assert not is_reached(tmp_path)


def test_what_is_no_regular_file_leads_nowhere_at_once(tmp_path: Path) -> None:
    os.mkfifo(control_file(tmp_path))
    assert not is_reached(tmp_path)
    control_file(tmp_path).unlink()
    control_file(tmp_path).mkdir()
    assert not is_reached(tmp_path)


def test_a_full_disk_keeps_no_operator_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen_for_control(tmp_path, None):
        pass
    control_file(tmp_path).write_text("x" * 1000)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with listen_for_control(tmp_path, None):
        assert is_reached(tmp_path)
        assert [each.name for each in tmp_path.iterdir()] == [control_file(tmp_path).name]
    control_file(tmp_path).unlink()
    with pytest.raises(Unavailable, match="No space left"), listen_for_control(tmp_path, None):
        pass


def test_a_gateway_that_cannot_be_managed_serves(tmp_path: Path) -> None:
    with serving.process(tmp_path):
        pass
    control_file(tmp_path).unlink()
    control_file(tmp_path).mkdir()
    with serving.process(tmp_path) as process:
        assert httpx2.get(f"{process.url}/healthz").status_code == 200
        assert process.end() == 0
        assert process.popen.stderr is not None
        assert "no command can reach this gateway: cannot create the control socket of" in process.popen.stderr.read()


def test_a_directory_with_a_long_path_has_a_socket(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 120)
    data.mkdir()
    with listen_for_control(data, None):
        assert is_reached(data)


def test_a_socket_that_cannot_be_named_is_an_error(tmp_path: Path) -> None:
    message = r"cannot create the control socket of .*/missing: No such file or directory"
    with pytest.raises(Unavailable, match=message), listen_for_control(tmp_path / "missing", None):
        pass


def test_the_directory_of_a_gateway_on_another_store_can_become_that_of_an_embedded_one(tmp_path: Path) -> None:
    with listen_for_control(tmp_path, None):
        pass
    with serving.process(tmp_path) as process:
        assert httpx2.get(f"{process.url}/healthz").status_code == 200


def test_the_socket_of_a_killed_process_has_no_name_on_linux(tmp_path: Path) -> None:
    with listen_for_control(tmp_path, None) as listener:
        name = listener.address.replace("@", "\0")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(name)
