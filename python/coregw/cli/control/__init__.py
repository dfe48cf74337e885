"""Commands of an operator, which reach a running gateway by the control socket in its data directory.

`data_option` and `json_option` are their options. `require_control` connects to the gateway that has a data directory
open, and `find_control` returns None if there is none, for commands that then open the store themselves.
"""

from coregw.cli.control.connection import Control, data_option, find_control, json_option, require_control
from coregw.cli.control.display import print_result, shown_progress

__all__ = [
    "Control",
    "data_option",
    "find_control",
    "json_option",
    "print_result",
    "require_control",
    "shown_progress",
]
