"""``coregw bench``: its figures, its keys, its gateway, and its forms of output. What is fast is not asserted."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from coregw import payload_cid
from coregw.bench import percentiles, service_figures
from coregw.client import AsyncClient, Client
from coregw.errors import RootNotFound

Run = Callable[..., Result]

CORE = {
    "build a map",
    "hashlib.sha256 of 100 bytes",
    "prove a key",
    "verify a key",
    "verify proofs, all cores",
    "prove 3 keys at once",
    "verify 3 keys at once",
}
HTTP = {"resolve one key after the other", "resolve 3 keys at once", "resolve in 64 tasks"}
QUICK = ("--seconds", "0.01")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("docs/readme\ndocs/licence\n\nsrc/main\ndocs/readme\n", "utf-8")
    return path


def test_a_gateway_that_runs_is_asked_and_gets_the_map(run: Run, keys: Path, gateway: str) -> None:
    done = run("bench", keys, "--gateway", gateway, "--json", *QUICK)
    report = json.loads(done.stdout)
    assert {each["name"] for each in report["figures"]} == CORE | HTTP
    assert all(each["rate"] > 0 for each in report["figures"])
    assert report["keys"] == 3
    assert next(each["processes"] for each in report["scaling"]) == 1
    assert report["scaling"][-1]["processes"] == report["machine"]["cores"]
    verify = next(each for each in report["figures"] if each["name"] == "verify a key")
    assert "50" in verify["latency_us"]  # how many more depends on the calls in so short a time
    with Client(gateway) as client:  # the map is that of the keys in the file
        assert [*client.resolve_many(report["root"], ["docs/readme", "src/main"])]


def test_the_picture_is_the_table_and_needs_no_network(run: Run, keys: Path, tmp_path: Path) -> None:
    done = run("bench", keys, "--no-http", "--picture", tmp_path / "bench.svg", *QUICK)
    drawn = (tmp_path / "bench.svg").read_text("utf-8")
    assert "verify a key" in done.stdout
    assert "Over HTTP" not in done.stdout
    assert "verify&#160;a&#160;key" in drawn
    assert "font-face" not in drawn
    assert {*re.findall(r"https?://[^\s\"]+", drawn)} <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


def test_figures_are_printed_even_if_the_picture_cannot_be_written(run: Run, keys: Path, tmp_path: Path) -> None:
    done = run("bench", keys, "--no-http", "--picture", tmp_path / "missing" / "bench.svg", *QUICK)
    assert done.exit_code == 1
    assert "missing/bench.svg': No such file" in done.stderr
    assert "verify a key" in done.stdout


def test_a_gateway_of_its_own_leaves_nothing_behind(
    coregw: Callable[..., subprocess.CompletedProcess[bytes]], gateway: str
) -> None:
    before = {*Path("/tmp").glob("coregw-bench-*")}  # noqa: S108 - the default of tempfile
    done = coregw("bench", "--count", "100", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["figures"]) == len(CORE | HTTP)
    with Client(gateway) as client, pytest.raises(RootNotFound):  # COREGW_GATEWAY names it, and it was left alone
        client.resolve(report["root"], "data")
    assert {*Path("/tmp").glob("coregw-bench-*")} <= before  # noqa: S108


def test_every_task_looks_something_up_however_little_time_there_is(gateway: str) -> None:
    with Client(gateway) as client:
        root = client.create_root({"a": payload_cid(b"1")})
        *_, tasks = service_figures(client, lambda: AsyncClient(gateway), root, ["a"], 0)
    assert tasks.latency_us["50"] > 0


@pytest.mark.parametrize(("content", "expected"), [("\n", "no keys"), ("a//b\n", "a//b")], ids=["none", "no path"])
def test_keys_that_are_none_are_refused(run: Run, keys: Path, content: str, expected: str) -> None:
    keys.write_text(content)
    done = run("bench", keys, "--no-http", *QUICK)
    assert done.exit_code == 1
    assert expected in done.stderr


def test_percentiles_are_those_that_the_number_of_calls_supports() -> None:
    assert percentiles([1000 * i for i in range(1, 101)]) == {"50": 51.0, "90": 91.0, "99": 100.0}
    assert percentiles([3000, 1000, 2000]) == {"50": 2.0}
