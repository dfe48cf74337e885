"""A check in a process of its own, so that it neither holds the GIL of a gateway nor competes with it for the CPU."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from coregw.errors import Unavailable
from coregw.messages.progress import Progress
from coregw.upkeep.integrity.findings import CheckResult

__all__ = ["check_in_process"]

_LINE_BYTES: Final = 1 << 30
_END_SECONDS: Final = 10.0


class _Line(msgspec.Struct, frozen=True):
    progress: Progress | None = None
    result: CheckResult | None = None


async def check_in_process(
    data: Path, rate: int | None, report: Callable[[Progress], None], variables: Mapping[str, str] | None = None
) -> CheckResult:
    """Run ``coregw fsck`` on a store, which may be in use; cancelling it ends the process.

    Args:
        data: The data directory.
        rate: The maximum number of bytes to read per second; None for no limit.
        report: Called with the progress.
        variables: Environment variables beside those of this process, which name a store that is shared.

    Raises:
        Unavailable: The store cannot be checked, or the process has ended otherwise.
    """
    command = [sys.executable, "-P", "-m", "coregw", "fsck", "--lines", "--data", str(data)]
    if rate is not None:
        command += ["--rate", str(rate)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LINE_BYTES,
        start_new_session=True,
        env=os.environ | dict(variables or {}),
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    try:
        async for line in process.stdout:
            message = msgspec.json.decode(line, type=_Line)
            if message.result is not None:
                return message.result
            if message.progress is not None:
                report(message.progress)
        reason = (await process.stderr.read()).decode("utf-8", "replace").strip()
        raise Unavailable(f"the store cannot be checked: {reason or f'exit code {await process.wait()}'}")
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that may still run, and let it remove its snapshot."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
