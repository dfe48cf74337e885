"""The command line: ``coregw serve | add | ls | cat | get | diff | ...``, one module a command.

Here are the group and what all commands share in failing: one line on stderr that names the place, and an exit code.
A command is imported when it is called, and imports what it needs when it runs, so that starting is fast.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from typing import NoReturn

import rich_click as click
from click.exceptions import Exit

from coregw import __version__
from coregw.errors import CoregwError, ProofError

__all__ = ["EXIT_FAILURE", "EXIT_NOT_PROVEN", "cli", "main"]

EXIT_FAILURE = 1
EXIT_NOT_PROVEN = 3

_COMMANDS = (
    "serve",
    "add",
    "ls",
    "cat",
    "get",
    "update",
    "diff",
    "export",
    "import",
    "resolve",
    "verify",
    "serve-plants",
)

_EPILOG = "Exit codes: 0 done; 1 failure; 2 wrong usage; 3 not proven. COREGW_DEBUG=1 shows tracebacks."


class _Commands(click.RichGroup):
    """The commands by name, imported when asked for, with failures turned into lines and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = f"{name}_" if keyword.iskeyword(name) else name
        command: click.Command = importlib.import_module(f"coregw.cli.{module}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ProofError as error:
            _fail(f"not proven: {error.message}", EXIT_NOT_PROVEN)
        except CoregwError as error:
            _fail(error.message, EXIT_FAILURE)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe has gone
        except OSError as error:
            place = f"{os.fspath(error.filename)!r}: " if error.filename is not None else ""
            _fail(f"{place}{error.strerror or error}", EXIT_FAILURE)
        except (click.ClickException, Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - a bug: still one line, unless somebody asks for more
            _fail(f"internal error, please report it: {type(error).__name__}: {error}", EXIT_FAILURE)


def _fail(message: str, code: int) -> NoReturn:
    if os.environ.get("COREGW_DEBUG"):
        raise  # noqa: PLE0704 - called while an exception is handled, and that is the one to show
    click.echo(f"coregw: {' '.join(message.splitlines())}", err=True)
    raise Exit(code)


@click.group(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coregw")
def cli() -> None:
    """Authenticated maps and lists: a gateway, and clients that need not trust it.

    Every answer of a gateway is verified here before anything of it is shown or written.
    """


def main() -> None:
    """The entry point of ``coregw``: runs the command that ``sys.argv`` names, then exits."""
    cli(prog_name="coregw")
    sys.exit(0)
