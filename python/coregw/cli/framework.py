"""click: with rich's help texts if help is asked for, plain otherwise; and the options of every command, -q and -v.

Loading rich-click takes as long as all that a short command loads besides it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from click.exceptions import Exit

from coregw.text import printable

__all__ = [
    "COMMAND_GROUPS",
    "CONTINUED_BY",
    "LOCAL_PATH",
    "MAX_MESSAGE",
    "CommandGroup",
    "click",
    "continue_by",
    "described",
    "drop_stdout",
    "ending_signals",
    "interrupted",
    "is_quiet",
    "note",
    "print_json",
    "with_verbosity",
]


MAX_MESSAGE: Final = 8192
"""The most characters of a message on stderr; a part of it may be what a stranger wrote."""


def _prints_help(arguments: list[str]) -> bool:
    """Whether ``sys.argv`` is that of the command `coregw`, and asks it for a help text."""
    program = Path(arguments[0] if arguments else "")
    is_command = "coregw" in (program.stem, program.parent.name)  # ``coregw``, ``coregw.exe``, ``coregw/__main__.py``
    return is_command and (len(arguments) < 2 or "-h" in arguments or "--help" in arguments)


if TYPE_CHECKING or _prints_help(sys.argv):
    import rich_click as click
    from rich_click import RichGroup as CommandGroup
    from rich_click import rich_click as style
    from rich_click.rich_click import COMMAND_GROUPS

    _CONNECTION = ("header", "proxy", "ca-cert", "client-cert", "client-key", "netrc")
    _OPTIONS = [f"--{side}{name}" for side in ("", "from-", "to-") for name in _CONNECTION]
    style.OPTION_GROUPS["coregw *"] = [
        {"name": "Options"},
        {"name": "Connections", "options": ["--gateway", *_OPTIONS]},
    ]
    style.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"
else:
    import click
    from click import Group as CommandGroup

    COMMAND_GROUPS = {}

LOCAL_PATH = click.Path(path_type=Path, readable=False)
"""The type of arguments that are paths here: who opens one reports what is wrong with it."""

_SIGNALLED = 128
_QUIET = "coregw.quiet"
CONTINUED_BY = "coregw.continued_by"


def print_json(value: object) -> None:
    """Print a value on stdout as one line of JSON. Bytes of file names that are not UTF-8 are escaped."""
    from coregw.text import encode_json

    click.echo(encode_json(value))


def with_verbosity(command: click.Command) -> click.Command:
    """Add the options ``-q`` and ``-v`` to a command, or to those of a group. Returns the command."""
    for below in getattr(command, "commands", {}).values():
        with_verbosity(below)
    if not hasattr(command, "commands") and not any(each.name == "verbose" for each in command.params):
        command.params += [
            click.Option(
                ["-q", "--quiet"],
                is_flag=True,
                expose_value=False,
                callback=lambda context, _, value: context.meta.update({_QUIET: value}),
                help="Print nothing on stderr but errors.",
            ),
            click.Option(
                ["-v", "--verbose"],
                is_flag=True,
                expose_value=False,
                callback=lambda _, __, value: _log_requests() if value else None,
                help="Log each request on stderr.",
            ),
        ]
    return command


def _log_requests() -> None:
    import logging

    logging.basicConfig(format="coregw: %(message)s", level=logging.WARNING)
    logging.getLogger("coregw").setLevel(logging.DEBUG)


def is_quiet() -> bool:
    """Whether the command was called with ``-q``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def note(text: str) -> None:
    """Tell a person something on stderr, unless the command was called with ``-q``."""
    if not is_quiet():
        click.echo(f"coregw: {printable(text, MAX_MESSAGE)}", err=True)


def ending_signals() -> list[signal.Signals]:
    """Return the signals besides SIGINT that end a command: SIGTERM, and SIGHUP unless it is ignored (``nohup``)."""
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return [signal.SIGTERM]
    return [signal.SIGTERM, hangup]


def interrupted(number: signal.Signals) -> NoReturn:
    """End a command that a signal has interrupted, with one line and the exit code that shells report for it."""
    context = click.get_current_context(silent=True)
    step = None if context is None else context.meta.get(CONTINUED_BY)
    click.echo(f"coregw: interrupted ({number.name}){f'; {step}' if step else ''}", err=True)
    raise Exit(_SIGNALLED + number)


def described(error: OSError) -> str:
    """Return what the system refused, with the file if it names one, or ``<stdout>`` if it could not be written."""
    file = error.filename  # an integer if a descriptor was used
    place = f"{os.fspath(file)!r}: " if isinstance(file, str | bytes | os.PathLike) else ""
    if file is None and _failed_to_write_stdout(error):
        place = "<stdout>: "
    return f"{place}{error.strerror or error}"


def _failed_to_write_stdout(error: OSError) -> bool:
    """Whether an error is that of stdout, in whose buffer is still what was not written. It is dropped then."""
    try:
        sys.stdout.flush()
    except OSError as again:
        drop_stdout()
        return again.errno == error.errno
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
    return False


def drop_stdout() -> None:
    """Drop what could not be written to stdout, or the interpreter would fail once more at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def continue_by(step: str) -> None:
    """Say what a person can do if the gateway becomes unavailable, or a signal comes, while this command runs."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[CONTINUED_BY] = step
