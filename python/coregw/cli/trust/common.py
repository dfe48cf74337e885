"""Options and output of the commands about published names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from coregw.cli.common import printable, show_result
from coregw.cli.framework import LOCAL_PATH, click, note
from coregw.cli.gateways import GatewayChoice, client_settings

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.client.operations.publication import VerifiedPublication
    from coregw.errors import CoregwError
    from coregw.messages.record import PublishedRecord
    from coregw.tlog.note import Signer

__all__ = [
    "admin_token_option",
    "publishing_client",
    "read_policy",
    "scope_and_name",
    "show_record",
    "sign",
    "signer_of",
    "signing_options",
]

_MAX_KEY_BYTES = 64 << 10

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


def signing_options(*, required: bool) -> Callable[[F], F]:
    """Add the options ``--key``, ``--origin`` and ``--policy``."""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--policy",
                type=LOCAL_PATH,
                envvar="COREGW_LOG_POLICY",
                show_envvar=True,
                help="Policy whose witnesses have to cosign.",
            ),
            click.option(
                "--origin",
                required=required,
                envvar="COREGW_LOG_ORIGIN",
                show_envvar=True,
                help="What the log's name begins with: the log of SCOPE/NAME is ORIGIN/SCOPE/NAME.",
            ),
            click.option(
                "--key",
                type=LOCAL_PATH,
                required=required,
                envvar="COREGW_LOG_KEY",
                show_envvar=True,
                help="File with the private key that signs; `coregw key` creates it.",
            ),
        ):
            command = option(command)
        return command

    return add


def signer_of(file: Path, name: str) -> Signer:
    """Return the private key in a file, with the name of the log."""
    from coregw.tlog.note import Signer, load_private_key

    with file.open("rb") as opened:
        private = load_private_key(opened.read(_MAX_KEY_BYTES), str(file))
    return Signer(name, private)


def read_policy(file: Path) -> str:
    """Return a policy file as text, with escapes for what is not UTF-8. Raises `InvalidInput` if it is not a policy."""
    from coregw.errors import InvalidInput
    from coregw.tlog.policy import MAX_POLICY_BYTES, Policy

    with file.open("rb") as opened:
        data = opened.read(MAX_POLICY_BYTES + 1)
    try:
        Policy.parse(data)
        text = data.decode(errors="backslashreplace")  # a trust store is JSON; what the octets say means nothing here
        Policy.parse(text)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None
    return text


def sign(
    opened: Client, scope: str, name: str, key: Path, origin: str, policy: Path | None, token: str | None
) -> VerifiedPublication:
    """Sign the log of a published name, and return the signed checkpoint."""
    from coregw.client.signing import sign_published
    from coregw.tlog.policy import Policy
    from coregw.trust.store import TrustStore

    def failed(witness: str, error: CoregwError) -> None:
        click.echo(f"coregw: witness {printable(witness)}: {printable(error.message)}", err=True)

    done = sign_published(
        opened,
        scope,
        name,
        signer_of(key, f"{origin}/{scope}/{name}"),
        TrustStore(),
        policy=None if policy is None else Policy.parse(read_policy(policy)),
        token=token,
        failed=failed,
    )
    note(f"signed {done.checkpoint.origin} at size {done.checkpoint.size}")
    return done


def show_record(record: PublishedRecord, as_json: bool) -> None:
    """Print the root, and on stderr as what it is published; or the record as JSON."""
    frozen = ", frozen" if record.frozen else ""
    note(f"{record.scope}/{record.name} is at revision {record.revision}{frozen}")
    show_result(as_json, printable(record.root), **msgspec.to_builtins(record))
