"""``coregw serve-plants``: runs the sample plant store alone until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from coregw.cli.serve import chosen_settings, run_service, server_options

if TYPE_CHECKING:
    from coregw.gateway.server import Service

__all__ = ["command"]


@click.command("serve-plants")
@server_options
def command(worker: tuple[int, int] | None, **options: Any) -> None:  # noqa: ANN401 - those of `chosen_settings`
    """Run the sample plant store alone on RocksDB, and say where it listens.

    Clients carry the bearer token that is in PLANTS_ACCESS_TOKEN; without one there is nothing to create plants by.
    Settings, signals and the store are as those of serve.
    """

    def service() -> Service:
        from coregw.gateway.tokens import AccessToken
        from coregw.plants.app import TOKEN_VARIABLE
        from coregw.plants.service import alone

        return alone(AccessToken.from_environment(TOKEN_VARIABLE))

    run_service("serve-plants", chosen_settings(**options), worker, service)
