"""``coregw sign``: sign the log of a published name."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.common import json_option, show_result
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, gateway_option
from coregw.cli.trust.common import admin_token_option, publishing_client, scope_and_name, sign, signing_options

__all__ = ["command"]


@click.command("sign")
@click.argument("name", metavar="SCOPE/NAME")
@signing_options(required=True)
@admin_token_option
@json_option
@gateway_option
def command(
    name: str, key: Path, origin: str, policy: Path | None, token: str | None, as_json: bool, gateway: GatewayChoice
) -> None:
    """Sign the history of SCOPE/NAME as it is now, and publish the signed checkpoint: clients can then verify the name.

    The history must continue what was signed before, as the trust store of this user remembers. With --policy, its
    witnesses are asked to cosign. If the quorum is not reached, nothing is published; repeat the command later.
    """
    scope, short = scope_and_name(name)
    with publishing_client(gateway) as opened:
        done = sign(opened, scope, short, key, origin, policy, token)
    show_result(as_json, done.note.rstrip("\n"), origin=done.checkpoint.origin, checkpoint=done.note)
