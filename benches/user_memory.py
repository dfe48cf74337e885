"""Very many small files in and out: seconds and peak memory, of coregw's client and gateway and of restic."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import report
from user_peers import Coregw, Restic, Tool

MIB = 1 << 20
MAX_BYTES = 200 * MIB
"""The bar of peak memory of a million files, in the client and in the gateway."""
FILES_PER_FOLDER = 1_000
_VERSION = 1
"""Counted up when the generated trees change."""


def many_files(count: int) -> Path:
    """Return a folder with this many generated files of 10 to 100 bytes, made on the first call.

    They are in folders of 1,000, and one in ten is a copy of another one.
    """
    folder = report.REPOSITORY / "target" / "bench-data" / f"many-files-{_VERSION}-{count}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        rng = random.Random(_VERSION)
        data = b""
        for number in range(count):
            place = partial / f"folder-{number // FILES_PER_FOLDER:05}"
            if number % FILES_PER_FOLDER == 0:
                place.mkdir(parents=True)
            if number % 10:
                data = b"%d " % number + rng.randbytes(rng.randrange(10, 90) // 2).hex().encode()
            (place / f"file-{number:07}.txt").write_bytes(data)
        partial.rename(folder)
    return folder


class Measured:
    """The figures of one job: seconds, and peak bytes of memory of the tool's process and of the gateway."""

    seconds = 0.0
    client_bytes = 0
    gateway_bytes = 0


@contextmanager
def measured(tool: Tool) -> Iterator[Measured]:
    """Measure a job. The peak is that of the largest process that ended meanwhile."""
    figures = Measured()
    gateway = tool.gateway.pid if isinstance(tool, Coregw) else None
    if gateway is not None:
        Path(f"/proc/{gateway}/clear_refs").write_text("5")  # forgets the peak so far
    peaks: list[int] = []
    run = tool.run

    def run_measured(*command: str | Path, environ: dict[str, str] | None = None) -> str:
        variables = os.environ | {"HOME": str(tool.folder)} | (environ or {})
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            output, errors = process.stdout.read(), process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{tool.name}: exit code {process.returncode}: {errors}")
        peaks.append(usage.ru_maxrss << 10)
        return output

    tool.run = run_measured  # type: ignore[method-assign]
    start = time.perf_counter()
    try:
        yield figures
    finally:
        tool.run = run  # type: ignore[method-assign]
    figures.seconds = time.perf_counter() - start
    figures.client_bytes = max(peaks)
    if gateway is not None:
        status = Path(f"/proc/{gateway}/status").read_text()
        figures.gateway_bytes = int(status.split("VmHWM:")[1].split()[0]) << 10


def measure_many(figures: report.Report, count: int, folder: Path) -> None:
    """Add many files, add them again, add them with one changed, and get them; report all figures."""
    tree = many_files(count)
    changed = next(tree.glob("folder-00000/*7.txt"))
    before, status = changed.read_bytes(), changed.stat()
    for tool in [kind(folder / kind.name, tree) for kind in (Coregw, Restic) if kind.missing() is None]:
        try:
            for job in ("add", "add again", "add with one changed file"):
                if job.endswith("file"):
                    changed.write_bytes(b"changed")
                with measured(tool) as found:
                    tool.add()
                _report(figures, tool, f"{count:,} files, {job}", found)
            with measured(tool) as found:
                tool.get(tool.folder / "restored")
            _report(figures, tool, f"{count:,} files, get", found)
        finally:
            changed.write_bytes(before)
            os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
            tool.close()


def _report(figures: report.Report, tool: Tool, series: str, found: Measured) -> None:
    figures.add(f"{tool.name}, seconds", found.seconds, "s", series=series, recorded=False)
    peaks = {f"peak memory of {tool.name}": found.client_bytes}
    if isinstance(tool, Coregw):
        peaks = {"peak memory of the client": found.client_bytes, "peak memory of the gateway": found.gateway_bytes}
    for name, peak in peaks.items():
        bar = MAX_BYTES / MIB if isinstance(tool, Coregw) else None
        figures.add(name, peak / MIB, "MiB", series=series, better="lower", bar=bar, recorded=False)
