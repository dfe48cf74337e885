"""The trust store: accepted roots by name, rollbacks, and a file that survives crashes and concurrent changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coregw import InvalidInput, Map, ProofError, TrustStore, payload_cid
from coregw.trust import MAX_HISTORY, Followed, default_path

ROOTS = [Map({"a": payload_cid(b"%d" % number)}).root for number in range(9)]


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "new" / "trust.json")


def test_a_name_stands_for_the_root_that_was_accepted_last_also_after_a_restart(store: TrustStore) -> None:
    store.trust("docs", ROOTS[0])
    store.trust("docs", ROOTS[0])  # idempotent
    store.accept("docs", ROOTS[1])
    store.accept("docs", ROOTS[1])
    again = TrustStore(store.path)
    assert again.root("docs") == ROOTS[1]
    assert [each.root for each in again.name("docs").history] == ROOTS[:2]
    assert store.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="stands for"):
        store.trust("docs", ROOTS[2])
    store.forget("docs")
    assert dict(again.names()) == {}
    for call in (store.root, store.name, store.forget):
        with pytest.raises(InvalidInput, match=r"'docs' is not a name in .*trust.json"):
            call("docs")


def test_a_rollback_to_a_replaced_root_is_refused_unless_forced(store: TrustStore) -> None:
    store.trust("docs", ROOTS[0])
    store.accept("docs", ROOTS[1])
    with pytest.raises(ProofError, match="rollback") as refused:
        store.accept("docs", ROOTS[0])
    assert refused.value.check == "rollback"
    assert store.root("docs") == ROOTS[1]
    store.accept("docs", ROOTS[0], force=True)
    assert store.root("docs") == ROOTS[0]
    assert [each.forced for each in store.name("docs").history] == [False, False, True]


def test_an_older_revision_and_another_root_for_the_same_one_are_refused(store: TrustStore) -> None:
    store.trust("docs", ROOTS[7], revision=7, follows=Followed("s", "n"))
    for root, revision, check in ((ROOTS[6], 6, "rollback"), (ROOTS[7], 6, "rollback"), (ROOTS[8], 7, "fork")):
        with pytest.raises(ProofError) as refused:
            TrustStore(store.path).accept("docs", root, revision=revision)
        assert refused.value.check == check
    store.accept("docs", ROOTS[7], revision=8)  # published again
    store.accept("docs", ROOTS[0], revision=9)
    assert [(each.root, each.revision) for each in store.name("docs").history] == [
        (ROOTS[7], 7),
        (ROOTS[7], 8),
        (ROOTS[0], 9),
    ]


def test_a_revision_that_was_replaced_by_hand_comes_back_only_as_a_newer_one(store: TrustStore) -> None:
    store.trust("docs", ROOTS[0], revision=5)
    store.accept("docs", ROOTS[1])
    store.accept("docs", ROOTS[1])
    with pytest.raises(ProofError) as refused:
        store.accept("docs", ROOTS[0], revision=5)
    assert refused.value.check == "rollback"
    assert store.root("docs") == ROOTS[1]
    store.accept("docs", ROOTS[1], revision=6)
    store.accept("docs", ROOTS[0], revision=7)
    store.trust("by-hand", ROOTS[0])
    store.accept("by-hand", ROOTS[0], revision=1)
    store.trust("other", ROOTS[0])
    store.accept("other", ROOTS[1])
    with pytest.raises(ProofError):  # whether the revision is newer than the root that was given by hand is unknown
        store.accept("other", ROOTS[0], revision=1)
    for revision in (0, -1):
        with pytest.raises(InvalidInput, match="from 1 to"):
            store.accept("other", ROOTS[1], revision=revision)
        with pytest.raises(InvalidInput, match="from 1 to"):
            store.trust("new", ROOTS[1], revision=revision)
    for revision in (0, -1, 1 << 53):
        with pytest.raises(InvalidInput, match="from 1 to"):
            store.observe("https://a", "s", "n", revision, ROOTS[1])
    assert store.root("other") == ROOTS[1]


def test_what_was_seen_is_remembered_by_source_and_changes_no_name(store: TrustStore) -> None:
    store.trust("docs", ROOTS[0])
    store.observe("https://a", "s", "n", 7, ROOTS[7])
    for revision, root, check in ((6, ROOTS[6], "rollback"), (7, ROOTS[6], "fork")):
        with pytest.raises(ProofError) as refused:
            TrustStore(store.path).observe("https://a", "s", "n", revision, root)
        assert refused.value.check == check
    store.observe("https://b", "s", "n", 1, ROOTS[1])
    store.observe("https://a", "s", "n", 8, ROOTS[8], frozen=True)
    for revision, frozen in ((9, False), (9, True), (8, False)):
        with pytest.raises(ProofError) as refused:
            store.observe("https://a", "s", "n", revision, ROOTS[8], frozen=frozen)
        assert refused.value.check == "fork"
    store.observe("https://a", "s", "n", 2, ROOTS[2], force=True)
    seen = store.seen("https://a", "s", "n")
    assert seen is not None
    assert (seen.revision, seen.root) == (2, ROOTS[2])
    assert store.root("docs") == ROOTS[0]
    store.forget("docs")
    assert store.seen("https://a", "s", "n") == seen


@pytest.mark.parametrize("name", ["", ".a", "-a", "a/b", "a b", "ä", "a" * 129, ROOTS[0], payload_cid(b"x")])
def test_a_name_that_could_be_something_else_is_refused(store: TrustStore, name: str) -> None:
    with pytest.raises(InvalidInput, match="name "):
        store.trust(name, ROOTS[0])
    assert not store.path.exists()


def test_only_roots_are_trusted(store: TrustStore) -> None:
    with pytest.raises(InvalidInput, match="payload"):
        store.trust("docs", payload_cid(b"x"))
    with pytest.raises(InvalidInput, match="CID"):
        store.trust("docs", "nonsense")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"version":2}',
        b'{"version":1,"more":1}',
        b'{"version":1,"names":{"a":{"history":[]}}}',
        b'{"version":1,"names":{"a":{"history":[{"root":"x","accepted_at":"2024-01-01T00:00:00Z"}]}}}',
        b" " * ((16 << 20) + 1),
    ],
)
def test_a_malformed_file_is_refused_and_kept(store: TrustStore, content: bytes) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    for call in (lambda: store.root("a"), lambda: store.trust("docs", ROOTS[0])):
        with pytest.raises(InvalidInput, match=r"trust\.json"):
            call()
    assert store.path.read_bytes() == content


def test_the_history_is_bounded(store: TrustStore) -> None:
    store.trust("docs", ROOTS[0])
    document = json.loads(store.path.read_text())
    document["names"]["docs"]["history"] *= MAX_HISTORY
    store.path.write_text(json.dumps(document))
    store.accept("docs", ROOTS[1])
    history = store.name("docs").history
    assert (len(history), history[-1].root) == (MAX_HISTORY, ROOTS[1])


def test_the_file_is_that_of_the_variable_or_of_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "mine"))
    assert default_path() == tmp_path / "mine"
    monkeypatch.setenv("COREGW_TRUST", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert TrustStore().path == tmp_path / "coregw" / "trust.json"


def test_a_symbolic_link_to_the_file_stays_one(store: TrustStore, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(store.path)
    TrustStore(link).trust("docs", ROOTS[0])
    assert link.is_symlink()
    assert store.root("docs") == ROOTS[0]


WRITER = """
import sys
from coregw import Map, TrustStore, payload_cid
store = TrustStore(sys.argv[1])
for number in range(int(sys.argv[3])):
    store.observe(sys.argv[2], "s", f"n{number}", 1, Map({}).root)
    print(number, flush=True)
"""


def write(store: TrustStore, source: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(store.path), source, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_concurrent_changes_of_several_processes_are_all_kept(store: TrustStore) -> None:
    writers = [write(store, f"https://{number}", 20) for number in range(3)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    for number in range(3):
        assert all(store.seen(f"https://{number}", "s", f"n{each}") for each in range(20))


def test_what_was_acknowledged_survives_a_kill(store: TrustStore) -> None:
    for kill_after in (1, 5, 9):
        writer = write(store, f"https://{kill_after}", 100_000)
        assert writer.stdout is not None
        for _ in range(kill_after):
            last = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest, _ = writer.communicate()
        lines = rest.splitlines()
        last = max([last, *map(int, lines)])
        assert all(store.seen(f"https://{kill_after}", "s", f"n{each}") for each in range(last + 1))
    store.trust("docs", ROOTS[0])  # no lock was left behind
    assert store.root("docs") == ROOTS[0]
