"""``coregw serve``: run a gateway until it is stopped. Its options are shared by every command that serves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coregw.cli.framework import click

if TYPE_CHECKING:
    from coregw.gateway.server import Service
    from coregw.gateway.settings import Settings

__all__ = ["chosen_settings", "command", "run_service", "server_options"]

F = TypeVar("F", bound=Callable[..., Any])


def _show_settings(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from rich.console import Console
    from rich.table import Table

    from coregw.plants.settings import PlantSettings as Settings

    table = Table("variable", "default", "meaning", box=None, pad_edge=False)
    for row in Settings.describe():
        table.add_row(*row)
    Console().print(table)
    context.exit()


def server_options(command: F) -> F:
    """Add the options of every command that serves: those of `chosen_settings`, ``--worker`` and ``--settings``."""
    for option in (
        click.option(
            "--settings",
            "show_settings",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_settings,
            help="Show all settings with their defaults, and exit.",
        ),
        click.option(
            "--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Any other setting; repeatable."
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, 256),
            help="Number of processes that serve one store; 1 by default.",
        ),
        # The owner process gives this option to the workers that it starts.
        click.option("--worker", type=(int, int), hidden=True),
        click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one."),
        click.option("--host", help="Address to listen on; loopback by default."),
        click.option("--data", type=click.Path(path_type=Path), help="Folder of the store; created if missing."),
    ):
        command = option(command)
    return command


def chosen_settings(
    data: Path | None, host: str | None, port: int | None, workers: int | None, assignments: tuple[str, ...]
) -> Settings:
    """Return the settings of the environment, overridden by the options."""
    from coregw.plants.settings import PlantSettings as Settings

    given: dict[str, object] = {"data": data, "host": host, "port": port, "workers": workers}
    known = {variable for variable, _, _ in Settings.describe()}
    for text in assignments:
        name, equals, value = text.partition("=")
        field = name.strip().lower().removeprefix("coregw_")
        if not equals or f"COREGW_{field.upper()}" not in known:
            raise click.BadParameter(
                f"{text!r}: expected NAME=VALUE with a name that --settings lists", param_hint="--set"
            )
        given[field] = value
    return Settings.load(None, **given)


def run_service(name: str, settings: Settings, worker: tuple[int, int] | None, service: Callable[[], Service]) -> None:
    """Run a service as a single process, as the owner of workers, or as a worker.

    Args:
        name: The name of the command, with which the owner process starts its workers.
        settings: The settings.
        worker: In a worker process, the value of ``--worker``; otherwise None.
        service: Creates the service; not called in the owner process.
    """
    if worker is None and settings.workers > 1:
        from coregw.gateway import workers

        workers.run(settings, [sys.executable, "-P", "-m", "coregw", name, "--worker"])
        return
    from coregw.gateway import server

    if worker is None:
        server.run(settings, service=service())
    else:
        server.run_worker(settings, *worker, service=service())


@click.command("serve")
@click.option("--upstream", metavar="URL", help="Serve as an edge of this gateway, or static+URL of a static tree.")
@server_options
def command(
    worker: tuple[int, int] | None,
    upstream: str | None,
    assignments: tuple[str, ...],
    **options: Any,  # noqa: ANN401 - those of `chosen_settings`
) -> None:
    """Run a gateway on a RocksDB store, and print its address.

    Settings come from COREGW_* environment variables; options override them. On SIGINT or SIGTERM, requests in flight
    finish, and the store is closed. With --upstream, the store is a bounded cache of the upstream, and nothing can be
    written. If PLANTS_ACCESS_TOKEN is set, the sample plant store is served as well,
    under /plants.
    """

    def service() -> Service:
        from coregw.plants.service import beside_gateway, token_from_environment

        return beside_gateway(token_from_environment())

    if upstream is not None:
        assignments = (*assignments, f"upstream={upstream}")
    run_service("serve", chosen_settings(**options, assignments=assignments), worker, service)
