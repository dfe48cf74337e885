"""A mixed load of writes: threads that ask a gateway for a bit of everything, and note in a ledger what they asked."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import coregw
from car_files import TYPE, car_of_payloads
from chaos.ledger import AUTHORIZATION, SCOPE, Entry, Ledger, cid_of

_SECONDS = 60
_PAUSE_SECONDS = 0.05
"""Between attempts to reach a gateway that does not answer."""

_KINDS = {"payload": 30, "large_payload": 5, "batch": 8, "root": 14, "mutation": 24, "publication": 14}
_SIZES = (0, 1, 100, 1000, 4096, 20_000, 65_536)
_ARCS = (1, 3, 30, 300, 1500)


class Load:
    """Asks gateways of one store for writes, from several threads.

    Args:
        ledger: Where the requests and answers are noted.
        seed: Chooses what is asked for; the interleaving of the threads is not reproducible.
        threads: How many.
    """

    def __init__(self, ledger: Ledger, seed: int, threads: int = 4) -> None:
        self.failures: Counter[str] = Counter()
        """Statuses and exceptions of requests that were not acknowledged."""
        self._ledger = ledger
        self._seed = seed
        self._threads = threads
        self._stopping = threading.Event()

    @contextmanager
    def on(self, *urls: str) -> Iterator[None]:
        """Keep asking while the context is active. A gateway that goes away is an expected failure.

        With several gateways of one store, each thread asks one of them until that fails, and then the next.
        """
        self._stopping.clear()
        self._seed += 1
        sources = [random.Random(f"{self._seed} {number}") for number in range(self._threads)]
        threads = [
            threading.Thread(target=self._run, args=(itertools.cycle(urls[number:] + urls[:number]), rng), daemon=True)
            for number, rng in zip(itertools.cycle(range(len(urls))), sources, strict=False)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(2 * _SECONDS)

    def _run(self, urls: Iterator[str], rng: random.Random) -> None:
        connection = _connection(next(urls))
        while not self._stopping.is_set():
            (kind,) = rng.choices(list(_KINDS), list(_KINDS.values()))
            try:
                getattr(self, f"_{kind}")(rng, connection)
            except (OSError, http.client.HTTPException) as error:
                self.failures[type(error).__name__] += 1
                connection.close()
                connection = _connection(next(urls))
                time.sleep(_PAUSE_SECONDS)
        connection.close()

    def _ask(
        self, connection: http.client.HTTPConnection, path: str, body: object, headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Send a POST request. Returns the JSON of a success, None for any other answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, content, headers or {})
        answer = connection.getresponse()
        received = answer.read()
        if answer.status < 300:
            return json.loads(received)
        self.failures[str(answer.status)] += 1
        if answer.status < 500:  # every request is valid, and what it refers to was acknowledged
            self._say(f"POST {path}: {answer.status} {received[:200]!r}")
        return None

    def _say(self, text: str) -> None:
        with self._ledger.lock:
            self._ledger.false.append(text)

    # --- the kinds of requests ----------------------------------------------------------------------------------------

    def _payload(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        self._put(connection, rng.randbytes(rng.choice(_SIZES) + rng.randrange(3)))

    def _large_payload(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        self._put(connection, rng.randbytes(rng.randrange(1 << 20, 4 << 20)))

    def _put(self, connection: http.client.HTTPConnection, data: bytes) -> None:
        cid = cid_of(data)
        with self._ledger.lock:
            entry = self._ledger.payloads.setdefault(cid, Entry(len(data)))
        if (found := self._ask(connection, "/v1/cas", data)) is not None:
            self._ledger.acknowledge([entry])
            if found["cid"] != cid:
                self._say(f"payload {cid} was acknowledged as {found['cid']}")

    def _batch(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        datas = [rng.randbytes(rng.randrange(10, 5000)) for _ in range(rng.randrange(2, 40))]
        with self._ledger.lock:
            entries = [self._ledger.payloads.setdefault(cid_of(data), Entry(len(data))) for data in datas]
        if self._ask(connection, "/v1/car", car_of_payloads(*datas), TYPE) is not None:
            self._ledger.acknowledge(entries)

    def _root(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        start = rng.randrange(1 << 40)
        arcs = {
            f"{number % 7}/{start + number}": cid_of(b"%d" % (start + number)) for number in range(rng.choice(_ARCS))
        }
        entry = self._expect(arcs)
        if (found := self._ask(connection, "/v1/roots", {"arcs": arcs})) is not None:
            self._ledger.acknowledge([entry])
            if self._ledger.roots.get(found["root"]) is not entry:
                self._say(f"a map of {len(arcs)} arcs was acknowledged as {found['root']}")

    def _mutation(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        base = self._held_root(rng)
        if base is None:
            return
        arcs = dict(self._ledger.roots[base].value)
        changes: list[dict[str, object]] = []
        for path in rng.sample(sorted(arcs), min(len(arcs) - 1, rng.randrange(8))):
            change: dict[str, object] = {"path": path, "before": {"target": arcs.pop(path)}}
            if rng.random() < 0.8:
                arcs[path] = cid_of(rng.randbytes(8))
                change["after"] = {"target": arcs[path]}
            changes.append(change)
        for _ in range(rng.randrange(1, 8)):
            path = f"new/{rng.randrange(1 << 60)}"
            arcs[path] = cid_of(rng.randbytes(8))
            changes.append({"path": path, "after": {"target": arcs[path]}})
        entry = self._expect(arcs)
        body = {"deltas": [{"kind": "map", "changes": changes}]}
        if (found := self._ask(connection, f"/v1/roots/{base}/mutations", body)) is not None:
            self._ledger.acknowledge([entry])
            if self._ledger.roots.get(found["new_root"]) is not entry:
                self._say(f"a mutation of {base} was acknowledged as {found['new_root']}")

    def _publication(self, rng: random.Random, connection: http.client.HTTPConnection) -> None:
        root = self._held_root(rng)
        if root is None:
            return
        name = f"name-{rng.randrange(6)}"
        entry: Entry[tuple[int | None, str]] = Entry((None, root))
        with self._ledger.lock:
            self._ledger.published.setdefault(name, []).append(entry)
        if (found := self._ask(connection, SCOPE, {"name": name, "root": root}, AUTHORIZATION)) is not None:
            entry.value = (found["revision"], root)
            self._ledger.acknowledge([entry])

    def _expect(self, arcs: dict[str, str]) -> Entry[dict[str, str]]:
        root = coregw.Map(arcs).root
        with self._ledger.lock:
            return self._ledger.roots.setdefault(root, Entry(arcs))

    def _held_root(self, rng: random.Random) -> str | None:
        with self._ledger.lock:
            newest = list(self._ledger.roots.items())[-100:]
        held = [root for root, entry in newest if entry.acknowledged is not None]
        return rng.choice(held) if held else None


def _connection(url: str) -> http.client.HTTPConnection:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=_SECONDS)
