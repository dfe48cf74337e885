"""Commands of an operator that root runs on the store of another user: what they write there stays that user's."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

import coregw
import serving
from coregw.errors import Unavailable
from coregw.upkeep import offline

OWNER = 65_534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may give files away")


def give(top: Path) -> None:
    for path in (top, *top.rglob("*")):
        os.chown(path, OWNER, OWNER, follow_symlinks=False)


def owners(top: Path) -> set[int]:
    return {path.lstat().st_uid for path in (top, *top.rglob("*"))}


def contents(top: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in top.rglob("*") if path.is_file()}


def make(tmp_path: Path, number: int = signal.SIGTERM) -> tuple[Path, str]:
    """Make a store of another user, whose gateway was ended, where only root can enter. Return a root that it holds."""
    data = tmp_path / "private" / "data"
    data.parent.mkdir(mode=0o700)
    with serving.process(data) as process, coregw.Client(process.url) as client:
        client.create_root({"b": coregw.payload_cid(b"b")})
        root = client.create_root({"a": client.put_payload(b"x" * 100_000)})
        process.end(number)
    give(data)
    return data, root


def run(*arguments: object) -> str:
    done = serving.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_reading_a_store_writes_nothing_to_it(tmp_path: Path, number: int) -> None:
    data, root = make(tmp_path, number)
    before = contents(data)
    dry = json.loads(run("gc", "--dry-run", "--grace", "0", "--json", "--data", data))
    assert dry["roots"] == 2
    if number == signal.SIGTERM:  # the clock of a store that was killed is behind
        assert root in {each["root"] for each in dry["listed_roots"]}
    assert json.loads(run("pin", "--list", "--json", "--data", data)) == {"pins": []}
    run("fsck", "--data", data)
    run("backup", tmp_path / "backup", "--data", data)
    run("copy", "--from", f"rocksdb:{data}", "--to", f"rocksdb:{tmp_path / 'copy'}")
    assert contents(data) == before
    assert owners(data) == {OWNER}
    assert owners(tmp_path / "backup") == owners(tmp_path / "copy") == {0}


def test_what_is_written_to_a_store_is_its_owners(tmp_path: Path) -> None:
    data, root = make(tmp_path)
    pinned = json.loads(run("pin", root, "--json", "--data", data))
    assert pinned["root"] == root
    assert json.loads(run("gc", "--grace", "0", "--json", "--data", data))["roots_removed"] == 1
    assert owners(data) == {OWNER}
    run("fsck", "--repair", "--data", data)
    assert owners(data) == {OWNER}
    run("copy", "--from", f"rocksdb:{data}", "--to", f"rocksdb:{tmp_path / 'other'}")
    give(tmp_path / "other")
    run("copy", "--from", f"rocksdb:{data}", "--to", f"rocksdb:{tmp_path / 'other'}")
    assert owners(tmp_path / "other") == {OWNER}
    (tmp_path / "arcs").write_text(json.dumps(["x", coregw.payload_cid(b"x")]) + "\n")
    run("build", tmp_path / "arcs", "--data", data)
    assert owners(data) == {OWNER}
    assert root in run("pin", "--list", "--data", data)


def test_a_store_is_restored_for_the_user_of_the_folder(tmp_path: Path) -> None:
    data, _ = make(tmp_path)
    run("backup", tmp_path / "backup", "--data", data)
    (there := data.parent / "there").mkdir()
    os.chown(there, OWNER, OWNER)
    os.chown(data.parent, OWNER, OWNER)
    for place in (there, data.parent / "new", data.parent / "further" / "below"):
        run("restore", tmp_path / "backup", "--data", place)
        assert owners(place) == {OWNER}
    run("restore", tmp_path / "backup", "--data", tmp_path / "own")
    assert owners(tmp_path / "own") == {0}


def test_a_command_that_cannot_act_as_the_owner_says_which_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data := tmp_path / "private" / "coregw").mkdir(parents=True)
    os.chown(data, OWNER, OWNER)

    def refuse(_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setegid", refuse)
    monkeypatch.setattr("sys.argv", ["coregw", "gc", "--data", str(data)])
    owner = os.geteuid()
    for private, works in (
        (tmp_path, rf"systemd-run .*DynamicUser=yes -p User=private .* coregw gc --data {data}"),
        (tmp_path / "other", rf"sudo -u \S+ coregw gc --data {data}"),
    ):
        monkeypatch.setattr(offline, "_PRIVATE", private)
        with pytest.raises(Unavailable, match=works), offline.as_owner(data):
            pass
    assert os.geteuid() == owner
