"""Commands of an operator, which reach a running gateway by the control socket that its data directory names.

`data_option` is their option. `require_control` connects to the gateway that has a data directory open, and
`find_control` returns None if there is none, for commands that then open the store themselves.
"""

from coregw.cli.control.connection import Control, data_option, find_control, require_control
from coregw.cli.control.display import print_result, shown_progress

__all__ = [
    "Control",
    "data_option",
    "find_control",
    "print_result",
    "require_control",
    "shown_progress",
]
