"""Proving and verifying on this machine, measured: of one core, of all, and over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import islice
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Final

import msgspec

from coregw import Map, __version__, payload_cid, verify_key, verify_key_many, verify_keys
from coregw.client import AsyncClient, Client
from coregw.concurrency import usable_cores
from coregw.errors import Unavailable

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

__all__ = [
    "BATCH",
    "PERCENTILES",
    "Figure",
    "ProofSample",
    "Report",
    "Scale",
    "build",
    "generated_keys",
    "local_figures",
    "measured",
    "own_gateway",
    "percentiles",
    "process_counts",
    "sample",
    "scaling",
    "server_is_installed",
    "service_figures",
    "target",
    "timed",
]

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)

_ROUND: Final = 256
"""Calls between two looks at the clock, while a rate is measured."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often something is done in a second.

    Attributes:
        name: What is done.
        group: The part of the benchmark: ``core``, ``http``.
        rate: How many are done in a second.
        unit: What is counted, such as ``proofs``.
        latency_us: Microseconds of one call by percentile, such as ``{"50": 1.2}``; empty if calls are not timed.
        proof_bytes: The size of a proof, or its share of one that many keys have together; None without a proof.
    """

    name: str
    group: str
    rate: float
    unit: str
    latency_us: dict[str, float] = {}
    proof_bytes: float | None = None


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of several processes together."""

    processes: int
    rate: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, as its JSON has it.

    Attributes:
        coregw: The version.
        date: When the run began, in UTC.
        machine: Processor, cores and versions.
        root: The root CID of the map.
        keys: How many keys the map has.
        seconds: For how long each figure was measured.
        figures: The rates.
        scaling: Proofs verified in a second, by the number of processes.
        notes: What was left out, and why.
    """

    coregw: str
    date: str
    machine: dict[str, str | int]
    root: str
    keys: int
    seconds: float
    figures: list[Figure]
    scaling: list[Scale]
    notes: list[str]

    @classmethod
    def of(
        cls,
        root: str,
        keys: int,
        seconds: float,
        figures: Sequence[Figure],
        scaling: Sequence[Scale],
        notes: Sequence[str],
    ) -> Report:
        """Return the report of a run on this machine that has just ended."""
        return cls(
            coregw=__version__,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            machine={
                "system": platform.system(),
                "processor": _processor(),
                "cores": usable_cores(),
                "python": f"{platform.python_implementation()} {platform.python_version()}",
            },
            root=root,
            keys=keys,
            seconds=seconds,
            figures=[*figures],
            scaling=[*scaling],
            notes=[*notes],
        )


def measured(work: Callable[[int], object], seconds: float) -> float:
    """Return how often in a second ``work(i)`` is done, for i = 0, 1, ..., in about `seconds` of wall time."""
    start = perf_counter()
    done = 0
    while (elapsed := perf_counter() - start) < seconds or not done:
        for i in range(done, done + _ROUND):
            work(i)
        done += _ROUND
    return done / elapsed if elapsed > 0 else float(done)


def timed(work: Callable[[int], object], seconds: float, most: int = 1_000_000) -> list[int]:
    """Return the nanoseconds of each call of ``work(i)``, in about `seconds`; at most `most` calls."""

    def calls() -> Iterator[int]:
        end = perf_counter() + seconds
        i = 0
        while not i or perf_counter() < end:
            start = perf_counter_ns()
            work(i)
            yield perf_counter_ns() - start
            i += 1

    return [*islice(calls(), most)]


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return microseconds by percentile (nearest rank), for those that this many calls support."""
    ordered = sorted(nanoseconds)
    supported = [each for each in PERCENTILES if (100 - each) * len(ordered) >= 100 or each == PERCENTILES[0]]
    return {f"{each:g}": ordered[min(len(ordered) - 1, int(len(ordered) * each / 100))] / 1000 for each in supported}


def _processor() -> str:
    """The name of the processor, if the system tells."""
    if sys.platform == "linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a file of the kernel
                names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        except OSError:
            names = []
        if names:
            return names[0]
    return platform.processor() or platform.machine()


BATCH: Final = 1_000
"""Keys of one multiproof."""

_SAMPLE: Final = 5_000

_MESSAGE: Final = bytes(100)

_CORE_GROUP: Final = "core"


def generated_keys(count: int) -> list[str]:
    """Return keys as a folder of many files has them; always the same ones."""
    rng = random.Random(1)  # noqa: S311 - no secrets
    return [f"data/{i % 997:03d}/{rng.getrandbits(64):016x}.bin" for i in range(count)]


class ProofSample:
    """Some keys of a map with their proofs, in random order.

    Attributes:
        root: The root CID of the map.
        keys: The keys.
        proofs: The proof of each.
    """

    def __init__(self, root: str, keys: list[str], proofs: list[bytes]) -> None:
        self.root, self.keys, self.proofs = root, keys, proofs


def sample(tree: Map, keys: Sequence[str]) -> ProofSample:
    """Return a random sample of at most 5,000 keys of a map, with their proofs."""
    chosen = random.Random(2).sample(  # noqa: S311 - no secrets
        keys, min(len(keys), _SAMPLE)
    )
    return ProofSample(tree.root, chosen, tree.prove_many(chosen))


def target() -> str:
    """Return the CID that all keys are bound to."""
    return payload_cid(b"benchmark")


def build(keys: Sequence[str]) -> tuple[Map, Figure]:
    """Build a map that binds each key to a CID; the time of computing the CIDs does not count.

    Raises:
        InvalidInput: A key is not a path.
    """
    arcs = dict.fromkeys(keys, target())
    start = perf_counter()
    tree = Map(arcs)
    seconds = perf_counter() - start
    return tree, Figure(name="build a map", group=_CORE_GROUP, rate=len(arcs) / seconds, unit="arcs")


def local_figures(tree: Map, keys: Sequence[str], seconds: float) -> Iterator[Figure]:
    """Measure proving and verifying; each figure takes about twice `seconds`."""
    some = sample(tree, keys)
    root, names, proofs = some.root, some.keys, some.proofs
    count = len(names)
    size = sum(map(len, proofs)) / count
    yield _of_calls("hashlib.sha256 of 100 bytes", "calls", lambda _: hashlib.sha256(_MESSAGE).digest(), seconds)
    yield _of_calls("prove a key", "proofs", lambda i: tree.prove(names[i % count]), seconds, size)
    yield _of_calls(
        "verify a key", "proofs", lambda i: verify_key(root, names[i % count], proofs[i % count]), seconds, size
    )
    items = [*zip(names, proofs, strict=True)]
    yield _of_batches(
        "verify proofs, all cores", "proofs", count, lambda _: verify_key_many(root, items), seconds, size
    )
    batch = names[:BATCH]
    proof = tree.prove_keys(batch)
    many, share = f"{len(batch):,} {'key' if len(batch) == 1 else 'keys'} at once", len(proof) / len(batch)
    yield _of_batches(f"prove {many}", "keys", len(batch), lambda _: tree.prove_keys(batch), seconds, share)
    yield _of_batches(f"verify {many}", "keys", len(batch), lambda _: verify_keys(root, batch, proof), seconds, share)


def _of_calls(
    name: str, unit: str, work: Callable[[int], object], seconds: float, proof_bytes: float | None = None
) -> Figure:
    """Measure the rate in one pass, and single calls in a second one, since timing each slows them down."""
    rate = measured(work, seconds)
    latency = percentiles(timed(work, seconds))
    return Figure(name=name, group=_CORE_GROUP, rate=rate, unit=unit, latency_us=latency, proof_bytes=proof_bytes)


def _of_batches(
    name: str, unit: str, count: int, work: Callable[[int], object], seconds: float, proof_bytes: float
) -> Figure:
    """Measure work that does `count` things in one call."""
    times = timed(work, seconds)
    rate = count * len(times) / (sum(times) / 1e9)
    return Figure(name=name, group=_CORE_GROUP, rate=rate, unit=unit, proof_bytes=proof_bytes)


_START_SECONDS = 60.0

_barrier: Barrier
"""Where the processes wait for each other; set in each of them."""


def process_counts() -> list[int]:
    """Return the numbers of processes of a curve: powers of two, and the number of cores."""
    cores = usable_cores()
    return sorted({cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)})


def scaling(some: ProofSample, seconds: float, counts: list[int]) -> Iterator[Scale]:
    """Measure how many proofs of one key that many processes verify in a second, each its own."""
    context = multiprocessing.get_context("spawn")
    for count in counts:
        barrier = context.Barrier(count)
        with ProcessPoolExecutor(count, context, _set_barrier, (barrier,)) as pool:
            rates = [pool.submit(_verify, some.root, some.keys, some.proofs, seconds) for _ in range(count)]
            yield Scale(processes=count, rate=sum(each.result() for each in rates))


def _set_barrier(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier can be given to a process only when it starts
    _barrier = barrier


def _verify(root: str, keys: list[str], proofs: list[bytes], seconds: float) -> float:
    """Verify for some time in this process; all start together."""
    count = len(keys)
    _barrier.wait(_START_SECONDS)
    return measured(lambda i: verify_key(root, keys[i % count], proofs[i % count]), seconds)


TASKS: Final = 64
"""Requests that are in flight at the same time, in the figure of many tasks."""

_STOP_SECONDS: Final = 60.0

_HTTP_GROUP: Final = "http"


def server_is_installed() -> bool:
    """Whether this installation can run a gateway."""
    return find_spec("litestar") is not None and find_spec("rocksdict") is not None


@contextmanager
def own_gateway() -> Iterator[str]:
    """Run a gateway on loopback with a temporary store, and yield its address.

    Raises:
        Unavailable: It does not start.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    environment["COREGW_LOG_LEVEL"] = "error"
    with tempfile.TemporaryDirectory(prefix="coregw-bench-") as folder:
        command = [sys.executable, "-P", "-m", "coregw", "serve", "--data", f"{folder}/data", "--port", "0"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if "http://" not in line:
                raise Unavailable("the gateway of the benchmark did not start")
            yield line.split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=_STOP_SECONDS)


def service_figures(
    client: Client, open_async: Callable[[], AsyncClient], root: str, keys: Sequence[str], seconds: float
) -> Iterator[Figure]:
    """Measure verified lookups of `keys` under `root`, with a blocking client and with an asyncio one."""
    count = len(keys)
    times = timed(lambda i: client.resolve(root, keys[i % count]), seconds)
    yield _figure("resolve one key after the other", times, 1)
    batch = [*keys[:BATCH]]
    times = timed(lambda _: client.resolve_many(root, batch), seconds)
    yield _figure(f"resolve {len(batch):,} {'key' if len(batch) == 1 else 'keys'} at once", times, len(batch))
    yield asyncio.run(_many_tasks(open_async, root, keys, seconds))


def _figure(name: str, times: Sequence[int], count: int) -> Figure:
    rate = count * len(times) / (sum(times) / 1e9)
    return Figure(name=name, group=_HTTP_GROUP, rate=rate, unit="keys", latency_us=percentiles(times))


async def _many_tasks(open_client: Callable[[], AsyncClient], root: str, keys: Sequence[str], seconds: float) -> Figure:
    """Look keys up in many tasks of one client."""
    times: list[int] = []
    async with open_client() as client:
        start = perf_counter()

        async def look_up(first: int) -> None:
            i = first
            while (begin := perf_counter()) - start < seconds or i == first:
                await client.resolve(root, keys[i % len(keys)])
                times.append(int((perf_counter() - begin) * 1e9))
                i += TASKS

        async with asyncio.TaskGroup() as tasks:
            for first in range(TASKS):
                tasks.create_task(look_up(first))
        elapsed = perf_counter() - start
    return Figure(
        name=f"resolve in {TASKS} tasks",
        group=_HTTP_GROUP,
        rate=len(times) / elapsed,
        unit="keys",
        latency_us=percentiles(times),
    )
