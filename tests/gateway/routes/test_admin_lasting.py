"""Durability and races of published roots, and that publishing changes nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

import serving
from admin_support import Scope

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]
Cid = Callable[..., str]


def test_records_survive_restart_and_sigkill(tmp_path: Path, expect_refusal: Refusal) -> None:
    shown: list[dict[str, Any]] = []
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        running = serving.start(tmp_path, serving.ADMIN)
        scope = Scope(running.url, "s")
        root = httpx2.post(f"{running.url}/v1/roots", content=b'{"arcs": {}}').json()["root"]
        assert scope.history("open").json().get("records", []) == shown
        shown.append(scope.publish("open", root, expected_revision=len(shown)).json())
        if len(shown) == 1:
            scope.publish("shut", root)
            frozen = scope.freeze("shut").json()
        expect_refusal(scope.publish("shut", root), 409, "record_frozen")
        assert scope.freeze("shut").json() == scope.get("shut").json() == frozen
        assert scope.listing().json()["records"] == [shown[-1], frozen]
        scope.close()
        running.end(number)
        running.popen.communicate()
    assert [record["revision"] for record in shown] == [1, 2, 3]


def test_sigkill_during_a_race_of_publishers_loses_nothing_acknowledged(tmp_path: Path) -> None:
    running = serving.start(tmp_path, serving.ADMIN)
    root = httpx2.post(f"{running.url}/v1/roots", content=b'{"arcs": {}}').json()["root"]
    enough = threading.Semaphore(0)

    def publish(_: int) -> list[dict[str, Any]]:
        """What was acknowledged until the gateway was gone."""
        own = Scope(running.url, "s")
        acknowledged = []
        try:
            while True:
                acknowledged.append(own.publish("n", root).json())
                enough.release()
        except httpx2.TransportError:
            return acknowledged
        finally:
            own.close()

    with ThreadPoolExecutor(4) as pool:
        publishers = [pool.submit(publish, writer) for writer in range(4)]
        for _ in range(100):
            assert enough.acquire(timeout=60)
        running.end(signal.SIGKILL)
        acknowledged = [record for each in publishers for record in each.result()]
    running.popen.communicate()
    with serving.process(tmp_path, serving.ADMIN) as again:
        scope = Scope(again.url, "s")
        kept = scope.history("n").json()["records"]
        scope.close()
    assert [record["revision"] for record in kept] == list(range(1, len(kept) + 1))
    assert all(kept[record["revision"] - 1] == record for record in acknowledged)
    assert len({record["revision"] for record in acknowledged}) == len(acknowledged) >= 100


def test_exactly_one_concurrent_publisher_wins_each_revision(scope: Scope, roots: list[str], gateway: str) -> None:
    """Each publisher tries to publish the revision after the newest that it saw, until it has succeeded five times."""
    writers, wins = 6, 5
    start = threading.Barrier(writers)

    def publish(writer: int) -> list[dict[str, Any]]:
        own = Scope(gateway, scope.path.split("/")[4])
        won: list[dict[str, Any]] = []
        newest = 0
        start.wait()
        while len(won) < wins:
            answer = own.publish("n", roots[writer % 3], expected_revision=newest)
            if answer.status_code == 200:
                won.append(answer.json())
                newest = won[-1]["revision"]
            else:
                assert answer.json()["error"] == "revision_mismatch"
                newest = answer.json()["details"]["revision"]
        own.close()
        return won

    with ThreadPoolExecutor(writers) as pool:
        won = sorted((record for each in pool.map(publish, range(writers)) for record in each), key=_revision)
    assert [record["revision"] for record in won] == list(range(1, writers * wins + 1))
    assert [record["previous_root"] for record in won] == [None, *(record["root"] for record in won[:-1])]
    assert scope.history("n").json()["records"] == won


def _revision(record: dict[str, Any]) -> int:
    return int(record["revision"])


def test_nothing_is_published_after_a_freeze_in_a_race(scope: Scope, roots: list[str], gateway: str) -> None:
    scope.publish("n", roots[0])
    start = threading.Barrier(5)

    def publish(writer: int) -> int:
        """The last revision that this writer got before it heard that the record is frozen."""
        own = Scope(gateway, scope.path.split("/")[4])
        newest = 1
        start.wait()
        while (answer := own.publish("n", roots[writer % 3])).status_code == 200:
            newest = answer.json()["revision"]
        assert answer.json()["error"] == "record_frozen"
        own.close()
        return newest

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(publish, writer) for writer in range(4)]
        start.wait()
        while scope.get("n").json()["revision"] < 10:
            pass
        frozen = scope.freeze("n").json()
        last = max(writer.result() for writer in writers)
    assert last == frozen["revision"]
    assert scope.get("n").json() == frozen
    records = scope.history("n").json()["records"]
    assert [record["revision"] for record in records] == list(range(1, last + 1))
    assert [record["frozen"] for record in records] == [False] * (last - 1) + [True]


def test_publishing_changes_only_the_record(
    scope: Scope, ask: Ask, client: httpx2.Client, cid_of: Cid, tree: dict[str, str]
) -> None:
    """Trees, responses and other records are unchanged, byte for byte."""
    cid = client.post("/v1/cas", content=b"a payload").json()["cid"]
    other = ask("/v1/roots", {"arcs": {"docs": cid_of(b"other")}}).json()["root"]
    scope.publish("other", tree["nested"])

    def answers() -> list[bytes]:
        return [
            *(
                ask("/v1/resolve", {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["docs"]}).content
                for root in (tree["root"], tree["nested"], other)
            ),
            ask("/v1/scan", {"profile": "core.scan/v0alpha1", "root": tree["root"], "prefix": []}).content,
            client.get(f"/v1/cas/{cid}").content,
            client.get(f"/v1/cas/{tree['root']}").content,
            scope.get("other").content,
            scope.history("other").content,
        ]

    before = answers()
    for root in (tree["root"], other, tree["root"], tree["list"]):
        assert scope.publish("main", root).status_code == 200
    assert answers() == before
    scope.freeze("main")
    assert answers() == before
    change = {"deltas": [{"kind": "map", "changes": [{"path": "new", "after": {"target": cid}}]}]}
    assert ask(f"/v1/roots/{tree['root']}/mutations", change).status_code == 201  # the name is frozen, not the tree
    assert scope.get("main").json()["root"] == tree["list"]
