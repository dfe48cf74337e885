"""``coregw mirror``: copy a root, or what is published under a name, from one gateway to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coregw.cli.common import counted_all, interruptible, json_option, printable, progress, show_result, trusted_names
from coregw.cli.framework import click, continue_by, note
from coregw.cli.gateways import GatewayChoice, client_settings, side_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from coregw.client import AsyncClient
    from coregw.client.mirror.copy import Mirrored
    from coregw.client.mirror.names import MirroredName

__all__ = ["command"]


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
def command(  # noqa: PLR0917 - click passes options by name
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
    import anyio

    if "/" not in root:
        if follow or token is not None or from_token is not None:
            raise click.UsageError("--follow, --token and --from-token need SCOPE/NAME instead of a root")
    elif bases:
        raise click.UsageError("--base is for a root: a name has versions of its own")

    continue_by("the same command continues")

    async def run() -> None:
        from coregw.client import AsyncClient
        from coregw.trust.store import TrustStore

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

    anyio.run(run)


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
    import anyio

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
        await anyio.sleep(interval)


def _report(done: Mirrored, as_json: bool) -> None:
    copied = counted_all((done.roots, "root"), (done.arcs, "arc"), (done.payloads, "payload"), (done.received, "byte"))
    since = "" if done.base is None else f", since {done.base}"
    note(f"copied {copied}{since}")
    show_result(as_json, done.root, **msgspec.to_builtins(done))
