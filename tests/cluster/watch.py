"""Readers and writers that ask gateways while something fails: what they see, and when answers come again."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chaos.ledger import Entry, Ledger, cid_of
from coregw.client import Client
from coregw.client.settings import ClientSettings
from coregw.errors import CoregwError

_SECONDS = 40
_PAUSE_SECONDS = 0.02
_PROBE_BYTES = 500
_TOLD = {"unavailable", "storage_full"}
"""Codes of errors that say that an answer has to wait."""


@dataclass
class Probe:
    """Requests of one kind to one gateway, one after the other.

    Attributes:
        answers: When each request began and ended, in seconds of `time.monotonic`, and whether it succeeded.
    """

    kind: str
    url: str
    answers: list[tuple[float, float, bool]] = field(default_factory=list)

    def resumed_after(self, moment: float) -> float:
        """Seconds from a moment until requests succeed: until the last failure, or the first success if that is later.

        Infinite if none succeeded later.
        """
        later = [(end, is_ok) for _, end, is_ok in self.answers if end > moment]
        if not any(is_ok for _, is_ok in later):
            return float("inf")
        first = min(end for end, is_ok in later if is_ok)
        return max([first, *(end for end, is_ok in later if not is_ok)]) - moment


class Watch:
    """Asks gateways from several threads, and notes what contradicts a ledger.

    Attributes:
        failures: Statuses and exceptions of requests that did not succeed.
        reads: The number of reads that were verified.
        unanswered: What a client with a list of all gateways could not read, whichever of them it asked.
    """

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.failures: Counter[str] = Counter()
        self.reads = 0
        self.unanswered: list[str] = []
        self._ledger = ledger
        self._seed = seed
        self._stopping = threading.Event()

    @contextmanager
    def on(self, urls: list[str]) -> Iterator[list[Probe]]:
        """Keep asking while the context is active."""
        self._stopping.clear()
        self._seed += 1
        probes = [Probe(kind, url) for url in urls for kind in ("read", "write")]
        calls: list[Callable[[random.Random], None]] = [
            *(lambda rng, probe=probe: self._probe(probe, rng) for probe in probes),  # type: ignore[misc]
            *(lambda rng, url=url: self._verify([url], rng) for url in urls),  # type: ignore[misc]
            lambda rng: self._verify(urls, rng),
        ]
        threads = [
            threading.Thread(target=call, args=(random.Random(f"watch {self._seed} {number}"),), daemon=True)
            for number, call in enumerate(calls)
        ]
        for thread in threads:
            thread.start()
        try:
            yield probes
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(2 * _SECONDS)

    def _probe(self, probe: Probe, rng: random.Random) -> None:
        ask = self._write if probe.kind == "write" else self._read
        host, _, port = probe.url.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=_SECONDS)
        while not self._stopping.wait(_PAUSE_SECONDS):
            began = time.monotonic()
            try:
                is_ok = ask(connection, rng)
            except (OSError, http.client.HTTPException) as error:
                is_ok = False
                self.failures[f"{probe.kind}: {type(error).__name__}"] += 1
                connection.close()
            probe.answers.append((began, time.monotonic(), is_ok))
        connection.close()

    def _write(self, connection: http.client.HTTPConnection, rng: random.Random) -> bool:
        data = rng.randbytes(_PROBE_BYTES)
        with self._ledger.lock:
            entry = self._ledger.payloads.setdefault(cid_of(data), Entry(len(data)))
        connection.request("POST", "/v1/cas", data)
        answer = connection.getresponse()
        answer.read()
        if answer.status < 300:
            self._ledger.acknowledge([entry])
        else:
            self.failures[f"write: {answer.status}"] += 1
        return answer.status < 300

    def _read(self, connection: http.client.HTTPConnection, rng: random.Random) -> bool:
        """Read a payload of a row, which asks the primary."""
        with self._ledger.lock:
            held = [cid for cid, entry in self._ledger.payloads.items() if entry.acknowledged is not None]
            short = [cid for cid in held[-200:] if self._ledger.payloads[cid].value <= _PROBE_BYTES]
        if not short:
            return True
        cid = rng.choice(short)
        connection.request("GET", f"/v1/cas/{cid}")
        answer = connection.getresponse()
        data = answer.read()
        if answer.status == 200 and cid_of(data) != cid:
            self._say(f"payload {cid}: other bytes")
        elif answer.status == 404:
            self._say(f"payload {cid} was acknowledged, and is not found")
        elif answer.status != 200:
            self.failures[f"read: {answer.status}"] += 1
        return answer.status == 200

    def _verify(self, urls: list[str], rng: random.Random) -> None:
        """Read what was acknowledged, with a client that checks proofs; one that has a list asks the next gateway."""
        with Client(urls, ClientSettings() if len(urls) > 1 else ClientSettings(attempts=1)) as client:
            while not self._stopping.wait(_PAUSE_SECONDS):
                with self._ledger.lock:
                    held = [root for root, entry in self._ledger.roots.items() if entry.acknowledged is not None]
                if not held:
                    continue
                root = rng.choice(held)
                arcs = self._ledger.roots[root].value
                key = rng.choice(list(arcs))
                try:
                    found = str(client.read_key(root, key))
                except CoregwError as error:
                    if len(urls) > 1:
                        self.unanswered.append(f"{type(error).__name__}: {error}")
                    self.failures[f"verified read: {error.code}"] += 1
                    if error.code not in _TOLD:
                        self._say(f"root {root}: {type(error).__name__}: {error}")
                else:
                    self.reads += 1
                    if found != arcs[key]:
                        self._say(f"root {root}: {key} is {found}, expected {arcs[key]}")

    def _say(self, text: str) -> None:
        with self._ledger.lock:
            self._ledger.false.append(text)
