"""``coregw serve``: runs a gateway until it is told to stop."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

__all__ = ["command"]


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


@click.command("serve")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the store; made if missing.")
@click.option("--host", help="Address to listen on; loopback unless told otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Any other setting; may be repeated.")
@click.option(
    "--settings",
    "show_settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_settings,
    help="Show all settings with their defaults, and stop.",
)
def command(data: Path | None, host: str | None, port: int | None, assignments: tuple[str, ...]) -> None:
    """Run a gateway on RocksDB, and say where it listens.

    Settings come from COREGW_* variables; options win over them. SIGINT or SIGTERM end it: requests under way finish,
    and the store is closed.
    """
    from coregw.gateway.settings import Settings

    given: dict[str, object] = {"data": data, "host": host, "port": port}
    known = {variable for variable, _, _ in Settings.describe()}
    for text in assignments:
        name, equals, value = text.partition("=")
        field = name.strip().lower().removeprefix("coregw_")
        if not equals or f"COREGW_{field.upper()}" not in known:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE with a name of --settings", param_hint="--set")
        given[field] = value
    chosen = Settings.load(None, **given)

    from coregw.gateway import server

    server.run(chosen)
