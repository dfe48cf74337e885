"""``coregw diff``: list the differences between two maps, proven to be complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw.cli.common import client, gateway_option, printable
from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.client import Difference

__all__ = ["command"]


@click.command("diff", short_help="List the differences between two maps.")
@click.argument("a")
@click.argument("b")
@click.argument("prefix", default="")
@click.option("--json", "as_json", is_flag=True, help="Print each difference as a line of JSON, with its targets.")
@gateway_option
def command(a: str, b: str, prefix: str, as_json: bool, gateway: str) -> None:
    """List the differences between the maps with the roots A and B, at and below PREFIX if it is given.

    Each line is "+" (only in B), "-" (only in A) or "~" (different targets), and a path. Every line is proven; with
    exit code 0 the list is proven to be complete, even if it is empty. Nested maps are not followed: a map inside a
    map is one target. Control characters in paths are shown as escapes; --json shows paths unchanged.
    """
    show = _json if as_json else _line
    with client(gateway) as opened:
        for difference in opened.diff(a, b, prefix):
            click.echo(show(difference))


def _line(difference: Difference) -> str:
    sign = "+" if difference.before is None else "-" if difference.after is None else "~"
    return f"{sign} {printable('/'.join(difference.segments))}"


def _json(difference: Difference) -> str:
    """Format a difference like an entry of the protocol: an absent target is left out."""
    import json

    return json.dumps({name: value for name, value in difference._asdict().items() if value is not None})
