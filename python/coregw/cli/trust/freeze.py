"""``coregw freeze``: let a published name keep its root for good."""

from __future__ import annotations

import sys

from coregw.cli.common import json_option
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, gateway_option
from coregw.cli.trust.common import admin_token_option, publishing_client, scope_and_name, show_record

__all__ = ["command"]


@click.command("freeze")
@click.argument("name", metavar="SCOPE/NAME")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@admin_token_option
@json_option
@gateway_option
def command(name: str, yes: bool, token: str | None, as_json: bool, gateway: GatewayChoice) -> None:
    """Freeze SCOPE/NAME at its newest revision. Nothing is ever published under it again."""
    scope, short = scope_and_name(name)
    if not yes:
        _confirm(name)
    with publishing_client(gateway) as opened:
        show_record(opened.publications.freeze(scope, short, token=token), as_json)


def _confirm(name: str) -> None:
    """Ask on stderr, since stdout is for the result. Raises a usage error if nobody answers, `click.Abort` for no."""
    try:
        click.confirm(f"Nothing can ever be published under {name} again. Freeze it?", abort=True, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the line of the question
        raise click.UsageError("freezing can't be undone, and nobody said yes: give --yes") from None
