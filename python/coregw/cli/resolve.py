"""``coregw resolve``: which CID a path leads to, proven; with ``--json`` the proof as well."""

from __future__ import annotations

import rich_click as click

from coregw.cli.common import client, gateway_option

__all__ = ["command"]


@click.command("resolve")
@click.argument("root")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print the request and the result, for `coregw verify`.")
@gateway_option
def command(root: str, path: str, as_json: bool, gateway: str) -> None:
    """Print the CID that PATH leads to in ROOT.

    The derivation is verified; that it is the only one, or the longest, is not proven. An empty PATH is ROOT itself.
    """
    from coregw.client import query

    with client(gateway) as opened:
        proven = opened.query(query.resolve(root, path))
    click.echo(proven.saved() if as_json else proven.value)
