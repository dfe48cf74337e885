"""``coregw publish``, ``freeze``, ``sign`` and ``key``: names that an operator publishes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from coregw.cli.common import json_option, printable, root_of, show_result, trusted_names
from coregw.cli.framework import LOCAL_PATH, click, note
from coregw.cli.gateways import GatewayChoice, client_settings, gateway_option

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.client.operations.publications import VerifiedPublication
    from coregw.errors import CoregwError
    from coregw.messages.management import PublishedRecord
    from coregw.tlog.note import Signer

__all__ = [
    "admin_token_option",
    "freeze_command",
    "key_command",
    "publish_command",
    "publishing_client",
    "read_policy",
    "scope_and_name",
    "show_record",
    "sign",
    "sign_command",
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
    from coregw.trust import TrustStore

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
    from coregw.tlog.checkpoint import MAX_POLICY_BYTES, Policy

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
    from coregw.tlog.checkpoint import Policy
    from coregw.trust import TrustStore

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


@click.command("publish")
@click.argument("name", metavar="SCOPE/NAME")
@click.argument("root", shell_complete=trusted_names)
@signing_options(required=False)
@admin_token_option
@json_option
@gateway_option
def publish_command(
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


@click.command("freeze")
@click.argument("name", metavar="SCOPE/NAME")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@admin_token_option
@json_option
@gateway_option
def freeze_command(name: str, yes: bool, token: str | None, as_json: bool, gateway: GatewayChoice) -> None:
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


@click.command("sign")
@click.argument("name", metavar="SCOPE/NAME")
@signing_options(required=True)
@admin_token_option
@json_option
@gateway_option
def sign_command(
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


@click.command("key")
@click.argument("file", type=LOCAL_PATH)
@click.option("--name", required=True, help="Name of the key: the origin of the log, such as example.org/docs/main.")
@json_option
def key_command(file: Path, name: str, as_json: bool) -> None:
    """Print the public key (vkey) of the Ed25519 private key in FILE, which is created if missing.

    FILE is unencrypted PEM (PKCS #8), readable only by its owner. One FILE may sign the logs of several names.
    """
    from coregw.durability import NewFile
    from coregw.tlog.note import new_private_key

    if not file.exists():
        with NewFile(file, mode=0o600) as new:
            new.file.write(new_private_key())
            new.commit(durably=True)
    signer = signer_of(file, name)
    show_result(as_json, str(signer.key), key=str(signer.key))
