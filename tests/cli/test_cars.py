"""``coregw export`` and ``coregw import``: only verified files, and only roots on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from coregw import Map, payload_cid
from coregw.client import Client
from gateways import Reply, honest_gateway, lying_gateway, names

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def root(gateway: str) -> str:
    with Client(gateway) as client:
        arcs = {f"docs/{i}": client.put_payload(b"page %d" % i) for i in range(5)}
        return client.create_root(arcs | {"gone": payload_cid(b"not stored")})


def test_a_root_is_copied_to_another_gateway_by_a_file(coregw: Start, run: Run, root: str, tmp_path: Path) -> None:
    file = tmp_path / "a.car"
    done = coregw("export", root, file, "--payloads")
    assert (done.returncode, done.stdout) == (0, b"")
    size = f"{file.stat().st_size:,}"
    assert done.stderr.decode() == f"coregw: wrote 16 blocks, {size} bytes; 1 target without payload\n"
    with honest_gateway(tmp_path / "other") as url:
        taken = run("import", file, gateway=url)
        assert (taken.exit_code, taken.stdout) == (0, f"{root}\n")
        assert taken.stderr == f"coregw: imported 16 blocks, {size} bytes\n"
        assert run("cat", root, "docs/3", gateway=url).stdout == "page 3"


def test_an_export_reports_nested_trees_that_it_lacks(run: Run, gateway: str, root: str, tmp_path: Path) -> None:
    with Client(gateway) as client:
        outer = client.create_root({"held": root, "missing": Map({"never": payload_cid(b"stored")}).root})
    done = run("export", outer, tmp_path / "a.car", "--payloads")
    assert done.exit_code == 0
    assert done.stderr.endswith(" bytes; 1 target without tree; 1 target without payload\n")


def test_without_payloads_only_the_tree_is_exported(run: Run, root: str, tmp_path: Path) -> None:
    done = run("export", root, tmp_path / "a.car")
    assert done.exit_code == 0
    assert done.stderr.startswith("coregw: wrote 11 blocks, ")
    assert "without payload" not in done.stderr


def test_a_root_is_copied_to_another_gateway_by_a_pipe(coregw: Start, run: Run, root: str, tmp_path: Path) -> None:
    coregw("export", root, tmp_path / "a.car", "--payloads")
    piped = coregw("export", root, "-", "--payloads")
    assert (piped.returncode, piped.stdout) == (0, (tmp_path / "a.car").read_bytes())
    assert piped.stderr.startswith(b"coregw: wrote 16 blocks, ")
    with honest_gateway(tmp_path / "other") as url:
        taken = run("import", "-", gateway=url, input=piped.stdout)
        assert (taken.exit_code, taken.stdout) == (0, f"{root}\n")
        assert run("cat", root, "docs/3", gateway=url).stdout == "page 3"


def test_an_import_from_stdin_can_be_retried(run: Run, gateway: str, root: str, tmp_path: Path) -> None:
    run("export", root, tmp_path / "a.car")
    attempts: list[bytes] = []

    def busy_at_first(reply: Reply) -> Reply:
        attempts.append(reply.request)
        return reply if len(attempts) > 1 else reply.with_body(b"", 503)

    car = (tmp_path / "a.car").read_bytes()
    with lying_gateway(busy_at_first, gateway) as url:
        assert run("import", "-", gateway=url, input=car).stdout == f"{root}\n"
    assert attempts == [car, car]


def test_a_pipe_is_imported_as_stdin_is(run: Run, root: str, tmp_path: Path) -> None:
    run("export", root, tmp_path / "a.car")
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes((tmp_path / "a.car").read_bytes()))
    writing.start()
    try:
        taken = run("import", tmp_path / "pipe")
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))  # ends a wait for a reader
        writing.join()
    assert (taken.exit_code, taken.stdout) == (0, f"{root}\n")


def test_a_car_file_is_not_written_to_a_terminal(root: str, gateway: str) -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "COREGW_GATEWAY": gateway}
    command = [sys.executable, "-m", "coregw", "export", root, "-"]
    try:
        refused = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=environment, check=False)
        assert refused.returncode == 2
        assert b"stdout is a terminal" in refused.stderr
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_tampered_export_is_exit_code_3_and_leaves_no_file(run: Run, gateway: str, root: str, tmp_path: Path) -> None:
    with lying_gateway(lambda reply: reply.with_body(reply.body[:-1]), gateway) as url:
        for file in (tmp_path / "a.car", "-"):
            refused = run("export", root, file, gateway=url)
            assert (refused.exit_code, refused.stdout) == (3, "")
            assert refused.stderr.startswith("coregw: not proven: export ")
    assert names(tmp_path) == []


def test_a_failure_is_one_line_and_exit_code_1(run: Run, root: str, tmp_path: Path) -> None:
    (tmp_path / "bad.car").write_bytes(b"no CAR at all")
    for arguments, words in [
        (("import", tmp_path / "bad.car"), "the header"),
        (("import", tmp_path / "nothing.car"), "No such file"),
        (("export", Map({"not": payload_cid(b"held")}).root, tmp_path / "a.car"), "root_not_found"),
        (("export", root, tmp_path / "bad.car"), "exists already"),
        (("export", root, tmp_path / "none" / "a.car"), f"{str(tmp_path / 'none' / 'a.car')!r}: No such file"),
        (("import", "-"), "-: the header"),
    ]:
        refused = run(*arguments)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert names(tmp_path) == ["bad.car"]
