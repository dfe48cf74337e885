"""Jobs of a running gateway, which take long: at most one of each kind at a time, progress as JSON lines, cancellation.

The response to a job is ``application/x-ndjson``: lines ``{"progress": {...}}``, at least one a second, then
one line ``{"result": {...}}`` or ``{"error": {...}}``. If the client closes the connection, the job is cancelled:
it gets an `asyncio.CancelledError` where it awaits next, as any task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from coregw.errors import CoregwError, Unavailable
from coregw.gateway.replies import Reply, problem_of
from coregw.messages import ErrorBody
from coregw.messages.management import Progress, ProgressCallback
from coregw.text import encode_json

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["EndedJobs", "Job", "Jobs", "Outcome", "RunningJob"]

Job = Callable[[ProgressCallback], Awaitable[msgspec.Struct]]
"""A job: reports its progress and returns its result. It may be cancelled wherever it awaits."""

logger = logging.getLogger("coregw.management")

_STARTING: Final = Progress(step="starting")
"""The report of a job that has not reported anything yet."""

_PAUSE_SECONDS: Final = 0.1
_HEARTBEAT_SECONDS: Final = 1.0
"""A line is sent at least this often, so that a closed connection is noticed."""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job in progress.

    Attributes:
        kind: Its kind, such as ``gc``.
        seconds: How long it has been running.
        progress: What it reported last.
    """

    kind: str
    seconds: float
    progress: Progress | None


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class EndedJobs:
    """The jobs of one kind that have ended.

    Attributes:
        counts: Their number by outcome.
        times: When the last of each outcome ended, in seconds since 1970.
        result: The result of the last that succeeded.
    """

    counts: Counter[Outcome] = field(default_factory=Counter)
    times: dict[Outcome, float] = field(default_factory=dict)
    result: msgspec.Struct | None = None


class Jobs:
    """The jobs of one gateway. For tasks of one event loop.

    Attributes:
        ended: What has ended, by kind.
    """

    def __init__(self) -> None:
        self.ended: dict[str, EndedJobs] = {}
        self._running: dict[str, _Running] = {}
        self._is_closed = False

    def running(self) -> list[RunningJob]:
        """Return the jobs in progress, the oldest first."""
        return [each.describe() for each in self._running.values()]

    async def run(self, kind: str, job: Job) -> msgspec.Struct:
        """Run a job to its end without a client, and return its result. The caller logs how it ended.

        Raises:
            Unavailable: If a job of this kind is in progress, or the gateway is shutting down.
        """
        running = self._start(kind, job, is_logged=False)
        try:
            return await running.task
        finally:
            await running.end()

    def stream(self, scope: HTTPScope, kind: str, job: Job) -> Reply:
        """Start a job, and return the response that streams its progress and its result.

        Args:
            scope: The ASGI scope of the request.
            kind: Names the job: another of the same kind cannot start before it has ended.
            job: The job.

        Raises:
            Unavailable: If a job of this kind is in progress, or the gateway is shutting down.
        """
        lines = self._lines(scope, self._start(kind, job, is_logged=True))
        return Reply(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})

    async def close(self) -> None:
        """Cancel the jobs in progress and wait until they have ended; no more can start. Idempotent."""
        self._is_closed = True
        for running in list(self._running.values()):
            await running.end()

    def _start(self, kind: str, job: Job, *, is_logged: bool) -> _Running:
        if self._is_closed:
            raise Unavailable("the gateway is shutting down")
        if kind in self._running:
            raise Unavailable(f"{kind} is in progress already; wait until it has ended")
        running = _Running(kind, job)
        self._running[kind] = running
        running.task.add_done_callback(partial(self._note_end, kind, is_logged))
        return running

    def _note_end(self, kind: str, is_logged: bool, task: asyncio.Task[msgspec.Struct]) -> None:
        del self._running[kind]
        ended = self.ended.setdefault(kind, EndedJobs())
        if task.cancelled():
            outcome, text = Outcome.CANCELLED, "was cancelled"
        elif (error := task.exception()) is not None:
            outcome, text = Outcome.FAILED, f"failed: {error}"
        else:
            outcome, text, ended.result = Outcome.SUCCEEDED, "succeeded", task.result()
        if is_logged:
            logger.log(logging.WARNING if outcome is Outcome.FAILED else logging.INFO, "%s %s", kind, text)
        ended.counts[outcome] += 1
        ended.times[outcome] = time.time()

    async def _lines(self, scope: HTTPScope, running: _Running) -> AsyncGenerator[bytes, None]:
        try:
            sent, last_line = None, time.monotonic()
            while not running.task.done():
                await asyncio.wait([running.task], timeout=_PAUSE_SECONDS)
                newest, now = running.progress, time.monotonic()
                if newest is not sent or now - last_line >= _HEARTBEAT_SECONDS:
                    yield _line({"progress": _STARTING if newest is None else newest})
                    sent, last_line = newest, now
            yield _line(self._outcome(scope, running.task))
        finally:
            await running.end()

    def _outcome(self, scope: HTTPScope, task: asyncio.Task[msgspec.Struct]) -> dict[str, object]:
        """Return the last line of a response."""
        failure: BaseException | None = Unavailable("the gateway is shutting down")
        if not task.cancelled():
            failure = task.exception()
        if failure is None:
            return {"result": task.result()}
        problem = problem_of(scope, failure if isinstance(failure, Exception) else CoregwError(repr(failure)))
        details = msgspec.UNSET if problem.details is None else msgspec.Raw(problem.details)
        return {"error": ErrorBody(error=problem.code, message=problem.message, details=details)}


class _Running:
    """A job in progress, in a task of its own."""

    def __init__(self, kind: str, job: Job) -> None:
        self.kind = kind
        self.progress: Progress | None = None
        self._began = time.monotonic()
        self.task = asyncio.get_running_loop().create_task(self._run(job))

    async def _run(self, job: Job) -> msgspec.Struct:
        return await job(self._report)

    def _report(self, progress: Progress) -> None:
        self.progress = progress

    def describe(self) -> RunningJob:
        seconds = round(time.monotonic() - self._began, 3)
        return RunningJob(kind=self.kind, seconds=seconds, progress=self.progress)

    async def end(self) -> None:
        """Cancel the job if it is in progress, and wait until it has ended."""
        self.task.cancel()
        await asyncio.wait([self.task])
        if not self.task.cancelled():
            self.task.exception()  # retrieved, or asyncio would log it


def _line(message: object) -> bytes:
    return encode_json(message) + b"\n"
