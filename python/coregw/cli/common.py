"""Options and output that commands share: roots and paths, progress on stderr, text safe for a terminal."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from coregw.cli.framework import click, ending_signals, interrupted, is_quiet, note, print_json
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from coregw.folders.tree import Skipped

__all__ = [
    "as_added_option",
    "attribute_options",
    "counted",
    "counted_all",
    "few_collections",
    "interruptible",
    "json_option",
    "path_of",
    "printable",
    "progress",
    "reasons",
    "report_left_out",
    "report_skipped",
    "root_of",
    "show_result",
    "suite_option",
    "survey_options",
    "trusted_names",
]

_YOUNG_THRESHOLD = 1_000_000
"""Net allocations that start a collection, instead of those of `coregw.__main__`."""

_SHORTEST_ROOT = 50
"""No text of a root with a digest of 256 bits is shorter, in any of the encodings that are accepted."""

F = TypeVar("F", bound=Callable[..., Any])


def trusted_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the trust store that begin with a text, for the completion of shells."""
    from coregw.errors import CoregwError
    from coregw.trust import TrustStore

    try:
        return [name for name in TrustStore().names() if name.startswith(incomplete)]
    except (CoregwError, OSError):
        return []


def root_of(text: str) -> str:
    """Return a CID as it is, and for a name of the trust store the root that it stands for.

    Raises:
        InvalidInput: It is neither.
    """
    from coregw._core import Cid

    try:
        Cid(text)
    except InvalidInput as error:
        from coregw.trust import TrustStore

        store = TrustStore()
        try:
            return store.root(text)
        except InvalidInput as unknown:
            if len(text) < _SHORTEST_ROOT:  # a name that is mistyped or unknown here: what is wrong as a CID is noise
                why = f"{unknown.message}, and not a root (a CID); coregw root list shows the names"
            else:
                reason = error.message.removeprefix(f'CID "{text}": ')
                why = f"{text!r:.200} is not a root: {reason}; is a character wrong or missing? Nor is it a name in "
                why += str(store.path)
            raise InvalidInput(why, code=error.code) from None
    return text


def json_option(command: F) -> F:
    """Add the option ``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def path_of(text: str) -> list[str]:
    """Return the segments of a path that a person wrote: one slash at its end may mark a folder.

    Raises:
        InvalidInput: A segment is not valid; the message has the path.
    """
    from coregw.client.query import segments_of

    return segments_of(text[:-1] if len(text) > 1 else text) if text.endswith("/") else segments_of(text)


def show_result(as_json: bool, line: str | None, **members: object) -> None:
    """Print a command's result on stdout: as one line, or as a JSON object with these members."""
    if as_json:
        print_json(members)
    elif line is not None:
        click.echo(line)


def suite_option(command: F) -> F:
    """Add the option ``--suite NAME``."""
    return click.option(
        "--suite",
        type=click.Choice(["sha2-256", "blake3"]),
        default="sha2-256",
        show_default=True,
        help="Hash function of the trees.",
    )(command)


def attribute_options(command: F) -> F:
    """Add the options that say what a root records: ``--attributes``, ``--owner``, ``--xattrs``."""
    for option in (
        click.option("--xattrs", is_flag=True, help="Also record extended attributes."),
        click.option("--owner", is_flag=True, help="Also record the numeric ids of owner and group."),
        click.option(
            "--attributes",
            type=click.Choice(["whole", "all", "no-times", "exec", "none"]),
            default="all",
            show_default=True,
            help="What is recorded besides the bytes. all: modes, times, sizes and folders; whole: those of DIR "
            "itself, too; no-times: all but times; exec: only symbolic links and exec bits, for the same root on any "
            "machine; none: nothing.",
        ),
    ):
        command = option(command)
    return command


def survey_options(command: F) -> F:
    """Add the options that say what is left out: ``--exclude``, ``--gitignore``."""
    for option in (
        click.option("--gitignore", is_flag=True, help="Also exclude what .gitignore files exclude."),
        click.option(
            "--exclude",
            metavar="PATTERN",
            multiple=True,
            help="Exclude what matches, in the syntax of .gitignore (repeatable; !PATTERN includes).",
        ),
    ):
        command = option(command)
    return command


def as_added_option(command: F) -> F:
    """Add the option ``--as-added``, by which a folder is compared without what `coregw add` leaves out."""
    return click.option(
        "--as-added",
        is_flag=True,
        help="Leave out what `coregw add` does, by patterns only in files that ROOT names with the same bytes.",
    )(command)


def reasons(skipped: Sequence[Skipped]) -> dict[str, str]:
    """Return why files of a folder were skipped, by their names, for JSON."""
    from coregw.text import display_name

    return {display_name(each.file): each.why for each in skipped}


def report_skipped(path: Path, skipped: Sequence[Skipped], files: int) -> None:
    """Name on stderr the files of a folder that were skipped, wholly or in part, and why.

    Raises:
        InvalidInput: `path` is a single file, and none of `files` that were not skipped.
    """
    from coregw.text import display_name

    if skipped and not files and not path.is_dir():
        raise InvalidInput(f"{display_name(path)}: {skipped[0].why}")
    for each in sorted(skipped):
        note(f"skipped {display_name(each.file)}: {each.why}")


def report_left_out(left_out: Sequence[Skipped]) -> None:
    """Name on stderr what of a folder was not compared."""
    from coregw.text import display_name

    for each in left_out:
        note(f"left out {display_name(each.file)}: {printable(each.why)}")


def printable(text: str) -> str:
    """Return a name that is safe to show on a terminal: control characters and backslashes are escaped."""
    from coregw.text import printable as on_one_line

    return on_one_line(text.replace("\\", "\\\\"), limit=1 << 16)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2,450 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted_all(*counts: tuple[int, str]) -> str:
    """Return several numbers with their nouns, separated by commas."""
    return ", ".join(counted(count, noun) for count, noun in counts)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, so that nothing unfinished is left.

    The exit code is 128 + signal. A SIGHUP that is ignored, as by ``nohup``, stays so.
    """
    received = signal.SIGINT

    def terminate(number: int, _: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell's script
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, terminate) for number in ending_signals()}
    try:
        yield
    except KeyboardInterrupt:
        interrupted(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def few_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage less often, while a command makes many objects that stay to its end."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.freeze()  # or the process would visit all of them once more when it exits


@contextmanager
def progress(label: str) -> Iterator[tuple[Callable[[int | None], None], Callable[[int], None]]]:
    """Show a progress bar of bytes on stderr, if that is a terminal. Yields ``set_total`` and ``advance``."""
    if is_quiet() or not sys.stderr.isatty():  # importing the bar's library takes longer than many commands
        yield lambda total: None, lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
    )

    from coregw.cli.progress import AmountColumn, PaceColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        AmountColumn(),
        PaceColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda total: bar.update(task, total=total), lambda count: bar.advance(task, count)
