"""``coregw resolve``: print the proven target of a path; with ``--json``, the proof."""

from __future__ import annotations

from coregw.cli.common import path_of, printable, root_of, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, client, gateway_option

__all__ = ["command"]


@click.command("resolve")
@click.argument("root", shell_complete=trusted_names)
@click.argument("path")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the request and the result with its proof, as input for `coregw verify`.",
)
@gateway_option
def command(root: str, path: str, as_json: bool, gateway: GatewayChoice) -> None:
    """Print the CID of the target of PATH in ROOT.

    It is proven that PATH leads to this target, but not that it leads to no other; or it is proven that PATH leads
    nowhere. An empty PATH means ROOT itself.
    """
    from coregw.client import query
    from coregw.errors import InvalidInput, UnprovenAbsence

    base, segments = root_of(root), path_of(path)
    with client(gateway) as opened:
        try:
            proven = opened.query(query.resolve(base, segments))
        except UnprovenAbsence:
            from coregw.cli.entries import located

            located(opened, base, segments)
            shown = printable("/".join(segments))
            raise InvalidInput(f"{shown} is a folder without a target: list it with coregw ls") from None
    click.echo(proven.saved() if as_json else proven.value)
