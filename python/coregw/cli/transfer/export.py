"""``coregw export``: write the verified tree of a root to a CAR file, or to a static tree."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from click.exceptions import Exit

from coregw.cli.common import (
    counted,
    counted_all,
    interruptible,
    json_option,
    printable,
    progress,
    root_of,
    show_result,
    trusted_names,
)
from coregw.cli.framework import click, note
from coregw.cli.gateways import GatewayChoice, client, client_settings, gateway_option

if TYPE_CHECKING:
    from coregw.client.cars.export import ExportedCar
    from coregw.client.static.check import CheckedTree

__all__ = ["command"]

_EXIT_DAMAGED = 4


@click.command("export", short_help="Write the tree of ROOT to a CAR file, or to files for any web server.")
@click.argument("root", required=False, shell_complete=trusted_names)
@click.argument("file", type=click.Path(allow_dash=True, readable=False), required=False)
@click.option("--payloads", is_flag=True, help="Include the payloads that the tree names and the gateway holds.")
@click.option("--static", "place", metavar="DEST", help="Write a static tree to DEST: a folder, or s3://BUCKET/PREFIX.")
@click.option("--no-payloads", is_flag=True, help="With --static: do not include payloads.")
@click.option("--publish", metavar="SCOPE/NAME", help="With --static: publish ROOT under this name in the static tree.")
@click.option("--explorer", is_flag=True, help="With --static: also write the explorer, a page for browsers.")
@click.option("--check", is_flag=True, help="With --static and no ROOT: check the static tree in DEST.")
@json_option
@gateway_option
@interruptible()
def command(
    root: str | None,
    file: str | None,
    gateway: GatewayChoice,
    *,
    payloads: bool,
    place: str | None,
    no_payloads: bool,
    publish: str | None,
    explorer: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Write the tree of ROOT, and of the roots nested in it, to the new CARv1 file FILE.

    FILE appears when every block is verified and no node of the tree is missing. Nested roots and payloads that the
    gateway does not hold are left out; the number of targets without them is reported.

    With "-", the bytes are written to stdout after they were verified in a temporary file (in TMPDIR).

    With --static DEST instead of FILE, everything below ROOT is written as files, payloads included, to the folder DEST
    for any web server, or as objects to a bucket, s3://BUCKET/PREFIX?endpoint=URL&region=NAME, with the credentials in
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `--gateway static+https://…` reads it. Existing files are not written
    again, and an interrupted export is continued by repeating it. With --explorer, a browser that opens DEST's address
    gets a page that shows the tree and verifies it; an index.html there is replaced.

    With --check instead of ROOT, everything in DEST is compared with its name, and every root must be complete; if not,
    the exit code is 4.
    """
    if place is None:
        if no_payloads or check or explorer or publish is not None:
            raise click.UsageError("--no-payloads, --publish, --explorer and --check need --static DEST")
        if root is None or file is None:
            raise click.UsageError("give a ROOT and a FILE, or a ROOT and --static DEST")
        _to_car(root_of(root), file, payloads, gateway, as_json)
    elif file is not None or payloads:
        raise click.UsageError("with --static DEST, there is no FILE, and payloads are written unless --no-payloads")
    elif check:
        if root is not None or no_payloads or explorer or publish is not None:
            raise click.UsageError("--check takes only --static DEST")
        _check(place, as_json)
    elif root is None:
        raise click.UsageError("give a ROOT, or --check")
    else:
        _to_tree(root, place, not no_payloads, publish, explorer, gateway, as_json)


def _to_car(root: str, file: str, payloads: bool, gateway: GatewayChoice, as_json: bool) -> None:
    if as_json and file == "-":
        raise click.UsageError("stdout has the CAR: give a FILE with --json")
    if file != "-":
        done = _export(root, Path(file), payloads, gateway)
    elif sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: redirect it to a file or a pipe, or give a FILE")
    else:
        with TemporaryDirectory(prefix="coregw-") as folder:
            verified = Path(folder, "root.car")
            done = _export(root, verified, payloads, gateway)
            with verified.open("rb") as opened:
                shutil.copyfileobj(opened, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    left_out = f"; {counted(done.missing_roots, 'target')} without tree" if done.missing_roots else ""
    if payloads and done.missing_payloads:
        left_out += f"; {counted(done.missing_payloads, 'target')} without payload"
    note(f"wrote {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}{left_out}")
    show_result(as_json, None, **msgspec.to_builtins(done))


def _export(root: str, file: Path, payloads: bool, gateway: GatewayChoice) -> ExportedCar:
    with client(gateway) as opened, progress("exporting") as (_, advance):
        return opened.export_car(root, file, payloads=payloads, progress=advance)


def _to_tree(
    root: str, place: str, payloads: bool, publish: str | None, explorer: bool, gateway: GatewayChoice, as_json: bool
) -> None:
    import anyio

    from coregw.client.static.export import export_static

    name = None
    if publish is not None:
        scope, slash, rest = publish.partition("/")
        if not slash:
            raise click.UsageError(f"--publish {publish!r}: expected SCOPE/NAME")
        name = (scope, rest)
    with progress("exporting") as (_, advance):
        exporting = partial(
            export_static,
            payloads=payloads,
            name=name,
            explorer=explorer,
            settings=client_settings(),
            connection=gateway.connection(),
            progress=advance,
        )
        done = anyio.run(exporting, gateway.only_address, root_of(root), place)
    written = counted_all((done.roots, "root"), (done.pages, "page"), (done.payloads, "payload"), (done.bytes, "byte"))
    note(f"wrote {written}")
    if done.record is not None:
        shown = f"{done.record.scope}/{done.record.name} is at revision {done.record.revision}"
        note(f"{shown}: {done.record.root}")
    show_result(as_json, None, **msgspec.to_builtins(done))


def _check(place: str, as_json: bool) -> None:
    import anyio

    from coregw.client.static.check import check_static

    with progress("checking") as (_, advance):
        done: CheckedTree = anyio.run(check_static, place, advance)
    show_result(as_json, "\n".join(map(printable, done.findings)) or None, **msgspec.to_builtins(done))
    checked = counted_all(
        (done.roots, "root"), (done.pages, "page"), (done.payloads, "payload"), (done.records, "published name")
    )
    note(f"checked {checked}; {counted(len(done.findings), 'finding')}")
    if done.findings:
        raise Exit(_EXIT_DAMAGED)
