"""A shell that runs the commands of a page, and compares what they print with what the page shows."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

__all__ = ["Shell", "commands_of", "is_shown"]

_SECONDS = 120
_SERVICE = re.compile(r"coregw (serve|serve-plants)\b(?!.*(--settings|&$))")
_ANYTHING = re.compile(r"…|\.\.\.")


def commands_of(block: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield the number of the line, the command, and what it prints, of each command of a block.

    A block with prompts shows what its commands print; without prompts it is a script, whose output is not shown.
    """
    lines = block.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not starts:
        yield from ((number, command, None) for number, command in _lines_of(block))
        return
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        rest = start + 1
        while rest < end and lines[rest - 1].endswith("\\"):
            rest += 1
        yield start, "\n".join(lines[start:rest]).removeprefix("$ "), "\n".join(lines[rest:end]).strip("\n")


def _lines_of(script: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a script that can stand alone, with those that continue it; all of it if it has compounds."""
    joined: list[tuple[int, str]] = []
    is_continued = False
    for number, line in enumerate(script.splitlines()):
        if is_continued:
            joined[-1] = (joined[-1][0], f"{joined[-1][1]}\n{line}")
        elif line.startswith(" "):
            yield 0, script
            return
        elif line and not line.startswith("#"):
            joined.append((number, line))
        is_continued = line.endswith("\\")
    yield from joined


def is_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; an ellipsis stands for any text."""
    parts = [re.escape(_spaceless(part)) for part in _ANYTHING.split(shown)]
    return re.fullmatch(".*?".join(parts), _spaceless(printed), re.DOTALL) is not None


def _spaceless(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Shell:
    """A bash process with all that it started."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(variables),
            text=True,
            start_new_session=True,
        )
        self._printed: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._code = 0
        self._service = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._bash.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._bash.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._reader.join()
        assert self._bash.stdin is not None
        self._bash.stdin.close()

    def _read(self) -> None:
        assert self._bash.stdout is not None
        with self._bash.stdout as stdout:
            for line in stdout:
                self._printed.put(line)

    def check(self, command: str, shown: str | None, *, is_strict: bool) -> str | None:
        """Run a command, and return what is wrong, or None.

        A command that fails is wrong, unless the next one is ``echo $?``. Services run in the background, as in a
        terminal of their own, until the next one starts; a command that ends with & is waited for until it has printed
        what is shown.

        Args:
            command: What to run.
            shown: What the page shows after it; None if it shows nothing.
            is_strict: Whether a command of which nothing is shown may print nothing.
        """
        if self._code and command.strip() != "echo $?":
            return f"the command before failed with exit code {self._code}"
        if _SERVICE.match(command):
            return self._serve(command)
        printed = self._run(command)
        deadline = time.monotonic() + _SECONDS
        while command.rstrip().endswith("&") and shown and not is_shown(shown, printed):
            try:
                printed += self._printed.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
        if (shown or (shown is not None and is_strict)) and not is_shown(shown, printed):
            return f"$ {command}\nshown:\n{shown}\nprinted:\n{printed}"
        return f"$ {command}\nexit code {self._code}:\n{printed}" if self._code and not shown else None

    def value(self, word: str) -> str:
        """Return what a word of the shell, such as a variable, stands for."""
        return self._run(f'printf %s "{word}"')

    def _serve(self, command: str) -> str | None:
        """Start a service instead of the last one. It has started when it has printed its address."""
        if self._service:
            self._run(f"kill {self._service}; wait {self._service}")
            self._code = 0
        self._service = self._run(f"{{\nexec {command}\n}} 2> service.log &\necho $!").strip()
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            try:
                if "listening on" in self._printed.get(timeout=1):
                    return None
            except queue.Empty:
                printed = self._run(f"kill -0 {self._service} 2>&1")
                if "listening on" in printed:  # since the last look
                    return None
                if printed or self._code:
                    break
        return f"$ {command}\ndid not start:\n{self._run('cat service.log')}"

    def _run(self, command: str) -> str:
        mark = f"mark {uuid4().hex}"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"(exit {self._code})\n{{\n{command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{mark}' $?\n")
        self._bash.stdin.flush()
        printed = ""
        while True:
            line = self._printed.get(timeout=_SECONDS)
            if line.startswith(mark):
                self._code = int(line.removeprefix(mark))
                return printed.removesuffix("\n")
            printed += line
