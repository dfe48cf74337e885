"""``coregw backup`` and ``coregw restore``, on a running gateway and without one."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import httpx2

import coregw
import serving

ROUTE = "/admin/v1/maintenance/backup"
ARCS = {f"{number % 10}/{number}": coregw.payload_cid(b"%d" % number) for number in range(500)}


def result(*arguments: object) -> list[dict[str, object]]:
    """The results that a command prints as JSON."""
    done = serving.run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def fill(url: str) -> tuple[str, str]:
    """Store a root and a payload."""
    with coregw.Client(url) as client:
        return client.create_root(ARCS), client.put_payload(bytes(3_000_000))


def test_a_running_gateway_is_backed_up_and_restored(tmp_path: Path) -> None:
    data, destination, copy = tmp_path / "data", tmp_path / "backup", tmp_path / "copy"
    with serving.process(data) as process:
        root, payload = fill(process.url)
        first, verified = result("backup", destination, "--data", data, "--verify")
        (second,) = result("backup", destination, "--data", data)
    assert (first["generation"], first["copied_bytes"]) == (1, first["size_bytes"])
    assert (second["generation"], second["copied_files"]) == (2, 0)
    assert (verified["generations"], verified["roots"]) == (1, 1)
    (restored,) = result("restore", destination, "--data", copy)
    assert (restored["generation"], restored["roots"]) == (2, 1)
    with serving.process(copy) as process, coregw.Client(process.url) as client:
        assert {"/".join(leaf.segments): leaf.target for leaf in client.entries(root)} == ARCS
        assert client.get_payload(payload) == bytes(3_000_000)


def test_a_store_that_no_gateway_has_open_is_backed_up(tmp_path: Path) -> None:
    data, destination = tmp_path / "data", tmp_path / "backup"
    with serving.process(data) as process:
        fill(process.url)
    (first,) = result("backup", destination, "--data", data)
    (verified,) = result("backup", destination, "--verify-only")
    assert first["copied_bytes"] == verified["size_bytes"] == first["size_bytes"]
    shown = serving.run("backup", destination, "--data", data, "--keep", 1)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].split() == ["generation", "2"]
    assert "kept generations  1" in shown.stdout


def test_a_directory_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    done = serving.run("backup", tmp_path / "backup", "--data", tmp_path / "missing")
    assert done.returncode == 1
    assert done.stderr == f"coregw: {tmp_path}/missing is not a coregw store: it has no coregw-store.json\n"
    assert list(tmp_path.iterdir()) == []


def test_a_full_destination_is_an_error_that_says_so_and_leaves_the_earlier_backup(tmp_path: Path) -> None:
    data, destination = tmp_path / "data", tmp_path / "backup"
    with serving.process(data):
        pass
    result("backup", destination, "--data", data)
    with serving.process(data) as process:
        fill(process.url)
        with coregw.Client(process.url) as client:
            client.put_payload(b"".join(b"%020d" % number for number in range(300_000)))

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))

    done = serving.run("backup", destination, "--data", data, before=limit_files)
    assert done.returncode == 1
    assert f"no space left in {destination}; the backups that it had are unchanged" in done.stderr
    (verified,) = result("backup", destination, "--verify-only")
    assert verified["generations"] == 1
    assert sum(file.stat().st_size for file in (destination / "files").iterdir()) == verified["size_bytes"]
    (second,) = result("backup", destination, "--data", data)
    assert second["generation"] == 2


def test_failures_name_the_place(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear").touch()
    data = tmp_path / "data"
    with serving.process(data):
        done = serving.run("backup", tmp_path / "letters", "--data", data)
        assert (done.returncode, f"{tmp_path}/letters is not a backup" in done.stderr) == (1, True)
        done = serving.run("backup", data / "backup", "--data", data)
        assert (done.returncode, "which a backup must outlive" in done.stderr) == (1, True)
    done = serving.run("restore", tmp_path / "letters", "--data", tmp_path / "copy")
    assert (done.returncode, f"{tmp_path}/letters is not a backup" in done.stderr) == (1, True)
    assert serving.run("backup", tmp_path / "x", "--keep", 0).returncode == 2


def test_backups_are_requested_by_the_control_socket_alone(tmp_path: Path) -> None:
    data, body = tmp_path / "data", {"destination": str(tmp_path / "backup")}
    with (
        serving.process(data, serving.ADMIN, management_address="127.0.0.1:0") as process,
        serving.control(data) as control,
    ):
        tcp = control.get("/admin/v1/maintenance/status").json()["addresses"][0]
        headers = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
        assert httpx2.post(tcp + ROUTE, json=body, headers=headers).status_code == 400
        assert httpx2.post(process.url + ROUTE, json=body, headers=headers).status_code == 404
        for malformed in ({}, {"destination": "relative"}, body | {"keep": 0}, body | {"keeps": 1}):
            assert control.post(ROUTE, json=malformed).status_code == 400
        assert not (tmp_path / "backup").exists()
        lines = [json.loads(line) for line in control.post(ROUTE, json=body).text.splitlines()]
    assert lines[-1]["result"]["generation"] == 1
