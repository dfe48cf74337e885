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
from coregw.gateway.limits import machine

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]


def test_serve_shows_its_settings_as_a_configuration_file(run: Run, tmp_path: Path) -> None:
    config, secret = tmp_path / "coregw.toml", "postgresql://me:pa55word@db/coregw"
    config.write_text('cache_bytes = "8MiB"')
    command = ("serve", "--config", config, "--port", "7", "--set", f"store={secret}", "--settings")
    shown = run(*command, env={"COREGW_ACCESS_LOG": "yes"}).stdout
    given = {"cache_bytes": "8MiB", "port": 7, "store": "postgresql://me:***@db/coregw", "access_log": True}
    assert tomllib.loads(shown) == given
    assert f"# {config}" in shown
    config.write_text(re.sub(r"(?m)^# (?=[a-z_]+ = )", "", shown))
    assert tomllib.loads(run("serve", "--config", config, "--settings").stdout) == tomllib.loads(config.read_text())


def test_settings_show_which_defaults_were_lowered_to_fit_the_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda **_: 700 << 20)
    command = ("serve", "--set", "cache_bytes=256MiB", "--settings")
    shown = run(*command).stdout
    assert tomllib.loads(shown) == {"cache_bytes": "256MiB"}  # what was lowered is still a default
    assert re.search(r'(?m)^# change_bytes = "[0-9]{2}MiB"  # lowered to fit the memory of the process$', shown)
    objects = json.loads(run(*command, "--json").stdout)
    assert objects["buffered_bytes"]["origin"] == "lowered to fit the memory of the process"
    assert objects["buffered_bytes"]["value"] in shown
    assert (objects["cache_bytes"]["value"], objects["cache_bytes"]["origin"]) == ("256MiB", "option")


@pytest.mark.parametrize("workers", [1, 2])
def test_lowered_defaults_are_logged_once(tmp_path: Path, workers: int) -> None:
    serve = [sys.executable, "-m", "coregw", "serve", "--data", tmp_path, "--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(
        ["sh", "-c", 'ulimit -v 2097152; exec "$@"', "sh", *serve],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("COREGW_")},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    log = process.communicate(timeout=60)[1].decode()
    assert line.startswith(b"coregw: listening on "), log
    assert process.returncode == 0, log
    assert len(re.findall(r"these defaults are lower: .*\bCOREGW_CHANGE_BYTES=\d+MiB", log)) == 1
    assert "the settings allow" not in log


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
