"""Options and output of the commands about published names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from coregw.cli.common import GatewayChoice, client_settings, printable, show_result
from coregw.cli.framework import click, note

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.messages.record import PublishedRecord

__all__ = ["admin_token_option", "publishing_client", "scope_and_name", "show_record"]

F = TypeVar("F", bound=Callable[..., Any])


def admin_token_option(command: F) -> F:
    """Add the option ``--token``, with the environment variable COREGW_ADMIN_TOKEN."""
    return click.option(
        "--token",
        envvar="COREGW_ADMIN_TOKEN",
        show_envvar=True,
        help="Token of the gateway's administration. Prefer the variable: others can see command lines.",
    )(command)


def scope_and_name(text: str) -> tuple[str, str]:
    """Split ``SCOPE/NAME``. Raises a usage error if it is not of that form."""
    scope, slash, name = text.partition("/")
    if not slash:
        raise click.UsageError(f"{text!r}: expected SCOPE/NAME")
    return scope, name


def publishing_client(gateway: GatewayChoice) -> Client:
    """Return a client with the user's trust store, which refuses rollbacks of published names."""
    from coregw.client import Client
    from coregw.trust.store import TrustStore

    return Client(gateway.addresses, client_settings(), gateway.connection(), trust=TrustStore())


def show_record(record: PublishedRecord, as_json: bool) -> None:
    """Print the root, and on stderr as what it is published; or the record as JSON."""
    frozen = ", frozen" if record.frozen else ""
    note(f"{record.scope}/{record.name} is at revision {record.revision}{frozen}")
    show_result(as_json, printable(record.root), **msgspec.to_builtins(record))
