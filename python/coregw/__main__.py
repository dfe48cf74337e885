"""Entry point of the ``coregw`` command and of ``python -m coregw``."""

from __future__ import annotations

import gc
import sys

from coregw.extras import missing_extra

__all__ = ["main"]

_YOUNG_THRESHOLD = 50_000
"""Net allocations that start a collection, instead of 700. What a command loads stays to its end, so looking through it
for garbage only takes time (decision 0321)."""


_INTERRUPTED = 130
"""As shells report a command that SIGINT has ended."""


def main() -> None:
    """Run the command that ``sys.argv`` names, then exit. Without the ``cli`` extra, say so and exit with code 1."""
    gc.set_threshold(_YOUNG_THRESHOLD, *gc.get_threshold()[1:])
    try:
        from coregw import cli
    except KeyboardInterrupt:  # loading takes long enough for an impatient Ctrl-C
        sys.stderr.write("coregw: interrupted (SIGINT)\n")
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        sys.exit(f"coregw: {missing_extra(error, 'the coregw command', 'cli')}")
    cli.main()


if __name__ == "__main__":
    main()
