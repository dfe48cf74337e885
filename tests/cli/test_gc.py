"""``coregw gc`` and ``coregw pin``, on a running gateway and without one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from coregw.errors import RootNotFound, StorageFull

A, B = coregw.payload_cid(b"a"), coregw.payload_cid(b"b")
ARCS = {f"folder/{number:04}": A for number in range(300)}
SECONDS = 60


def result(*arguments: object) -> dict[str, object]:
    """The result that a command prints as JSON."""
    done = serving.run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    parsed: dict[str, object] = json.loads(done.stdout)
    return parsed


def held(client: coregw.Client, root: str) -> bool:
    """Whether a gateway holds a map."""
    try:
        client.resolve(root, "folder/0000")
    except RootNotFound:
        return False
    return True


def test_garbage_is_collected_from_a_running_gateway(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        serving.process(data, gc_grace_seconds=1000) as process,
        coregw.Client(process.url) as client,
    ):
        pinned = client.create_root(ARCS)
        garbage = client.create_root({**ARCS, "other": B})
        payload = client.put_payload(b"unbound")
        assert result("pin", pinned, "--data", data, "--name", "mine", "--expires", "1d")["root"] == pinned
        assert result("gc", "--data", data)["roots_removed"] == 0
        assert result("gc", "--data", data, "--grace", "0", "--dry-run")["roots_removed"] == 1
        assert held(client, garbage)
        collected = result("gc", "--data", data, "--grace", "0")
        assert (collected["roots"], collected["roots_removed"], collected["payloads_removed"]) == (2, 1, 1)
        assert not held(client, garbage)
        assert held(client, pinned)
        assert client.create_root({**ARCS, "other": B}) == garbage
        assert held(client, garbage)
        assert client.put_payload(b"unbound") == payload
        assert client.get_payload(payload) == b"unbound"


def test_garbage_is_collected_and_roots_are_pinned_without_a_gateway(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving.process(data) as process, coregw.Client(process.url) as client:
        first, second = client.create_root(ARCS), client.create_root({**ARCS, "other": B})
    assert result("pin", first, "--data", data)["name"] == first
    assert serving.run("pin", "--list", "--data", data).stdout == f"{first}  {first}\n"
    shown = serving.run("gc", "--data", data, "--grace", "0", "--dry-run")
    assert "checking pages" in shown.stderr
    assert "removing" not in shown.stderr
    assert re.search(r"^roots that would be removed +1$", shown.stdout, re.MULTILINE)
    shown = serving.run("gc", "--data", data, "--grace", "0")
    assert shown.returncode == 0
    assert "roots removed" in shown.stdout
    assert "removing pages" in shown.stderr
    assert serving.run("gc", "--data", data, "-q").stderr == ""
    assert result("pin", "--remove", first, "--data", data)["root"] == first
    assert result("gc", "--data", data, "--grace", "0")["roots_removed"] == 1
    refused = serving.run("pin", second, "--data", data)
    assert (refused.returncode, refused.stderr.strip()) == (
        1,
        f"coregw: the store does not hold the root {second}; nothing was pinned",
    )
    assert serving.run("gc", "--data", tmp_path / "nothing").returncode == 1
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("is_served", [True, False])
def test_roots_of_trusted_names_stay_unless_they_are_dropped(tmp_path: Path, is_served: bool) -> None:
    data, trust = tmp_path / "data", {"COREGW_TRUST": str(tmp_path / "trust.json")}
    with ExitStack() as stack:
        process = stack.enter_context(serving.process(data))
        with coregw.Client(process.url) as client:
            trusted, other = client.create_root(ARCS), client.create_root({**ARCS, "other": B})
        coregw.TrustStore(trust["COREGW_TRUST"]).trust("mine", trusted)
        if not is_served:
            stack.close()

        def collect(*options: str) -> subprocess.CompletedProcess[str]:
            done = serving.run("gc", "--data", data, "--grace", "0", *options, environ=trust)
            assert done.returncode == 0, done.stderr
            return done

        dry = collect("--dry-run")
        assert f"would remove {other}, " in dry.stdout
        assert trusted not in dry.stdout
        assert json.loads(collect("--json").stdout)["roots_removed"] == 1
        assert json.loads(collect("--json", "--dry-run", "--drop-trusted").stdout)["listed_roots"][0]["root"] == trusted
        assert json.loads(collect("--json", "--drop-trusted").stdout)["roots_removed"] == 1
        Path(trust["COREGW_TRUST"]).write_text("?")
        assert serving.run("gc", "--data", data, environ=trust).returncode == 1


def test_a_terminal_is_asked_before_young_roots_are_removed(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process, coregw.Client(process.url) as client:
        root = client.create_root(ARCS)
    command = [sys.executable, "-m", "coregw", "gc", "--data", str(tmp_path), "--grace", "0"]

    def answer(text: bytes, *options: str) -> tuple[int, bytes]:
        ours, theirs = os.openpty()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            os.write(ours, text)
            process = subprocess.Popen([*command, *options], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
            os.close(theirs)
            shown, _ = process.communicate()
            code = process.returncode
            with suppress(OSError):
                while part := terminal.read(1 << 16):
                    shown += part
        return code, shown

    code, shown = answer(b"n\n")
    assert code == 1
    assert root.encode() in shown
    assert b"1 of 1 roots that would be removed are younger than seven days. Remove them?" in shown
    code, shown = answer(b"", "--dry-run")
    assert (code, root.encode() in shown, b"Remove them?" in shown) == (0, True, False)
    code, shown = answer(b"y\n")
    assert code == 0
    assert re.search(rb"^roots removed +1$", shown, re.MULTILINE)
    code, shown = answer(b"")
    assert (code, b"Remove them?" in shown) == (0, False)


@pytest.mark.parametrize(
    "arguments", [[], ["--list", "--remove", "x"], ["--list", "--name", "x"], [A, "--expires", "?"]]
)
def test_a_pin_command_that_means_nothing_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    assert serving.run("pin", *arguments, "--data", tmp_path).returncode == 2


def test_garbage_is_collected_on_a_schedule(tmp_path: Path) -> None:
    with (
        serving.process(tmp_path, gc_seconds=0.1, gc_grace_seconds=0) as process,
        coregw.Client(process.url) as client,
    ):
        root = client.create_root(ARCS)
        deadline = time.monotonic() + SECONDS
        while held(client, root):
            assert time.monotonic() < deadline


def test_a_store_that_has_reached_its_quota_is_read_and_collected_but_not_written(tmp_path: Path) -> None:
    with (
        serving.process(tmp_path, store_bytes="2MiB", gc_grace_seconds=1000) as process,
        coregw.Client(process.url) as client,
    ):
        kept = client.create_root(ARCS)
        assert serving.run("pin", kept, "--data", tmp_path).returncode == 0
        with pytest.raises(StorageFull, match="quota is 2,097,152"):
            for number in range(100):
                client.put_payload(number.to_bytes(4, "big") * 25_000)
        response = httpx2.post(f"{process.url}/v1/cas", content=b"one more")
        assert (response.status_code, response.json()["error"]) == (507, "storage_full")
        assert held(client, kept)
        assert result("gc", "--data", tmp_path, "--grace", "0")["payloads_removed"]
        assert client.get_payload(client.put_payload(b"one more")) == b"one more"
