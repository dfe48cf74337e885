"""Entry point of the ``coregw`` command and of ``python -m coregw``."""

from __future__ import annotations

import sys

from coregw.extras import missing_extra

__all__ = ["main"]


def main() -> None:
    """Run the command that ``sys.argv`` names, then exit. Without the ``cli`` extra, say so and exit with code 1."""
    try:
        from coregw import cli
    except ModuleNotFoundError as error:
        sys.exit(f"coregw: {missing_extra(error, 'the coregw command', 'cli')}")
    cli.main()


if __name__ == "__main__":
    main()
