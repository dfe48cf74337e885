"""The ``coregw`` command: a group with one module per subcommand.

The group turns every failure into one line on stderr and an exit code. A subcommand's module is imported when the
subcommand is called, and imports what it needs when it runs, so that the command starts fast.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

from click.exceptions import Exit

from coregw import __version__
from coregw.cli.framework import (
    COMMAND_GROUPS,
    CONTINUED_BY,
    MAX_MESSAGE,
    CommandGroup,
    click,
    described,
    drop_stdout,
    interrupted,
    with_verbosity,
)
from coregw.errors import CoregwError, ProofError, Unavailable
from coregw.extras import missing_extra, stale_extension
from coregw.text import printable

__all__ = ["EXIT_DAMAGED", "EXIT_DIFFERENT", "EXIT_FAILURE", "EXIT_NOT_PROVEN", "EXIT_UNREADABLE", "cli", "main"]

EXIT_FAILURE = 1
EXIT_NOT_PROVEN = 3
EXIT_DAMAGED = 4
EXIT_UNREADABLE = 5
EXIT_DIFFERENT = 6

_MODULES = {
    "add": "add",
    "get": "get",
    "ls": "entries",
    "tree": "entries",
    "stat": "entries",
    "cat": "entries",
    "diff": "diff",
    "resolve": "entries",
    "build": "build",
    "update": "mutate",
    "put": "mutate",
    "rm": "mutate",
    "mv": "mutate",
    "hash": "add",
    "verify": "verify",
    "root": "root",
    "publish": "publications",
    "sign": "publications",
    "freeze": "publications",
    "key": "publications",
    "export": "transfer",
    "import": "transfer",
    "mirror": "transfer",
    "serve": "serve",
    "serve-plants": "serve_plants",
    "status": "doctor",
    "backup": "backup",
    "restore": "backup",
    "copy": "backup",
    "fsck": "fsck",
    "heal": "heal",
    "gc": "gc",
    "pin": "gc",
    "doctor": "doctor",
    "bench": "bench",
}
"""The module of each command, below `coregw.cli`; the function in it is ``<command>_command``."""

_SERVICE_COMMANDS = ("serve", "serve-plants")
_CONTROL_COMMANDS = ("status", "backup", "restore", "copy", "fsck", "heal", "gc", "pin")
_SERVER_COMMANDS = (*_SERVICE_COMMANDS, *_CONTROL_COMMANDS, "doctor")

COMMAND_GROUPS["coregw"] = [
    {"name": "Store and read", "commands": ["add", "get", "ls", "tree", "stat", "cat", "diff", "resolve", "build"]},
    {"name": "Change a root", "commands": ["update", "put", "rm", "mv"]},
    {"name": "Without a gateway", "commands": ["hash", "verify"]},
    {"name": "Names and trust", "commands": ["root", "publish", "sign", "freeze", "key"]},
    {"name": "Copy whole roots", "commands": ["export", "import", "mirror"]},
    {"name": "Services", "commands": list(_SERVICE_COMMANDS)},
    {"name": "Operate a gateway, on its machine", "commands": list(_CONTROL_COMMANDS)},
    {"name": "This machine", "commands": ["doctor", "bench"]},
]
"""How the help text groups them."""

_EPILOG = (
    "Exit codes: 0 success; 1 failure; 2 wrong usage; 3 not proven; 4 damage found; 5 unreadable; "
    "6 different (diff --exit-code). "
    "COREGW_RETRY_SECONDS (60) is how long commands wait for an unavailable gateway. COREGW_DEBUG=1 shows tracebacks."
)


_CHECK_STEPS = {
    "rollback": "to go back on purpose: coregw root accept --force",
    "unsigned": "its operator signs it with coregw sign",
}
"""What a person can do about an answer that is not proven, by the check that failed."""


_NAME_TOKENS = {"mirror": "COREGW_FROM_TOKEN or COREGW_TO_TOKEN", "heal": "COREGW_SOURCE_TOKEN"}
"""Where commands take the token of the administration from; others from COREGW_ADMIN_TOKEN."""

_ADMINISTRATION = "/admin/"
"""How the paths of the administration begin, which has addresses and a token of its own."""


class _Commands(CommandGroup):
    """Imports subcommands by name, and turns their failures into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"coregw.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        if cmd_name in _SERVICE_COMMANDS:  # they have settings for that
            return command
        return with_verbosity(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.list_commands(ctx) and not name.startswith("-"):
            from difflib import get_close_matches

            similar = " or ".join(get_close_matches(name, self.list_commands(ctx)))
            ctx.fail(f"No such command {name!r}.{f' Did you mean {similar}?' if similar else ''}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ProofError as error:
            _fail(f"not proven: {error.message}{_next_step(error, ctx)}", EXIT_NOT_PROVEN)
        except CoregwError as error:
            _fail(f"{error.message}{_next_step(error, ctx)}", EXIT_FAILURE)
        except ModuleNotFoundError as error:
            command = ctx.invoked_subcommand or ""
            extra = "server" if command in _SERVER_COMMANDS else "cli"
            _fail(str(missing_extra(error, f"coregw {command}", extra)), EXIT_FAILURE)
        except KeyboardInterrupt:
            interrupted(signal.SIGINT)
        except BrokenPipeError:
            raise  # click exits quietly when the reader of a pipe is gone
        except OSError as error:
            _fail(described(error), EXIT_FAILURE)
        except click.NoSuchOption as error:
            raise (_naming_what_replaces(error) if ctx.invoked_subcommand == "serve" else error) from None
        except (click.ClickException, Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - a bug: one line as well, unless COREGW_DEBUG is set
            internal = f"internal error, please report it: {type(error).__name__}: {error}"
            _fail(stale_extension(error) or internal, EXIT_FAILURE)


def _naming_what_replaces(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with what there is in place of the option, if it was that of a setting once."""
    from coregw.cli.serve import in_place_of

    removed = in_place_of(error.option_name.removeprefix("--"))
    if removed is None:
        return error
    return click.NoSuchOption(error.option_name, f"{error.message.rstrip('.')}; {removed}.", ctx=error.ctx)


def _next_step(error: CoregwError, ctx: click.Context) -> str:
    """Return what a person can do about an error, as the end of its line."""
    if isinstance(error, ProofError):
        step = _CHECK_STEPS.get(error.check, "")
    elif error.gateway is None:
        return ""
    elif isinstance(error, Unavailable):
        is_silent = error.path is None
        doctor = "coregw doctor says what is wrong with the connection" if is_silent else ""
        step = "; ".join(filter(None, (ctx.meta.get(CONTINUED_BY), doctor)))
    else:
        step = _step_after(error, error.gateway, ctx.invoked_subcommand or "")
    return f"; {step}" if step else ""


def _step_after(error: CoregwError, gateway: str, command: str) -> str:
    """Return what a person can do about an error that a gateway, or a proxy before it, has answered with."""
    from coregw.client.transport.exchange import NO_DOCUMENT  # loaded with the client that has raised the error

    is_administration = (error.path or "").startswith(_ADMINISTRATION)
    match error.code:
        case "root_not_found" if gateway.startswith("static+"):
            return "coregw export ROOT --static adds it to the tree"
        case "root_not_found":
            option = "--from" if command == "mirror" else "--gateway"
            return f"send it there with coregw add, import or mirror, or ask another gateway ({option})"
        case "route_not_found" if is_administration:
            return (
                "give the address that serves /admin: the gateway's COREGW_MANAGEMENT_ADDRESS if it has one, or its "
                "own (a proxy may hide /admin, and it exists only where GATEWAY_ADMIN_TOKEN is set)"
            )
        case "route_not_found":
            return "give the address for clients: a management address serves no data"
        case "unauthorized" if NO_DOCUMENT in error.message:
            return "if it is a proxy, --header, --netrc or --proxy give its credentials"
        case "unauthorized" if is_administration:
            variable = _NAME_TOKENS.get(command, "COREGW_ADMIN_TOKEN (--token)")
            return f"give the gateway's GATEWAY_ADMIN_TOKEN in {variable}"
        case "unauthorized":
            variable = "COREGW_TO_BEARER_TOKEN" if command == "mirror" else "COREGW_BEARER_TOKEN"
            return f"give the gateway's GATEWAY_WRITE_TOKEN in {variable}"
        case _:
            return ""


def _fail(message: str, code: int) -> NoReturn:
    if os.environ.get("COREGW_DEBUG"):
        raise  # noqa: PLE0704 - re-raises the exception that the caller is handling
    click.echo(f"coregw: {printable(' '.join(message.splitlines()), MAX_MESSAGE)}", err=True)
    raise Exit(code)


@click.group(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coregw")
def cli() -> None:
    """Authenticated maps and lists: a gateway, and clients that do not trust it.

    Every answer of a gateway is verified before any part of it is shown or written.
    """


def main() -> None:
    """Run the command that ``sys.argv`` names, then exit."""
    try:
        try:
            cli(prog_name="coregw")
        finally:
            sys.stdout.flush()
    except OSError as error:  # a help text, or the last of a result, that could not be written
        drop_stdout()
        sys.exit(f"coregw: <stdout>: {error.strerror or error}")
    sys.exit(0)
