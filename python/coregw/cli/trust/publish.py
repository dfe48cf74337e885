"""``coregw publish``: publish a root under a name at a gateway."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.common import json_option, root_of, trusted_names
from coregw.cli.framework import click
from coregw.cli.gateways import GatewayChoice, gateway_option
from coregw.cli.trust.common import (
    admin_token_option,
    publishing_client,
    scope_and_name,
    show_record,
    sign,
    signing_options,
)

__all__ = ["command"]


@click.command("publish")
@click.argument("name", metavar="SCOPE/NAME")
@click.argument("root", shell_complete=trusted_names)
@signing_options(required=False)
@admin_token_option
@json_option
@gateway_option
def command(
    name: str,
    root: str,
    key: Path | None,
    origin: str | None,
    policy: Path | None,
    token: str | None,
    as_json: bool,
    gateway: GatewayChoice,
) -> None:
    """Publish ROOT as the next revision of SCOPE/NAME, and print the revision.

    The gateway must hold ROOT. If somebody else publishes under the name at the same time, nothing is published. A
    frozen name accepts no more revisions. With --key, the name's history is then signed, as by `coregw sign`.
    """
    scope, short = scope_and_name(name)
    if key is not None and origin is None:
        raise click.UsageError("--key needs --origin")
    with publishing_client(gateway) as opened:
        record = opened.publications.publish(scope, short, root_of(root), token=token)
        if key is not None and origin is not None:
            sign(opened, scope, short, key, origin, policy, token)
    show_record(record, as_json)
