"""``coregw bench``: measure proving, verifying and lookups over HTTP on this machine."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.common import counted, json_option
from coregw.cli.framework import LOCAL_PATH, click, print_json
from coregw.cli.gateways import GatewayChoice, async_client, client, gateway_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from coregw import Map
    from coregw.bench import Figure, Report, Scale

__all__ = ["bench_command"]

_BAR_WIDTH = 30

_WEB_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""What rich would load from a CDN; the font of the reader's choice does as well."""


@click.command("bench", short_help="Measure proofs and lookups on this machine.")
@click.argument("keys", type=click.Path(allow_dash=True, readable=False), required=False)
@click.option("--count", type=click.IntRange(1, 10_000_000), default=100_000, show_default=True, help="Generated keys.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 600), default=1.0, show_default=True, help="Time for each figure."
)
@click.option("--no-http", is_flag=True, help="Skip what needs a gateway.")
@click.option("--picture", type=LOCAL_PATH, help="Write the table as an SVG file.")
@json_option
@gateway_option
@click.pass_context
def bench_command(
    context: click.Context,
    keys: str | None,
    count: int,
    seconds: float,
    no_http: bool,
    picture: Path | None,
    as_json: bool,
    gateway: GatewayChoice,
) -> None:
    """Measure how fast this machine builds a map, proves, verifies, and looks keys up over HTTP.

    KEYS is a file with a path on each line; without it, keys are generated. A gateway is started on loopback with a
    temporary store, and shares the cores with the client. With --gateway, that gateway is measured instead;
    COREGW_GATEWAY is ignored here, because the command causes load. Percentiles are those of single calls. Rates depend
    on the machine and on what else it does: compare them within one run.
    """
    from click.core import ParameterSource

    from coregw.bench import Report, build, generated_keys
    from coregw.errors import InvalidInput

    paths = _read_keys(keys) if keys is not None else generated_keys(count)
    if not paths:
        raise InvalidInput("there are no keys")
    figures: list[Figure] = []
    curve: list[Scale] = []
    notes: list[str] = []
    tree, built = build(paths)
    is_named = context.get_parameter_source("gateway") is ParameterSource.COMMANDLINE
    with _status() as show:
        for figure in _measured(tree, paths, seconds, None if no_http else gateway, is_named, curve, notes):
            figures.append(figure)
            show(figure.name)
    _write(Report.of(tree.root, len(paths), seconds, [built, *figures], curve, notes), as_json, picture)


def _read_keys(name: str) -> list[str]:
    """Return the paths of a file, a line each, without empty lines and repetitions."""
    with click.open_file(name, encoding="utf-8") as file:
        return [*dict.fromkeys(line for line in file.read().splitlines() if line)]


def _measured(
    tree: Map,
    keys: Sequence[str],
    seconds: float,
    gateway: GatewayChoice | None,
    is_named: bool,
    curve: list[Scale],
    notes: list[str],
) -> Iterator[Figure]:
    """Measure one figure after the other; the curve and the notes are appended to lists.

    With `is_named`, `gateway` was given by a person, and runs already.
    """
    from coregw.bench import local_figures, process_counts, sample, scaling, target

    yield from local_figures(tree, keys, seconds)
    some = sample(tree, keys)
    curve += scaling(some, seconds, process_counts())
    if gateway is None:
        return
    from coregw.bench import own_gateway, server_is_installed, service_figures

    if not is_named and not server_is_installed():
        notes.append('no gateway was measured: it needs the "server" extra, or name one with --gateway URL')
        return
    with nullcontext() if is_named else own_gateway() as address:
        chosen = gateway if address is None else GatewayChoice([address], [], {})
        with client(chosen) as opened:
            root = opened.create_root(dict.fromkeys(keys, target()))
            yield from service_figures(opened, lambda: async_client(chosen), root, some.keys, seconds)


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what was measured last. Yields a function of a name."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console

    with Console(stderr=True).status("measuring...") as status:
        yield lambda name: status.update(f"measured: {name}")


def _write(report: Report, as_json: bool, picture: Path | None) -> None:
    """Print the table or the JSON, and write the picture."""
    from rich.console import Console

    if as_json:
        print_json(report)
    else:
        _print(Console(), report)
    if picture is not None:
        drawing = Console(record=True, width=90, file=io.StringIO())
        _print(drawing, report)
        svg = drawing.export_svg(title="coregw bench")
        picture.write_text(_WEB_FONT.sub("", svg), "utf-8")


def _print(console: Console, report: Report) -> None:
    machine = report.machine
    console.print(
        f"coregw {report.coregw}, {machine['python']}, {report.date[:10]}\n"
        f"{machine['processor']}, {counted(int(machine['cores']), 'core')}; {counted(report.keys, 'key')}",
        highlight=False,
    )
    for group, title in (("core", "In this process"), ("http", "Over HTTP, verified")):
        figures = [each for each in report.figures if each.group == group]
        if figures:
            console.print()
            console.print(_table(title, figures))
    if report.scaling:
        console.print()
        console.print(_curve(report.scaling))
    for note in report.notes:
        console.print(note, highlight=False)


def _table(title: str, figures: Sequence[Figure]) -> Table:
    from rich.table import Table

    shown = ("50", "99")  # the JSON has more
    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    table.add_column("in a second", justify="right", no_wrap=True)
    for each in shown:
        table.add_column(f"p{each} µs", justify="right", no_wrap=True)
    table.add_column("bytes a key", justify="right", no_wrap=True)
    for figure in figures:
        times = (f"{figure.latency_us[each]:,.1f}" if each in figure.latency_us else "-" for each in shown)
        size = f"{figure.proof_bytes:,.0f}" if figure.proof_bytes is not None else "-"
        table.add_row(figure.name, f"{figure.rate:,.0f} {figure.unit}", *times, size)
    return table


def _curve(scaling: Sequence[Scale]) -> Table:
    """Return bars of the rates by number of processes; the longest bar is what perfect scaling would give."""
    from rich.bar import Bar
    from rich.table import Table

    one = scaling[0].rate / scaling[0].processes
    longest = one * max(each.processes for each in scaling)
    table = Table(box=None, pad_edge=False)
    table.add_column("Processes", justify="right")
    table.add_column("in a second", justify="right")
    table.add_column("of perfect scaling", justify="right")
    table.add_column("", width=_BAR_WIDTH)
    for each in scaling:
        bar = Bar(max(longest, each.rate), 0, each.rate, width=_BAR_WIDTH)
        share = f"{each.rate / (one * each.processes):.0%}"
        table.add_row(str(each.processes), f"{each.rate:,.0f} proofs", share, bar)
    return table
