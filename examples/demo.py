"""``make demo``: the whole workflow on a real folder, the standard library of the Python that runs it.

Starts a gateway process on a temporary RocksDB store and a free port, adds thousands of files, resolves all of them
over HTTP, verifies every proof, fetches and compares every byte, shows that tampered answers are refused, and stops
the gateway. Leaves nothing behind, and exits with code 1 if any check fails. For measurements, see ``make bench``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import coregw
from coregw.client import AsyncClient, Client, Proven, query
from coregw.client.folders.add import Added, AddProgress, add_folder
from coregw.errors import CoregwError, ProofError
from coregw.folders.tree import Survey, survey
from coregw.text import display_name

__all__ = ["main"]

T = TypeVar("T")

WORKERS = 8
START_SECONDS = 60.0
STOP_SECONDS = 60.0
IGNORED_FOLDERS = ("site-packages", "dist-packages", "__pycache__")


class DemoFailed(Exception):
    """A check of the demo failed."""


@dataclass
class Report:
    """The data for the table at the end."""

    seconds: dict[str, float] = field(default_factory=dict)
    proofs: list[Proven[str]] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the duration of a phase."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun


_WIDTH = 110
"""Columns where there is no terminal, so that no root is broken."""


def main(top: Path | None = None) -> int:
    """Run the demo on a folder, by default the standard library, and return the exit code."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        _run(console, top or Path(sysconfig.get_path("stdlib")))
    except KeyboardInterrupt:
        console.print("[bold red]✗ interrupted[/]")
        return 130
    except (DemoFailed, CoregwError, OSError) as error:
        console.print(f"[bold red]✗ demo failed:[/] {escape(str(error))}")
        return 1
    return 0


def _run(console: Console, top: Path) -> None:
    report = Report()
    found = survey(top, sorted(IGNORED_FOLDERS))
    console.print(f"[bold]coregw {coregw.__version__}[/]: {found.files:,} files of {escape(display_name(top))}")
    with tempfile.TemporaryDirectory(prefix="coregw-demo-") as scratch:
        with report.phase("start"):
            gateway = Gateway(Path(scratch))
        try:
            _done(console, "started", f"a gateway on RocksDB, {gateway.url}")
            added = asyncio.run(_add(console, gateway.url, found, report))
            with Client(gateway.url) as client:
                _resolve_all(console, client, added, report)
                _verify_again(console, added, report)
                _compare_all(console, client, added, found, report)
            _tamper(console, report)
            with report.phase("stop"):
                gateway.stop()
            _done(console, "stopped", "the gateway, with exit code 0")
        finally:
            gateway.kill()
    _table(console, added, report)


async def _add(console: Console, url: str, found: Survey, report: Report) -> Added:
    async with AsyncClient(url) as client:
        with report.phase("add"), _progress(console, "adding", found.files) as advance:
            stored = _Counter(advance, found)
            added = await add_folder(client, found, progress=AddProgress(sent=stored.add))
    for skipped in added.skipped:
        console.print(f"  [yellow]skipped[/] {escape(display_name(skipped.file))}: {skipped.why}")
    large = f", {added.lists:,} of them lists of chunks" if added.lists else ""
    _done(console, "added", f"{added.files:,} files, {added.bytes:,} bytes{large}")
    _done(console, "root", added.root)
    return added


def _resolve_all(console: Console, client: Client, added: Added, report: Report) -> None:
    def resolve(path: str) -> Proven[str]:
        proven = client.query(query.resolve(added.root, path))
        if proven.value != added.arcs[path]:
            raise DemoFailed(f"{path} resolves to {proven.value}, not to {added.arcs[path]}")
        return proven

    with report.phase("resolve"), _progress(console, "resolving", len(added.arcs)) as advance:
        report.proofs = _for_each(added.arcs, resolve, advance)
    _done(console, "resolved", f"{len(report.proofs):,} paths over HTTP, each proof verified on arrival")


def _verify_again(console: Console, added: Added, report: Report) -> None:
    """Verify all proofs once more, to measure verification without the network."""
    with report.phase("verify"):
        for proven in report.proofs:
            if coregw.verify_resolve(proven.request, proven.result) != proven.value:
                raise DemoFailed("verifying a proof again gave a different target")
    _done(console, "verified", f"{len(report.proofs):,} proofs against {added.root[:16]}…, offline")


def _compare_all(console: Console, client: Client, added: Added, found: Survey, report: Report) -> None:
    files = {entry.path: found.location(place) for place, entry in enumerate(found) if entry.kind == "file"}

    def compare(path: str) -> int:
        with files[path].open("rb") as disk:
            for chunk in client.contents(added.arcs[path]):
                if disk.read(len(chunk)) != chunk:
                    raise DemoFailed(f"{path}: the fetched bytes differ from the file on disk")
            size = disk.tell()
            if disk.read(1):
                raise DemoFailed(f"{path}: the file on disk is longer than the fetched bytes")
        return size

    with report.phase("fetch"), _progress(console, "fetching", len(added.arcs)) as advance:
        fetched = sum(_for_each(added.arcs, compare, advance))
    if fetched != added.bytes:
        raise DemoFailed(f"fetched {fetched} of {added.bytes} bytes")
    _done(console, "fetched", f"{fetched:,} bytes, hashed, and identical to the files on disk")


def _for_each(paths: Iterable[str], work: Callable[[str], T], advance: Callable[[float], None]) -> list[T]:
    """Call ``work(path)`` for every path in a few threads, which share the client and its connections."""
    values = []
    with ThreadPoolExecutor(WORKERS) as threads:
        try:
            for value in threads.map(work, paths):
                values.append(value)
                advance(1)
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return values


def _tamper(console: Console, report: Report) -> None:
    """Verify two minimally tampered answers, which must be refused."""
    honest = report.proofs[len(report.proofs) // 2]
    flipped: dict[str, Any] = json.loads(honest.result)
    step = flipped["prooflist"]["steps"][0]
    proof = bytearray(base64.b64decode(step["proof"]))
    proof[len(proof) // 2] ^= 1
    step["proof"] = base64.b64encode(proof).decode()

    swapped: dict[str, Any] = json.loads(honest.result)
    wrong = coregw.payload_cid(b"what the gateway would like you to read")
    swapped["target"] = wrong
    swapped["prooflist"]["steps"][-1]["target"] = {"/": wrong}

    for what, tampered in (("one bit of the proof flipped", flipped), ("the target swapped", swapped)):
        try:
            coregw.verify_resolve(honest.request, json.dumps(tampered))
        except ProofError as error:
            report.refusals.append((what, str(error)))
            _done(console, "refused", f"{what}: [italic]{escape(str(error))}[/]", markup=True)
        else:
            raise DemoFailed(f"a tampered answer was accepted: {what}")


class Gateway:
    """A gateway process on a store in its own folder."""

    def __init__(self, scratch: Path) -> None:
        """Start the process, and wait until it prints its address.

        Raises:
            DemoFailed: The process exited or printed no address in time.
        """
        self._log = scratch / "gateway.log"
        command = [sys.executable, "-m", "coregw", "serve", "--data", str(scratch / "data"), "--port", "0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--host", "127.0.0.1"], stdout=subprocess.PIPE, stderr=log, env=environment
            )
        try:
            self.url = self._address()
        except BaseException:
            self.kill()
            raise

    def _address(self) -> str:
        if self._process.stdout is None:
            raise DemoFailed("the gateway has no stdout")
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline().decode().strip() if ready else ""
        _, found, url = line.partition("listening on ")
        if not found:
            raise DemoFailed(f"the gateway did not start: {line or self._last_log_line()}")
        return url

    def stop(self) -> None:
        """Send SIGTERM. Raises `DemoFailed` if the gateway does not exit in time, or not with code 0."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the gateway did not stop within {STOP_SECONDS:g} s") from None
        if code != 0:
            raise DemoFailed(f"the gateway stopped with exit code {code}: {self._last_log_line()}")

    def kill(self) -> None:
        """Kill the process if it is still running."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"


class _Counter:
    """Converts stored bytes to a number of files, for the progress bar."""

    def __init__(self, advance: Callable[[float], None], found: Survey) -> None:
        self._advance = advance
        self._files_per_byte = found.files / max(1, found.bytes)

    def add(self, count: int) -> None:
        self._advance(count * self._files_per_byte)


@contextmanager
def _progress(console: Console, label: str, total: int) -> Iterator[Callable[[float], None]]:
    columns = (SpinnerColumn(), TextColumn(f"{label:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def _done(console: Console, what: str, text: str, markup: bool = False) -> None:
    console.print(f"[green]✓[/] [bold]{what:<9}[/] {text if markup else escape(text)}", highlight=False)


def _proof_bytes(proven: Proven[str]) -> int:
    steps = json.loads(proven.result)["prooflist"]["steps"]
    return sum(len(base64.b64decode(step["proof"])) for step in steps)


def _table(console: Console, added: Added, report: Report) -> None:
    count = len(report.proofs)
    sizes = [_proof_bytes(proven) for proven in report.proofs]
    seconds = report.seconds
    table = Table(title="Results", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("files", f"{len(added.arcs):,}")
    table.add_row("bytes", f"{added.bytes:,}")
    table.add_row("root", added.root)
    for phase, label in (
        ("start", "start the gateway"),
        ("add", "add all files"),
        ("resolve", "resolve, verify all"),
        ("verify", "verify all again"),
        ("fetch", "fetch, hash, compare all"),
        ("stop", "stop the gateway"),
    ):
        table.add_row(f"seconds to {label}", f"{seconds[phase]:.2f}")
    table.add_row("resolves/s", f"{count / seconds['resolve']:,.0f}  (HTTP and verified, {WORKERS} at a time)")
    table.add_row("verifies/s", f"{count / seconds['verify']:,.0f}  (one thread, from JSON)")
    table.add_row("proof bytes", f"{statistics.median(sizes):,.0f} median, {max(sizes):,} at most")
    table.add_row("tampered answers", f"{len(report.refusals)} of {len(report.refusals)} refused")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
