"""``coregw status``: what the gateway that runs on a data directory is doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coregw.cli.common import json_option
from coregw.cli.control.connection import data_option, require_control
from coregw.cli.control.display import print_result
from coregw.cli.framework import click
from coregw.text import duration

__all__ = ["command"]


@click.command("status")
@data_option
@json_option
def command(data: Path, as_json: bool) -> None:
    """Show what the gateway that runs on a data directory is doing.

    Prints its version, processes and addresses, whether its store works, and the long operations in progress.
    """
    with require_control(data) as control:
        status = control.get("status")
    print_result(status if as_json else _for_people(status), as_json=as_json)


def _for_people(status: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "version": status["version"],
        "pid": str(status["pid"]),
        "running for": duration(status["seconds"]),
        "data": status["data"],
        "store": status.get("store"),
        "incarnation": status.get("incarnation"),
        "clients at": status.get("urls", []),  # a gateway that was started before an update does not say
        "management at": status["addresses"],
    }
    return shown | {name: status[name] for name in ("workers", "healthy", "operations")}
