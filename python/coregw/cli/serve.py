"""``coregw serve``: runs a gateway until it is told to stop. Its options are those of every command that listens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from coregw.gateway.settings import Settings

__all__ = ["chosen_settings", "command", "server_options"]

F = TypeVar("F", bound=Callable[..., Any])


def _show_settings(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from rich.console import Console
    from rich.table import Table

    from coregw.gateway.settings import Settings

    table = Table("variable", "default", "meaning", box=None, pad_edge=False)
    for row in Settings.describe():
        table.add_row(*row)
    Console().print(table)
    context.exit()


def server_options(command: F) -> F:
    """Adds what every command that listens takes, as the arguments of `chosen_settings`, and ``--settings``."""
    for option in (
        click.option(
            "--settings",
            "show_settings",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_settings,
            help="Show all settings with their defaults, and stop.",
        ),
        click.option(
            "--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Any other setting; may be repeated."
        ),
        click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one."),
        click.option("--host", help="Address to listen on; loopback unless told otherwise."),
        click.option("--data", type=click.Path(path_type=Path), help="Folder of the store; made if missing."),
    ):
        command = option(command)
    return command


def chosen_settings(data: Path | None, host: str | None, port: int | None, assignments: tuple[str, ...]) -> Settings:
    """The settings of the environment and the options; these win."""
    from coregw.gateway.settings import Settings

    given: dict[str, object] = {"data": data, "host": host, "port": port}
    known = {variable for variable, _, _ in Settings.describe()}
    for text in assignments:
        name, equals, value = text.partition("=")
        field = name.strip().lower().removeprefix("coregw_")
        if not equals or f"COREGW_{field.upper()}" not in known:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE with a name of --settings", param_hint="--set")
        given[field] = value
    return Settings.load(None, **given)


@click.command("serve")
@server_options
def command(data: Path | None, host: str | None, port: int | None, assignments: tuple[str, ...]) -> None:
    """Run a gateway on RocksDB, and say where it listens.

    Settings come from COREGW_* variables; options win over them. SIGINT or SIGTERM end it: requests under way finish,
    and the store is closed. With a token in PLANTS_ACCESS_TOKEN the sample plant store is served too, under /plants.
    """
    chosen = chosen_settings(data, host, port, assignments)

    from coregw.gateway import server
    from coregw.gateway.tokens import AccessToken
    from coregw.plants import service
    from coregw.plants.app import TOKEN_VARIABLE

    server.run(chosen, service=service.beside_gateway(AccessToken.from_environment(TOKEN_VARIABLE)))
