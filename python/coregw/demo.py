"""``make demo``: the main job, end to end, on a real folder: the standard library of the Python that runs this.

Starts a gateway process on a temporary RocksDB store and a free port, adds thousands of files, resolves all of them
over HTTP, verifies every proof, fetches and compares every byte, shows that tampered answers are refused, and stops
the gateway. Leaves nothing behind, and exits with 1 if anything is not as it should be. It measures nothing that a
benchmark should: see ``make bench``.
"""

from __future__ import annotations

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

import anyio
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import coregw
from coregw.client import AsyncClient, Client, Proven, query
from coregw.client.folders.add import Added, add_folder
from coregw.client.folders.survey import Survey, display_name, survey
from coregw.errors import CoregwError, ProofError

__all__ = ["main"]

T = TypeVar("T")

WORKERS = 8
START_SECONDS = 60.0
STOP_SECONDS = 60.0
LEAVE_OUT = ("site-packages", "dist-packages", "__pycache__")


class DemoFailed(Exception):
    """Something is not as it should be."""


@dataclass
class Report:
    """What the table says at the end."""

    seconds: dict[str, float] = field(default_factory=dict)
    proofs: list[Proven[str]] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Notes how long a phase takes."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun


def main(top: Path | None = None) -> int:
    """Runs the demo on a folder, the standard library if none is given; returns the exit code."""
    console = Console()
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
    found = survey(top, LEAVE_OUT)
    console.print(f"[bold]coregw {coregw.__version__}[/]: {len(found.sources):,} files of {escape(display_name(top))}")
    with tempfile.TemporaryDirectory(prefix="coregw-demo-") as scratch:
        with report.phase("start"):
            gateway = Gateway(Path(scratch))
        try:
            _done(console, "started", f"a gateway on RocksDB, {gateway.url}")
            added = anyio.run(_add, console, gateway.url, found, report)
            with Client(gateway.url) as client:
                _resolve_all(console, client, added, report)
                _verify_again(console, added, report)
                _compare_all(console, client, added, found, report)
            _tamper(console, report)
            with report.phase("stop"):
                gateway.stop()
            _done(console, "stopped", "the gateway, cleanly: exit code 0")
        finally:
            gateway.kill()
    _table(console, added, report)


async def _add(console: Console, url: str, found: Survey, report: Report) -> Added:
    async with AsyncClient(url) as client:
        with report.phase("add"), _progress(console, "adding", len(found.sources)) as advance:
            stored = _Counter(advance, found)
            added = await add_folder(client, found, progress=stored.add, workers=WORKERS)
    for skipped in added.skipped:
        console.print(f"  [yellow]skipped[/] {escape(display_name(skipped.file))}: {skipped.why}")
    large = f", {added.lists:,} of them lists of chunks" if added.lists else ""
    _done(console, "added", f"{len(added.arcs):,} files, {added.bytes:,} bytes{large}")
    _done(console, "root", added.root)
    return added


def _resolve_all(console: Console, client: Client, added: Added, report: Report) -> None:
    def resolve(path: str) -> Proven[str]:
        proven = client.query(query.resolve(added.root, path))
        if proven.value != added.arcs[path]:
            raise DemoFailed(f"{path} leads to {proven.value}, not to {added.arcs[path]}")
        return proven

    with report.phase("resolve"), _progress(console, "resolving", len(added.arcs)) as advance:
        report.proofs = _for_each(added.arcs, resolve, advance)
    _done(console, "resolved", f"{len(report.proofs):,} paths over HTTP, each proof verified as it came")


def _verify_again(console: Console, added: Added, report: Report) -> None:
    """Verification alone, without the network, to see what it costs."""
    with report.phase("verify"):
        for proven in report.proofs:
            if coregw.verify_resolve(proven.request, proven.result) != proven.value:
                raise DemoFailed("a proof shows something else the second time")
    _done(console, "verified", f"{len(report.proofs):,} proofs against {added.root[:16]}…, offline")


def _compare_all(console: Console, client: Client, added: Added, found: Survey, report: Report) -> None:
    files = {source.path: source.file for source in found.sources}

    def compare(path: str) -> int:
        with files[path].open("rb") as disk:
            for piece in client.contents(added.arcs[path]):
                if disk.read(len(piece)) != piece:
                    raise DemoFailed(f"{path}: the bytes are not those on the disk")
            size = disk.tell()
            if disk.read(1):
                raise DemoFailed(f"{path}: the file on the disk is longer")
        return size

    with report.phase("fetch"), _progress(console, "fetching", len(added.arcs)) as advance:
        fetched = sum(_for_each(added.arcs, compare, advance))
    if fetched != added.bytes:
        raise DemoFailed(f"fetched {fetched} bytes of {added.bytes}")
    _done(console, "fetched", f"{fetched:,} bytes, hashed, and equal to the disk byte by byte")


def _for_each(paths: Iterable[str], work: Callable[[str], T], advance: Callable[[float], None]) -> list[T]:
    """``work(path)`` for every path in a few threads, which share the client and its connections."""
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
    """A gateway that lies, as small as a lie can be."""
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
            raise DemoFailed(f"a tampered answer was believed: {what}")


class Gateway:
    """A gateway process on a store in a folder of its own."""

    def __init__(self, scratch: Path) -> None:
        """Starts it, and waits until it says where it listens.

        Raises:
            DemoFailed: It ended instead, or said nothing.
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
            raise DemoFailed("the gateway has no output")
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline().decode().strip() if ready else ""
        _, found, url = line.partition("listening on ")
        if not found:
            raise DemoFailed(f"the gateway did not start: {line or self._last_words()}")
        return url

    def stop(self) -> None:
        """Asks it to end. Raises `DemoFailed` if it does not, or not cleanly."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the gateway did not stop within {STOP_SECONDS:g} s") from None
        if code != 0:
            raise DemoFailed(f"the gateway stopped with exit code {code}: {self._last_words()}")

    def kill(self) -> None:
        """Makes sure that it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


class _Counter:
    """Turns the bytes that were stored into files for the progress bar."""

    def __init__(self, advance: Callable[[float], None], found: Survey) -> None:
        self._advance = advance
        self._files_per_byte = len(found.sources) / max(1, found.total_bytes)

    def add(self, count: int) -> None:
        self._advance(count * self._files_per_byte)


@contextmanager
def _progress(console: Console, words: str, total: int) -> Iterator[Callable[[float], None]]:
    columns = (SpinnerColumn(), TextColumn(f"{words:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(words, total=total)
        yield lambda count: bar.advance(task, count)


def _done(console: Console, what: str, words: str, markup: bool = False) -> None:
    console.print(f"[green]✓[/] [bold]{what:<9}[/] {words if markup else escape(words)}", highlight=False)


def _proof_bytes(proven: Proven[str]) -> int:
    steps = json.loads(proven.result)["prooflist"]["steps"]
    return sum(len(base64.b64decode(step["proof"])) for step in steps)


def _table(console: Console, added: Added, report: Report) -> None:
    count = len(report.proofs)
    sizes = [_proof_bytes(proven) for proven in report.proofs]
    seconds = report.seconds
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("files", f"{len(added.arcs):,}")
    table.add_row("bytes", f"{added.bytes:,}")
    table.add_row("root", added.root)
    for phase, words in (
        ("start", "start the gateway"),
        ("add", "add all files"),
        ("resolve", "resolve, verify all"),
        ("verify", "verify all again"),
        ("fetch", "fetch, hash, compare all"),
        ("stop", "stop the gateway"),
    ):
        table.add_row(f"seconds to {words}", f"{seconds[phase]:.2f}")
    table.add_row("resolves/s", f"{count / seconds['resolve']:,.0f}  (HTTP and verified, {WORKERS} at a time)")
    table.add_row("verifies/s", f"{count / seconds['verify']:,.0f}  (one thread, from JSON)")
    table.add_row("proof bytes", f"{statistics.median(sizes):,.0f} median, {max(sizes):,} at most")
    table.add_row("tampered answers", f"{len(report.refusals)} of {len(report.refusals)} refused")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
