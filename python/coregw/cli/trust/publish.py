"""``coregw publish``: publish a root under a name at a gateway."""

from __future__ import annotations

from coregw.cli.common import GatewayChoice, gateway_option, json_option, root_of
from coregw.cli.framework import click
from coregw.cli.trust.common import admin_token_option, publishing_client, scope_and_name, show_record

__all__ = ["command"]


@click.command("publish")
@click.argument("name", metavar="SCOPE/NAME")
@click.argument("root")
@admin_token_option
@json_option
@gateway_option
def command(name: str, root: str, token: str | None, as_json: bool, gateway: GatewayChoice) -> None:
    """Publish ROOT as the next revision of SCOPE/NAME, and print the revision.

    The gateway must hold ROOT. If somebody else publishes under the name at the same time, nothing is published. A name
    that is frozen takes no more revisions.
    """
    scope, short = scope_and_name(name)
    with publishing_client(gateway) as opened:
        show_record(opened.publications.publish(scope, short, root_of(root), token=token), as_json)
