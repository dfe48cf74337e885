"""``coregw export``, ``import`` and ``mirror``: whole roots between places."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
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
from coregw.cli.framework import click, continue_by, note
from coregw.cli.gateways import GatewayChoice, client, client_settings, gateway_option, side_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from coregw.client import AsyncClient
    from coregw.client.mirror import Mirrored, MirroredName
    from coregw.client.operations.car_export import ExportedCar
    from coregw.client.static.check import CheckedTree

__all__ = ["export_command", "import_command", "mirror_command"]

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
def export_command(
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
    import asyncio

    from coregw.client.static.export import export_static

    name = None
    if publish is not None:
        scope, slash, rest = publish.partition("/")
        if not slash:
            raise click.UsageError(f"--publish {publish!r}: expected SCOPE/NAME")
        name = (scope, rest)
    with progress("exporting") as (_, advance):
        exporting = export_static(
            gateway.only_address,
            root_of(root),
            place,
            payloads=payloads,
            name=name,
            explorer=explorer,
            settings=client_settings(),
            connection=gateway.connection(),
            progress=advance,
        )
        done = asyncio.run(exporting)
    written = counted_all((done.roots, "root"), (done.pages, "page"), (done.payloads, "payload"), (done.bytes, "byte"))
    note(f"wrote {written}")
    if done.record is not None:
        shown = f"{done.record.scope}/{done.record.name} is at revision {done.record.revision}"
        note(f"{shown}: {done.record.root}")
    show_result(as_json, None, **msgspec.to_builtins(done))


def _check(place: str, as_json: bool) -> None:
    import asyncio

    from coregw.client.static.check import check_static

    with progress("checking") as (_, advance):
        done: CheckedTree = asyncio.run(check_static(place, advance))
    show_result(as_json, "\n".join(map(printable, done.findings)) or None, **msgspec.to_builtins(done))
    checked = counted_all(
        (done.roots, "root"), (done.pages, "page"), (done.payloads, "payload"), (done.records, "published name")
    )
    note(f"checked {checked}; {counted(len(done.findings), 'finding')}")
    if done.findings:
        raise Exit(_EXIT_DAMAGED)


@click.command("import", short_help="Send a CAR file to the gateway; print its roots.")
@click.argument("file", type=click.Path(allow_dash=True, readable=False))
@json_option
@gateway_option
def import_command(file: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Send the CAR file FILE to the gateway, and print the roots that its header names. "-" is stdin.

    The gateway imports all of it or nothing: every block must have its CID's hash, and every tree must be complete. The
    roots are candidates: trust them as far as you trust the origin of FILE.

    Input from stdin or from a pipe is first copied to a temporary file (in TMPDIR).
    """
    with _opened(file) as path, client(gateway) as opened, progress("importing") as (set_total, advance):
        set_total(path.stat().st_size)
        done = opened.import_car(path, name=file, progress=advance)
    note(f"imported {counted(done.blocks, 'block')}, {counted(done.bytes, 'byte')}")
    show_result(as_json, "\n".join(done.roots) or None, roots=done.roots, blocks=done.blocks, bytes=done.bytes)


@contextmanager
def _opened(file: str) -> Iterator[Path]:
    """Yield a path that can be read repeatedly, as a failed request is retried from the start."""
    if file != "-" and not stat.S_ISFIFO(Path(file).stat().st_mode):
        yield Path(file)
        return
    with NamedTemporaryFile(prefix="coregw-", suffix=".car") as copy:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as given:
            shutil.copyfileobj(given, copy)
        copy.flush()
        yield Path(copy.name)


@click.command("mirror", short_help="Copy a root from one gateway to another, by what differs.")
@click.argument("root", shell_complete=trusted_names)
@side_option("from", "source", "URL", "The gateway, or static+URL of a static tree.")
@side_option("to", "destination", "URL", "The gateway that gets the copy.")
@click.option(
    "--base",
    "bases",
    metavar="ROOT",
    multiple=True,
    help="An earlier version, relative to which only differences are sent.",
)
@click.option("--no-payloads", is_flag=True, help="Do not copy payloads.")
@click.option(
    "--follow", is_flag=True, help="With SCOPE/NAME: keep running, and copy each root that is published under it."
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="With --follow: how long to wait before the name is looked up again.",
)
@click.option("--from-token", envvar="COREGW_FROM_TOKEN", show_envvar=True, help="Token that reads names at --from.")
@click.option("--token", envvar="COREGW_TO_TOKEN", show_envvar=True, help="Token that publishes the name at --to.")
@json_option
@interruptible()
def mirror_command(  # noqa: PLR0917 - click passes options by name
    root: str,
    source: GatewayChoice,
    destination: GatewayChoice,
    bases: tuple[str, ...],
    no_payloads: bool,
    follow: bool,
    interval: float,
    from_token: str | None,
    token: str | None,
    as_json: bool,
) -> None:
    """Copy ROOT, and everything below it, from one gateway to another; or the root that is published as SCOPE/NAME.

    If the destination holds an earlier version (given by --base, published under the name, or copied before), only the
    differences are sent. Everything is verified before the destination gets it, and the root is stored last. An
    interrupted copy is continued by repeating it. Prints each root that was copied.

    A name in the trust store stands for its root. A revision of SCOPE/NAME that is older than one already seen is
    refused, and so is a different root for the same revision.

    With SCOPE/NAME and --token, the root is also published under this name at the destination. Prefer the environment
    variables to tokens on the command line, which others can see. Connection options and variables apply to one side:
    --from-header and COREGW_FROM_BEARER_TOKEN only to --from, and those with --to- or COREGW_TO_ only to --to.
    """
    import asyncio

    if "/" not in root:
        if follow or token is not None or from_token is not None:
            raise click.UsageError("--follow, --token and --from-token need SCOPE/NAME instead of a root")
    elif bases:
        raise click.UsageError("--base is for a root: a name has versions of its own")

    continue_by("the same command continues")

    async def run() -> None:
        from coregw.client import AsyncClient
        from coregw.trust import TrustStore

        settings, trust = client_settings(), TrustStore()
        a = AsyncClient(source.only_address, settings, source.connection(), trust=trust)
        b = AsyncClient(destination.only_address, settings, destination.connection())
        async with a, b:
            if "/" in root:
                await _name(a, b, root, (from_token, token), not no_payloads, interval if follow else None, as_json)
                return
            with progress("copying") as (_, advance):
                done = await a.mirror(root, b, bases=bases, payloads=not no_payloads, progress=advance)
            _report(done, as_json)

    asyncio.run(run())


async def _name(
    a: AsyncClient,
    b: AsyncClient,
    path: str,
    tokens: tuple[str | None, str | None],
    payloads: bool,
    interval: float | None,
    as_json: bool,
) -> None:
    """Copy what is published under a name; with an interval, again and again, whatever is unavailable meanwhile."""
    import asyncio

    from coregw.errors import Unavailable

    scope, _, name = path.partition("/")
    last = ""

    async def copy(advance: Callable[[int], None]) -> MirroredName:
        return await a.mirror_published(
            scope, name, b, token=tokens[0], destination_token=tokens[1], payloads=payloads, progress=advance
        )

    while True:
        try:
            with progress("copying") as (_, advance):
                done = await copy(advance)
        except Unavailable as error:
            if interval is None:
                raise
            note(f"{printable(error.message)}; trying again")
        else:
            if done.record.root != last:
                last = done.record.root
                _report(done.mirrored, as_json)
                if done.published is not None:
                    note(f"{path} is at revision {done.published.revision}")
        if interval is None:
            return
        await asyncio.sleep(interval)


def _report(done: Mirrored, as_json: bool) -> None:
    copied = counted_all((done.roots, "root"), (done.arcs, "arc"), (done.payloads, "payload"), (done.received, "byte"))
    since = "" if done.base is None else f", since {done.base}"
    note(f"copied {copied}{since}")
    show_result(as_json, done.root, **msgspec.to_builtins(done))
