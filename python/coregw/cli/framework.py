"""click: with rich's help texts if help is asked for, plain otherwise.

Loading rich-click takes as long as all that a short command loads besides it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

__all__ = ["CommandGroup", "click"]

if TYPE_CHECKING or len(sys.argv) < 2 or {"-h", "--help"} & {*sys.argv}:
    import rich_click as click
    from rich_click import RichGroup as CommandGroup
else:
    import click
    from click import Group as CommandGroup
