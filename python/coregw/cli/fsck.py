"""``coregw fsck``: check a store, and repair it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit

from coregw.cli.common import json_option
from coregw.cli.control import data_option, find_control
from coregw.cli.framework import click, described, ending_signals, print_json
from coregw.cli.main import EXIT_DAMAGED, EXIT_UNREADABLE
from coregw.cli.progress import shown_progress
from coregw.errors import CoregwError, InvalidInput

if TYPE_CHECKING:
    from coregw.cli.control import Control, ShowProgress
    from coregw.messages.management import ProgressCallback
    from coregw.upkeep.findings import CheckResult, RepairResult

__all__ = ["fsck_command"]

_NICENESS = 19


@click.command("fsck")
@data_option
@json_option
@click.option("--repair", is_flag=True, help="Copy everything readable into a new database, and use that.")
@click.option(
    "--salvage",
    is_flag=True,
    help="With --repair: keep only what RocksDB can read, in place. Loses more, and needs no space for a copy.",
)
@click.option("--rate", type=click.IntRange(min=1), metavar="BYTES", help="Read at most this much per second.")
@click.option("--lines", is_flag=True, hidden=True)  # progress as JSON lines on stdout, for the gateway
def fsck_command(data: Path, as_json: bool, repair: bool, salvage: bool, rate: int | None, lines: bool) -> None:
    """Check every page, payload and record of a store, and list what is damaged, missing or affected, by CID.

    A gateway may be running: it then makes the check itself, of a snapshot of its files (hard links), in a separate
    process, and its metrics have the result. A repair needs exclusive use of the store, and space for another copy of
    it; the damaged database is kept in a directory beside the new one. "coregw heal" restores what a repair could not
    copy.

    If COREGW_STORE names a store in PostgreSQL, it is checked by reading it, with its bucket, and a repair removes what
    is damaged; gateways may be running in both cases. Check the database's files with its own tools.

    Exit codes: 0 intact, or repaired without loss; 4 damage found, or something is lost; 5 the store cannot be checked
    or repaired.
    """
    if salvage and not repair:
        raise click.UsageError("--salvage needs --repair: it changes the store")
    for number in ending_signals():
        signal.signal(number, lambda *_: sys.exit(EXIT_UNREADABLE))  # so that the snapshot is removed
    if lines:
        os.nice(_NICENESS)  # beside a gateway
    import msgspec

    try:
        with shown_progress("fsck", as_json=as_json or lines) as show:
            report = _print_line if lines else lambda progress: show(msgspec.to_builtins(progress))
            control = None if lines or repair else find_control(data)
            result: CheckResult | RepairResult
            if control is not None:
                with control:
                    result = _check_by_gateway(control, show, rate)
            elif repair:
                result = _repair(data, report, salvage=salvage)
            else:
                result = _check(data, report, rate)
    except (CoregwError, OSError) as error:
        message = error.message if isinstance(error, CoregwError) else described(error)
        click.echo(f"coregw: {' '.join(message.split())}", err=True)
        raise Exit(EXIT_UNREADABLE) from None
    if lines:
        _print_line(result, "result")
    elif as_json:
        print_json(result)
    else:
        _show(result)
    raise Exit(0 if result.is_sound else EXIT_DAMAGED)


def _check_by_gateway(control: Control, show: ShowProgress, rate: int | None) -> CheckResult:
    import msgspec

    from coregw.upkeep.findings import CheckResult

    return msgspec.convert(control.run("fsck", {"bytes_per_second": rate}, show), CheckResult)


def _check(data: Path, report: ProgressCallback, rate: int | None) -> CheckResult:
    from coregw.cli.control import is_shared, shared_store
    from coregw.upkeep.check import check_online
    from coregw.upkeep.file_check import check_database
    from coregw.upkeep.inventory import RateLimiter
    from coregw.upkeep.repair import readable

    on_read = RateLimiter(rate) if rate is not None else lambda _: None
    if is_shared():
        with shared_store(data) as shared:
            return shared.call(check_online(shared.store, report, on_read))
    with readable(data) as directory:
        return check_database(directory, report, on_read)


def _repair(data: Path, report: ProgressCallback, *, salvage: bool) -> RepairResult:
    from coregw.cli.control import is_shared, shared_store
    from coregw.upkeep.offline import as_owner
    from coregw.upkeep.repair import repair_online, repair_store, salvage_store

    if salvage:
        if is_shared():
            raise InvalidInput("--salvage is for a RocksDB store; PostgreSQL has tools of its own for that")
        with as_owner(data):
            return salvage_store(data, report)
    if is_shared():
        with shared_store(data) as shared:
            return shared.call(repair_online(shared.store, report))
    with as_owner(data):
        return repair_store(data, report)


def _show(result: CheckResult | RepairResult) -> None:
    """Print a result for a person: what was found, one thing a line, then the numbers."""
    from coregw.upkeep.findings import RepairResult

    if isinstance(result, RepairResult):
        for line in result.found.lines():
            click.echo(f"found: {line}")
        for cid in [*result.recovered_payloads, *result.recovered_roots]:
            click.echo(f"recovered: {cid}")
        for line in result.repaired.lines():
            click.echo(f"lost: {line}")
        click.echo(f"{'salvaged' if result.is_salvaged else 'repaired'}: {result.repaired.summary()}")
        if result.kept:
            click.echo(f"the damaged database is kept in {result.kept}")
        return
    for line in result.lines():
        click.echo(line)
    click.echo(f"{'sound' if result.is_sound else 'damaged'}: {result.summary()}")


def _print_line(message: object, kind: str = "progress") -> None:
    print_json({kind: message})
