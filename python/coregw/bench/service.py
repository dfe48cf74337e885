"""A gateway over HTTP: verified lookups by one client, by many tasks, and in batches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from time import perf_counter
from typing import Final

import anyio

from coregw.bench.figures import Figure, percentiles, timed
from coregw.bench.local import BATCH
from coregw.client import AsyncClient, Client
from coregw.errors import Unavailable

__all__ = ["own_gateway", "server_is_installed", "service_figures"]

TASKS: Final = 64
"""Requests that are in flight at the same time, in the figure of many tasks."""

_STOP_SECONDS: Final = 60.0
_GROUP: Final = "http"


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
    yield anyio.run(_many_tasks, open_async, root, keys, seconds)


def _figure(name: str, times: Sequence[int], count: int) -> Figure:
    rate = count * len(times) / (sum(times) / 1e9)
    return Figure(name=name, group=_GROUP, rate=rate, unit="keys", latency_us=percentiles(times))


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

        async with anyio.create_task_group() as tasks:
            for first in range(TASKS):
                tasks.start_soon(look_up, first)
        elapsed = perf_counter() - start
    return Figure(
        name=f"resolve in {TASKS} tasks",
        group=_GROUP,
        rate=len(times) / elapsed,
        unit="keys",
        latency_us=percentiles(times),
    )
