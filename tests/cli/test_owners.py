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
from coregw.store.rocksdb.directory import DATABASE, MARKER
from coregw.upkeep import offline
from coregw.upkeep.repair import exclusive, fresh_directory, give_to_owner, keep_linked, put_in_place

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
    """Run a command in a process of its own: it becomes the owner of the store."""
    done = serving.run(*arguments, before=lambda: None)
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


def test_what_root_has_made_is_given_away_and_not_what_was_put_at_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, victim = tmp_path / "data", tmp_path / "victim"
    data.mkdir()
    victim.mkdir()
    give(data)
    real = Path.mkdir

    def exchanged(self: Path, mode: int = 0o777) -> None:
        real(self, mode)
        self.rename(self.with_name("aside"))
        self.symlink_to(victim)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", exchanged)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            fresh_directory(data)
    assert owners(victim) == {0}
    # A lock is not made where a link of the owner's leads.
    (data / DATABASE).mkdir()
    (data / DATABASE / "LOCK").symlink_to(tmp_path / "made")
    with pytest.raises(Unavailable, match="cannot be locked"), exclusive(data):
        pass
    assert not (tmp_path / "made").exists()


def test_a_restored_directory_is_given_away_when_all_in_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(tmp_path)
    top = tmp_path / "restoring"
    for path in (top / "a/b/file", top / "a/other", top / "file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    left: list[set[int]] = []
    real = os.fchown

    def watched(descriptor: int, user: int, group: int) -> None:
        if os.path.sameopenfile(descriptor, own):
            left.append(owners(top) - {OWNER})
        else:
            assert top.stat().st_uid == 0  # nobody else can enter
        real(descriptor, user, group)

    own = os.open(top, os.O_RDONLY)
    try:
        monkeypatch.setattr(os, "fchown", watched)
        give_to_owner(top, tmp_path)
    finally:
        os.close(own)
    assert (left, owners(top)) == ([{0}], {OWNER})


def test_a_link_at_the_name_of_the_marker_is_not_copied(tmp_path: Path) -> None:
    """As root, since who repairs a store may read what its owner may not."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    (data / DATABASE).mkdir(parents=True)
    secret.write_bytes(b"secret")
    (data / MARKER).symlink_to(secret)
    with pytest.raises(OSError, match="Too many levels"):
        keep_linked(data)
    assert {path.name for path in data.iterdir()} == {DATABASE, MARKER}
    # A repair ends before the databases are exchanged.
    new = fresh_directory(data)
    (new / DATABASE).mkdir()
    (new / DATABASE / "repaired").touch()
    with pytest.raises(OSError, match="Too many levels"):
        put_in_place(data, new)
    assert [*(data / DATABASE).iterdir()] == []
