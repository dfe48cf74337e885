"""``coregw build``: make a map of any size from a file of arcs, and print its root."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.common import counted, json_option, progress, show_result, suite_option
from coregw.cli.framework import LOCAL_PATH, click, note
from coregw.cli.gateways import GatewayChoice, client, gateway_option
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from coregw._core import ArcSorter

__all__ = ["build_command"]

_CHUNK_BYTES = 1 << 20


@click.command("build", short_help="Create a map of any size from a file of arcs; print its root.")
@click.argument("arcs", metavar="ARCS|-", type=click.Path(allow_dash=True, readable=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(["ndjson", "tsv"]),
    help="Form of the lines; by default tsv if the name of ARCS ends in .tsv, otherwise ndjson.",
)
@gateway_option
@click.option(
    "--data",
    metavar="DIR",
    type=LOCAL_PATH,
    help="Store the map in this store, which no gateway has open, instead of sending it to a gateway.",
)
@click.option("--offline", is_flag=True, help="Only print the root: nothing is sent or stored.")
@suite_option
@json_option
def build_command(
    arcs: str,
    form: str | None,
    gateway: GatewayChoice,
    data: Path | None,
    offline: bool,
    suite: str,
    as_json: bool,
) -> None:
    """Create a map of the arcs in the file ARCS, in any order and of any number, and print its root. "-" is stdin.

    Each line is a JSON array ["path", "CID"] (ndjson), or a path, a tab and a CID (tsv). The arcs are sorted here, in
    bounded memory and a temporary file (in TMPDIR) of about 70 bytes per arc. The root is computed here, and compared
    with the gateway's. The map is stored as a whole or not at all.
    """
    from coregw._core import ArcSorter

    if offline and data is not None:
        raise click.UsageError("--offline stores nothing; use it without --data")
    sorter = ArcSorter(None, form or ("tsv" if arcs.endswith(".tsv") else "ndjson"))
    with ExitStack() as stack:
        file = sys.stdin.buffer if arcs == "-" else stack.enter_context(Path(arcs).open("rb", buffering=0))
        set_total, advance = stack.enter_context(progress("sorting"))
        if arcs != "-":
            set_total(Path(arcs).stat().st_size)
        _sort(arcs, sorter, lambda: file.read(_CHUNK_BYTES), advance)
    note(counted(sorter.arcs, "arc"))
    if offline:
        root = sorter.root(suite)
    elif data is not None:
        from coregw.building import store_sorted

        root = store_sorted(sorter, data, suite)
    else:
        with client(gateway) as opened:
            root = opened.build_sorted(sorter, suite)
    show_result(as_json, root, root=root, arcs=sorter.arcs)


def _sort(name: str, sorter: ArcSorter, read: Callable[[], bytes | None], advance: Callable[[int], None]) -> None:
    """Sort all arcs of a file. Raises `InvalidInput`, naming the file and the line."""
    try:
        while chunk := read():
            sorter.feed(chunk)
            advance(len(chunk))
        sorter.end()
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error.message}", code=error.code) from None
