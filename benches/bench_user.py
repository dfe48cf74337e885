"""A person's own job: adding a folder, adding it again, and getting it back, compared with other tools.

Each round makes a new repository of every tool, and all tools do a job before the next job begins. A ratio is coregw's
time divided by the other tool's in the same round, and the median of the rounds counts. Times are those of whole
processes, from start to exit; coregw's gateway is a process of its own with default settings, so that what it
acknowledges is durable. Repositories are on one disk, and the tree is in the operating system's cache.

What a job writes for the first time is written by all tools under the same conditions:

- Nothing is deleted before the end. To create a file, ext4 looks past every inode that was deleted in the last minute
  (five, until the deletion is on the disk), one by one: a tool that creates 15,000 files just after 15,000 were deleted
  took up to ten times as long as the next one. So a run takes about 3 GB of disk for each round, and another run should
  begin five minutes after it.
- Before each job, `sync` has written what others have left. No tool syncs the files that it restores, and none of their
  times includes writing them back; `cp -r` restores a copy that was synced and is in the cache, as repositories are.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import report
from user_large import LARGE_BYTES, QUICK_BYTES, measure_large
from user_memory import measure_many
from user_peers import TOOLS, Coregw, Tool
from user_tree import FILES, QUICK_FILES, changed, small_file, user_tree

FIRST, AGAIN, CHANGED, GET = "add", "add again", "add with one changed file", "get"
BARS = {(FIRST, "restic"): 1.0, (AGAIN, "restic"): 1.0, (GET, "casync"): 1.0, (GET, "cp -r"): 2.0}
MAX_CHANGED = 1.3
"""The bar of adding with one changed file, compared with adding an unchanged tree."""

Times = dict[tuple[str, str], list[float]]
"""The seconds of each round by job and tool."""


def seconds(work: Callable[[], object]) -> float:
    os.sync()  # so that no job waits for what another has left to write
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fingerprint(folder: Path) -> str:
    """A digest of the paths and bytes of all files of a folder, except git's own."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def repositories(folder: Path, tree: Path, tools: list[type[Tool]]) -> Iterator[list[Tool]]:
    """New repositories of the tools, which stay when they are closed."""
    folder.mkdir()
    with ExitStack() as stack:
        made: list[Tool] = []
        for tool in tools:
            made.append(tool(folder / tool.name.replace(" ", ""), tree))
            stack.callback(made[-1].close)
        yield made


def measure_round(times: Times, tools: list[Tool], tree: Path, number: int, expected: str | None) -> None:
    """Let every tool do every job once; `expected` is the fingerprint that restored trees must have."""

    def note(job: str, tool: Tool, work: Callable[[], object]) -> None:
        times.setdefault((job, tool.name), []).append(seconds(work))

    ordered = tools if number % 2 else tools[::-1]
    for tool in ordered:
        note(FIRST, tool, tool.add)
    again = [tool for tool in ordered if tool.has_again]
    for tool in again:
        note(AGAIN, tool, tool.add)
    for tool in ordered:
        destination = tool.folder / "restored"
        note(GET, tool, lambda tool=tool, to=destination: tool.get(to))  # type: ignore[misc]
        if expected is not None:
            assert fingerprint(tool.restored(destination)) == expected, f"{tool.name} restored another tree"
    file = small_file(tree)
    before, status = file.read_bytes(), file.stat()
    try:
        changed(file, number)
        for tool in again:
            note(CHANGED, tool, tool.add)
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def report_times(figures: report.Report, times: Times) -> None:
    """Add the ratios of all jobs and tools, and the seconds."""
    for (job, name), theirs in times.items():
        figures.add(f"{name}, seconds", statistics.median(theirs), "s", series=job, recorded=False)
        if name == Coregw.name:
            continue
        bar = BARS.get((job, name))
        value = ratio(times[job, Coregw.name], theirs)
        figures.add(f"time / {name}", value, series=job, better="lower", bar=bar, guarded=bar is not None)
    value = ratio(times[CHANGED, Coregw.name], times[AGAIN, Coregw.name])
    figures.add("time / adding it unchanged", value, series=CHANGED, better="lower", bar=MAX_CHANGED, guarded=True)


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def measure_memory(args: argparse.Namespace) -> None:
    """Seconds and peak memory of many small files, in and out; nothing is recorded."""
    figures = report.Report("user-many", "Many small files in and out", args, ("Files of 10 to 100 bytes; one round.",))
    with tempfile.TemporaryDirectory(dir=report.REPOSITORY / "target") as folder:
        measure_many(figures, args.many, Path(folder))
    figures.finish()


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--rounds", type=int, help="rounds; 5, with --quick 3")
    parser.add_argument(
        "--many", type=int, metavar="N", help="measure adding N small files and its peak memory instead"
    )
    args = parser.parse_args()
    if args.many:
        measure_memory(args)
        return
    rounds = args.rounds or (3 if args.quick else 5)
    tree = user_tree(QUICK_FILES if args.quick else FILES)
    files = [path for path in tree.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    notes = (
        f"{len(files):,} files, {size / 1e6:,.0f} MB; medians of {rounds} rounds.",
        "Times of whole processes; coregw talks over loopback to a gateway that syncs before it acknowledges.",
    )
    figures = report.Report("user", "Folders in and out, compared with other tools", args, notes)
    usable: list[type[Tool]] = []
    for tool in TOOLS:
        if (reason := tool.missing()) is not None:
            figures.skip(tool.name, reason)
            continue
        usable.append(tool)
        if tool is not Coregw:
            figures.versions[tool.name] = tool.version()
    times: Times = {}
    expected = fingerprint(tree)
    with tempfile.TemporaryDirectory(dir=report.REPOSITORY / "target") as folder:
        for number in range(rounds):
            with repositories(Path(folder) / str(number), tree, usable) as tools:
                measure_round(times, tools, tree, number, expected if number == 0 else None)
        report_times(figures, times)
        measure_large(figures, QUICK_BYTES if args.quick else LARGE_BYTES, rounds, Path(folder))
    figures.finish()


if __name__ == "__main__":
    main()
