"""``coregw freeze``: let a published name keep its root for good."""

from __future__ import annotations

from coregw.cli.common import GatewayChoice, gateway_option, json_option
from coregw.cli.framework import click
from coregw.cli.trust.common import admin_token_option, publishing_client, scope_and_name, show_record

__all__ = ["command"]


@click.command("freeze")
@click.argument("name", metavar="SCOPE/NAME")
@click.confirmation_option(
    "--yes", prompt="This cannot be undone. Freeze the name?", help="Do not ask for confirmation."
)
@admin_token_option
@json_option
@gateway_option
def command(name: str, token: str | None, as_json: bool, gateway: GatewayChoice) -> None:
    """Freeze SCOPE/NAME at its newest revision. Nothing is ever published under it again."""
    scope, short = scope_and_name(name)
    with publishing_client(gateway) as opened:
        show_record(opened.publications.freeze(scope, short, token=token), as_json)
