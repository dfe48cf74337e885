"""Entry point of the ``coregw`` command and of ``python -m coregw``."""

from __future__ import annotations

import gc
import os
import sys

from coregw.extras import missing_extra, stale_extension
from coregw.heap import limit_heap

__all__ = ["main"]

_YOUNG_THRESHOLD = 50_000
"""Net allocations that start a collection, instead of 700. What a command loads stays to its end, so looking through it
for garbage only takes time: about a tenth of that of loading."""


_INTERRUPTED = 130
"""As shells report a command that SIGINT has ended."""


def main() -> None:
    """Run the command that ``sys.argv`` names, then exit. Without the ``cli`` extra, say so and exit with code 1."""
    _open_standard_descriptors()
    limit_heap()
    gc.set_threshold(_YOUNG_THRESHOLD, *gc.get_threshold()[1:])
    try:
        from coregw.cli.main import main as run
    except KeyboardInterrupt:  # loading takes long enough for an impatient Ctrl-C
        sys.stderr.write("coregw: interrupted (SIGINT)\n")
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        sys.exit(f"coregw: {missing_extra(error, 'the coregw command', 'cli')}")
    except ImportError as error:
        sys.exit(f"coregw: {stale_extension(error) or error}")
    run()


def _open_standard_descriptors() -> None:
    """Open ``/dev/null`` as those of stdin, stdout and stderr that are closed, or a file of a store would be one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)
            stream = os.fdopen(opened, "r" if name == "stdin" else "w", encoding="utf-8", errors="replace")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main()
