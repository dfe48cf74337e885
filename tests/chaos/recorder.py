"""The recorder (recorder.c): building it, preloading it into a gateway, and reading the trace that it writes."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("<cIQII")
_NO_LIMIT = (1 << 64) - 1


def missing() -> str | None:
    """Why the recorder cannot be built here, or None."""
    if sys.platform != "linux":
        return "the recorder needs Linux"
    return None if _compiler() else "the recorder needs a C compiler (cc)"


def _compiler() -> str | None:
    configured = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which("cc") or shutil.which(configured)


@cache
def library() -> Path:
    """The shared library, built once per process."""
    folder = Path(tempfile.mkdtemp(prefix="coregw-recorder-"))
    built = folder / "recorder.so"
    compiler = _compiler()
    assert compiler is not None, missing()
    flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", built, SOURCE, "-ldl", "-pthread"], check=True)
    return built


class Record(NamedTuple):
    """A change, or a sync, of the recorded process; `recorder.c` describes the fields."""

    position: int
    """The length of the trace when this was appended: later than everything that was recorded before."""
    operation: str
    file: int
    number: int
    first: bytes
    second: bytes


@dataclass(frozen=True)
class Recorder:
    """The trace of one process and the faults of its disk.

    Attributes:
        root: The directory that stands for the disk.
        trace: The trace, or None if only faults are wanted.
    """

    root: Path
    trace: Path | None
    faults: Path

    @classmethod
    def over(cls, root: Path, scratch: Path, *, is_recording: bool = True) -> Recorder:
        """Prepare to record what happens below `root`; the trace goes to `scratch`."""
        scratch.mkdir(parents=True, exist_ok=True)
        recorder = cls(root.resolve(), scratch / "trace" if is_recording else None, scratch / "faults")
        recorder.faults.write_bytes(struct.pack("<QQ", _NO_LIMIT, 0))
        if recorder.trace is not None:
            recorder.trace.unlink(missing_ok=True)
        return recorder

    def environ(self) -> dict[str, str]:
        """The variables of the process to record."""
        variables = {"LD_PRELOAD": str(library()), "CHAOS_ROOT": str(self.root), "CHAOS_FAULTS": str(self.faults)}
        return variables | ({} if self.trace is None else {"CHAOS_TRACE": str(self.trace)})

    def position(self) -> int:
        """How much has been recorded: a clock that advances with every change. What had happened is below it."""
        assert self.trace is not None
        return self.trace.stat().st_size

    def set_room(self, size: int | None) -> None:
        """Leave room for so many bytes on the disk; None for no limit."""
        self._set(0, _NO_LIMIT if size is None else size)

    def fail_syncs(self, count: int) -> None:
        """Make the next syncs fail with EIO."""
        self._set(8, count)

    def records(self) -> Iterator[Record]:
        """The records of a trace; the last one may be incomplete if the process was killed."""
        assert self.trace is not None
        with self.trace.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                operation, number_of_file, number, first, second = _HEAD.unpack(head)
                body = file.read(first + second)
                if len(body) < first + second:
                    return
                yield Record(file.tell(), operation.decode(), number_of_file, number, body[:first], body[first:])

    def _set(self, offset: int, value: int) -> None:
        with self.faults.open("r+b") as file, mmap.mmap(file.fileno(), 16) as shared:
            shared[offset : offset + 8] = struct.pack("<Q", value)
