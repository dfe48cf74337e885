"""``coregw serve-plants``: runs the sample plant store alone until it is told to stop."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from coregw.cli.serve import chosen_settings, server_options

__all__ = ["command"]


@click.command("serve-plants")
@server_options
def command(data: Path | None, host: str | None, port: int | None, assignments: tuple[str, ...]) -> None:
    """Run the sample plant store alone on RocksDB, and say where it listens.

    Clients carry the bearer token that is in PLANTS_ACCESS_TOKEN; without one there is nothing to create plants by.
    Settings, signals and the store are as those of serve.
    """
    chosen = chosen_settings(data, host, port, assignments)

    from coregw.gateway import server
    from coregw.gateway.tokens import AccessToken
    from coregw.plants import service
    from coregw.plants.app import TOKEN_VARIABLE

    server.run(chosen, service=service.alone(AccessToken.from_environment(TOKEN_VARIABLE)))
