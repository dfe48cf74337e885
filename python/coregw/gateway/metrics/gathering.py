"""Gathering: the samples of one process, and at the owner of the store those of its workers.

A worker sends its samples every second, and when it stops. When it has ended, what it counted stays in the sums, so
that counters never decrease; its gauges go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from coregw.errors import CoregwError
from coregw.gateway.metrics.process import process_samples
from coregw.gateway.metrics.requests import request_samples
from coregw.gateway.metrics.samples import Sample, Source, Sums, number

__all__ = ["WorkerReports", "own_samples", "report_forever"]

_REPORT_SECONDS: Final = 1.0
_DECODER: Final = msgspec.msgpack.Decoder(list[Sample])


def own_samples(sources: Iterable[Source]) -> Iterator[Sample]:
    """Yield the samples of this process: of its requests, of itself, and of `sources`."""
    yield from request_samples()
    yield from process_samples()
    for source in sources:
        yield from source()


async def report_forever(sources: Iterable[Source], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Send the samples of this process every second until cancelled; then once more. A failed report is dropped.

    Args:
        sources: As for `own_samples`.
        send: Sends a report to the owner process.
    """

    async def report() -> None:
        with suppress(CoregwError):  # the owner has ended, which its worker notices by itself
            await send(msgspec.msgpack.encode(list(own_samples(sources))))

    try:
        while True:
            await report()
            await asyncio.sleep(_REPORT_SECONDS)
    finally:
        await report()


class WorkerReports:
    """The newest samples of each worker process, and the sums of those that have ended."""

    def __init__(self) -> None:
        self._newest: dict[int, list[Sample]] = {}
        self._ended = Sums()
        self._exits = 0

    def take(self, worker: int, report: bytes) -> None:
        """Replace the samples of a worker."""
        self._newest[worker] = _DECODER.decode(report)

    def end(self, worker: int) -> None:
        """Keep what a worker has counted, since it has ended."""
        self._exits += 1
        last = Sums()
        last.add(self._newest.pop(worker, []))
        self._ended.add(last.samples(growing_only=True))

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of all workers."""
        yield from self._ended.samples()
        for samples in self._newest.values():
            yield from samples
        yield number("coregw_worker_exits_total", self._exits)
