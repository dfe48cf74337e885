"""``coregw root``: the names that stand for trusted roots."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from coregw.cli.common import json_option, printable, show_result, trusted_names
from coregw.cli.framework import LOCAL_PATH, click, note, print_json
from coregw.cli.gateways import GatewayChoice, gateway_option
from coregw.cli.publications import admin_token_option, publishing_client, read_policy, scope_and_name
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from coregw.messages.management import PublishedRecord
    from coregw.trust import Followed, TrustedName, TrustStore

__all__ = ["root_command"]


@click.group("root", short_help="Names for the roots that you trust.")
def root_command() -> None:
    """Names for the roots that you trust. A name can be used wherever a command takes a ROOT.

    The names are stored in a file of yours (`coregw root list` shows where; COREGW_TRUST names another). Nothing that a
    gateway answers changes what a name stands for: only these commands do. docs/trust.md has examples.
    """


@root_command.command("trust")
@click.argument("name")
@click.argument("root", required=False)
@click.option("--follow", metavar="SCOPE/NAME", help="Look new roots up under this published name.")
@click.option(
    "--policy",
    type=LOCAL_PATH,
    help="With --follow: accept only what this policy's log, and enough of its witnesses, have signed.",
)
@json_option
@admin_token_option
@gateway_option
def trust(
    name: str,
    root: str | None,
    follow: str | None,
    policy: Path | None,
    as_json: bool,
    token: str | None,
    gateway: GatewayChoice,
) -> None:
    """Add NAME for ROOT, which you have from somebody you trust.

    With --follow, `coregw root accept NAME` looks up the root that the gateway has under SCOPE/NAME. ROOT may then be
    omitted: NAME stands for the root that is published now, according to the gateway, or with --policy, as proven by
    the log of the name.
    """
    from coregw.trust import Followed, TrustStore

    revision, followed = None, None
    if follow is not None:
        followed = Followed(*scope_and_name(follow), None if policy is None else read_policy(policy))
        record = _look_up(followed, gateway, token, force=False)
        if root is not None and record.root != root:
            raise click.UsageError(f"{follow} is {printable(record.root)} at revision {record.revision}, not {root}")
        root, revision = record.root, record.revision
    elif policy is not None:
        raise click.UsageError("--policy needs --follow SCOPE/NAME")
    if root is None:
        raise click.UsageError("give a ROOT, or --follow SCOPE/NAME")
    store = TrustStore()
    store.trust(name, root, revision=revision, follows=followed)
    _show(name, store.name(name), as_json)


@root_command.command("accept")
@click.argument("name", shell_complete=trusted_names)
@click.argument("root", required=False)
@click.option("--force", is_flag=True, help="Accept even a rollback or a fork.")
@json_option
@admin_token_option
@gateway_option
def accept(name: str, root: str | None, force: bool, as_json: bool, token: str | None, gateway: GatewayChoice) -> None:
    """Let NAME stand for ROOT from now on, or for the root that is published under the name that it follows.

    Without --force, a rollback is refused with exit code 3: a root that was replaced before, or a revision older than
    one that was accepted or seen. So is a different root for the same revision.
    """
    from coregw.trust import TrustStore

    store = TrustStore()
    trusted, revision = _known(store, name), None
    if root is None:
        followed = trusted.follows
        if followed is None:
            raise click.UsageError(f"{name} follows no published name: give a ROOT")
        record = _look_up(followed, gateway, token, force=force)
        root, revision = record.root, record.revision
    store.accept(name, root, revision=revision, force=force)
    _show(name, store.name(name), as_json)


@root_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def list_(as_json: bool) -> None:
    """List all names with their roots, and what they follow."""
    from coregw.trust import TrustStore

    store = TrustStore()
    names = store.names()
    if as_json:
        print_json({name: {"root": each.root, "follows": each.follows} for name, each in names.items()})
        return
    width = max(map(len, names), default=0)
    for name, each in names.items():
        follows = "" if each.follows is None else f"  follows {each.follows.scope}/{each.follows.name}"
        click.echo(f"{name:{width}}  {each.root}{follows}")
    note(f"{store.path}")


@root_command.command("history")
@click.argument("name", shell_complete=trusted_names)
@click.option("--json", "as_json", is_flag=True, help="Print the history as JSON.")
def history(name: str, as_json: bool) -> None:
    """List the roots that NAME stood for, the newest last, and when each was accepted."""
    from coregw.trust import TrustStore

    found = _known(TrustStore(), name).history
    if as_json:
        print_json(found)
        return
    for each in found:
        revision = "" if each.revision is None else f"  revision {each.revision}"
        forced = "  forced" if each.forced else ""
        click.echo(f"{each.accepted_at:%Y-%m-%dT%H:%M:%SZ}  {each.root}{revision}{forced}")


@root_command.command("forget")
@click.argument("name", shell_complete=trusted_names)
@json_option
def forget(name: str, as_json: bool) -> None:
    """Remove NAME and its history. The newest revisions seen of published names are still remembered."""
    from coregw.trust import TrustStore

    store = TrustStore()
    _known(store, name)
    store.forget(name)
    show_result(as_json, None, name=name)


def _known(store: TrustStore, name: str) -> TrustedName:
    """Return a name of the trust store; if it is absent, the error says what to do next."""
    try:
        return store.name(name)
    except InvalidInput as error:
        names = store.names()
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else "coregw root list shows the names" if names else ""
        hint = hint or "it has no names yet: coregw root trust NAME ROOT adds one"
        raise InvalidInput(f"{error.message}; {hint}", code=error.code) from None


def _look_up(followed: Followed, gateway: GatewayChoice, token: str | None, *, force: bool) -> PublishedRecord:
    """Return what is published under a name, if it does not contradict what was seen before or `force` is given."""
    from coregw.tlog.checkpoint import Policy

    with publishing_client(gateway) as opened:
        if followed.policy is not None:
            policy = Policy.parse(followed.policy)
            return opened.publications.verified(followed.scope, followed.name, policy, force=force).record
        return opened.publications.get(followed.scope, followed.name, token=token, force=force)


def _show(name: str, trusted: TrustedName, as_json: bool) -> None:
    newest = trusted.history[-1]
    revision = "" if newest.revision is None else f" (revision {newest.revision})"
    note(f"{name} stands for this root{revision}")
    show_result(as_json, newest.root, name=name, root=newest.root, revision=newest.revision)
