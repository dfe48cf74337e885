"""``coregw serve`` from its first line to its end."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from coregw.client import Client
from coregw.gateway.limits.machine import least_bytes
from coregw.gateway.settings import Settings

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]


def test_serve_shows_its_settings_as_a_configuration_file(run: Run, tmp_path: Path) -> None:
    config, secret = tmp_path / "coregw.toml", "postgresql://me:pa55word@db/coregw"
    config.write_text('memory = "8GiB"')
    command = ("serve", "--config", config, "--port", "7", "--set", f"store={secret}", "--settings")
    shown = run(*command, env={"COREGW_ACCESS_LOG": "true"}).stdout
    given = {"memory": "8GiB", "port": 7, "store": "postgresql://me:***@db/coregw", "access_log": True}
    assert tomllib.loads(shown) == given
    assert f"# {config}" in shown
    config.write_text(re.sub(r"(?m)^# (?=[a-z_]+ = )", "", shown))
    assert tomllib.loads(run("serve", "--config", config, "--settings").stdout) == tomllib.loads(config.read_text())


def test_settings_are_followed_by_the_limits_that_are_derived_from_them(run: Run) -> None:
    command = ("serve", "--set", "memory=1GiB", "--set", "connections=50", "--settings")
    shown = run(*command).stdout
    assert tomllib.loads(shown) == {"memory": "1GiB", "connections": 50}
    limits = dict(re.findall(r"(?m)^# ([a-z_]+): (\S+)$", shown))
    assert (limits["connections"], limits["backlog"], limits["json_body_bytes"]) == ("50", "64", "1MiB")
    assert re.fullmatch(r"[0-9]{2,3}MiB", limits["cache_bytes"])
    objects = json.loads(run(*command, "--json").stdout)
    assert (objects["memory"]["value"], objects["memory"]["origin"]) == ("1GiB", "option")
    assert objects.keys() == {*Settings.__struct_fields__}


def test_a_gateway_starts_in_the_memory_that_a_process_may_use(tmp_path: Path) -> None:
    started = _start_within(2 << 20, "--data", tmp_path, "--port", "0")
    assert started.stdout is not None
    line = started.stdout.readline()
    started.terminate()
    log = started.communicate(timeout=60)[1]
    assert line.startswith("coregw: listening on "), log
    assert started.returncode == 0, log


def test_too_little_memory_is_one_line_with_the_least(tmp_path: Path) -> None:
    least = -(-least_bytes(Settings()) >> 20)
    refused = _start_within(600 << 10, "--data", tmp_path, "--port", "0")
    _, log = refused.communicate(timeout=60)
    assert refused.returncode == 1
    # Lines of the log may follow, since a thread writes them.
    needs = f"a gateway needs at least {least}MiB for 4096 connections"
    assert any(line.endswith(needs) for line in log.splitlines()), log
    chosen = _start_within(2 << 20, "--data", tmp_path, "--set", "memory=100MiB")
    _, log = chosen.communicate(timeout=60)
    assert chosen.returncode == 1
    expected = f"coregw: setting memory is 100MiB, expected at least {least}MiB for"
    assert any(line.startswith(expected) for line in log.splitlines()), log


def _start_within(kib: int, *options: object) -> subprocess.Popen[str]:
    """Start a gateway that may have this much address space."""
    serve = [sys.executable, "-m", "coregw", "serve", *options]
    return subprocess.Popen(
        ["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *serve],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("COREGW_")},
        text=True,
    )


def test_an_option_of_a_setting_that_is_gone_is_refused_with_what_there_is_in_its_place(run: Run) -> None:
    refused = run("serve", "--workers", "2", "--settings")
    assert refused.exit_code == 2
    assert "No such option '--workers'; one process uses all cores now." in refused.stderr
    assert "one process" not in run("serve", "--wrkers", "2", "--settings").stderr
    assert "one process" not in run("gc", "--workers", "2").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_keeps_its_data_and_stops_with_exit_code_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    roots = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "coregw", "serve", "--data", tmp_path / "data", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 60)[0], "serve printed no address"
            line = process.stdout.readline().decode()
            found = re.fullmatch(r"coregw: listening on (http://127\.0\.0\.1:\d+)\n", line)
            assert found, line
            with Client(found[1]) as client:
                if not roots:
                    roots.append(client.create_root({"a": client.put_payload(b"kept")}))
                assert client.get_payload(client.resolve(roots[0], "a")) == b"kept"
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert b"Traceback" not in out + err
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


def test_a_port_in_use_is_one_line_and_exit_code_1(coregw: Start, gateway: str, tmp_path: Path) -> None:
    failed = coregw("serve", "--data", tmp_path / "data", "--port", gateway.rsplit(":", 1)[1])
    assert failed.returncode == 1
    assert b"Traceback" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith(b"coregw: ")
