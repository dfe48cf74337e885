"""Faults of a cluster under a mixed load; after each, a check of all that was acknowledged, by every gateway.

```
primary   the primary is killed (SIGKILL) and a standby promoted
lost      the primary's machine is gone: nothing that is sent to it is answered, and a standby is promoted
gateway   a gateway is killed, and started again
bucket    the bucket's server is killed, and started again
network   connections to the database are slow, cut at random, and cut when the server has answered a write
```

A control shows that a loss would be seen: standbys that confirm nothing, and stop receiving before the primary is
killed, must lose acknowledged writes.
"""

from __future__ import annotations

import random
import time
from collections import Counter

from chaos.ledger import Ledger, Verdict, check
from chaos.load import Load
from chaos.report import Report
from cluster.nodes import Cluster, cluster
from cluster.watch import Probe, Watch

COUNT = 10

FAULTS = ("primary", "network", "gateway", "bucket", "lost")
READ_SECONDS, WRITE_SECONDS = 1.0, 5.0
"""The bars: how long after the promotion of a standby reads and writes may fail, if the primary was killed."""

_DELAY_SECONDS = 0.01
_CUT_ANSWERS = 0.03
_CUT_SECONDS = 1.0


def run(seed: int, count: int, *, seconds: float = 4.0, faults: tuple[str, ...] = FAULTS) -> Report:
    """Let `count` faults happen, of each kind in turn.

    Args:
        seed: Chooses the load and the moments.
        count: The number of faults.
        seconds: How long the load lasts before and after each fault.
        faults: The kinds.
    """
    with cluster(seed) as running:
        harness = _Harness(running, seed, seconds)
        for number in range(count):
            harness.round(faults[number % len(faults)])
        return harness.report(seed)


def run_control(seed: int, *, seconds: float = 2.0) -> Report:
    """Kill a primary that acknowledged what no standby has; the report is ok if the loss is seen."""
    with cluster(seed, is_safe=False) as running:
        harness = _Harness(running, seed, seconds)
        harness.round("unconfirmed")
        report = harness.report(seed)
    return Report("cluster-control", report.figures["lost"] != 0, report.figures, report.examples)


class _Harness:
    """Faults of one cluster."""

    def __init__(self, running: Cluster, seed: int, seconds: float) -> None:
        self._cluster = running
        self._rng = random.Random(seed)
        self._seconds = seconds
        self._ledger = Ledger()
        self._load = Load(self._ledger, seed)
        self._watch = Watch(self._ledger, seed)
        self._verdict = Verdict()
        self._kinds: Counter[str] = Counter()
        self._resumed: dict[str, list[float]] = {}

    def round(self, kind: str) -> None:
        """Let something fail under load, wait until everything works again, and check."""
        with self._watch.on(self._cluster.urls) as probes, self._load.on(*self._cluster.urls):
            time.sleep(self._rng.uniform(0.5, 1) * self._seconds)
            moment = getattr(self, f"_{kind}")()
            self._until_resumed(probes, moment)
            time.sleep(0.5 * self._seconds)
        for probe in probes:
            self._resumed.setdefault(f"{kind} {probe.kind}", []).append(probe.resumed_after(moment))
        if kind in ("primary", "lost"):
            self._cluster.databases.rejoin()
        self._kinds[kind] += 1
        for url in self._cluster.urls:
            self._verdict.add(check(url, self._ledger, self._rng, sample=20))

    def report(self, seed: int) -> Report:
        """Return what happened."""
        acknowledged = self._ledger.acknowledged()
        figures: dict[str, object] = {"seed": seed, "faults": dict(self._kinds), "acknowledged": acknowledged}
        figures |= self._verdict.figures()
        figures |= {"false answers": len(self._ledger.false), "reads verified": self._watch.reads}
        figures |= {"unanswered with a list of gateways": len(self._watch.unanswered)}
        figures |= {"failures": dict((self._load.failures + self._watch.failures).most_common())}
        figures |= {"cuts": sum(proxy.cuts for proxy in self._cluster.network.proxies)}
        figures |= {f"{name} resumed s": max(times) for name, times in self._resumed.items()}
        contradictions = [*self._ledger.false, *self._watch.unanswered]
        is_ok = self._verdict.is_clean and not contradictions and acknowledged > 0 and self._watch.reads > 0
        return Report("cluster", is_ok, figures, [*contradictions[:5], *self._verdict.examples()])

    def _until_resumed(self, probes: list[Probe], moment: float) -> None:
        deadline = time.monotonic() + 60
        while any(not probe.answers or not probe.answers[-1][2] or probe.answers[-1][0] < moment for probe in probes):
            if time.monotonic() > deadline:
                stuck = ", ".join(f"{each.kind} by {each.url}" for each in probes if not each.answers[-1][2])
                self._ledger.false.append(f"not resumed in time: {stuck}")
                return
            time.sleep(0.05)

    # --- faults; each returns when what failed was there again --------------------------------------------------------

    def _primary(self) -> float:
        self._cluster.databases.fail_over()
        return time.monotonic()

    def _unconfirmed(self) -> float:
        self._cluster.databases.stop_replication()
        target = self._ledger.acknowledged() + 20
        while self._ledger.acknowledged() < target:
            time.sleep(0.05)
        return self._primary()

    def _lost(self) -> float:
        databases, network = self._cluster.databases, self._cluster.network
        proxy = network.proxies[databases.nodes.index(databases.primary)]
        proxy.is_silent = True
        databases.fail_over()
        promoted = time.monotonic()
        time.sleep(self._seconds)
        proxy.is_silent = False
        return promoted

    def _gateway(self) -> float:
        self._cluster.restart_gateway(self._rng.randrange(len(self._cluster.gateways)))
        return time.monotonic()

    def _bucket(self) -> float:
        self._cluster.s3.kill()
        time.sleep(0.2 * self._seconds)
        self._cluster.s3.start()
        self._cluster.s3.wait_ready()
        return time.monotonic()

    def _network(self) -> float:
        for proxy in self._cluster.network.proxies:
            proxy.delay, proxy.cut_answers, proxy.cut_every = _DELAY_SECONDS, _CUT_ANSWERS, _CUT_SECONDS
        time.sleep(2 * self._seconds)
        for proxy in self._cluster.network.proxies:
            proxy.delay, proxy.cut_answers, proxy.cut_every = 0.0, 0.0, 0.0
        return time.monotonic()
