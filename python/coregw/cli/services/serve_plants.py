"""``coregw serve-plants``: run the sample plant store alone until it is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coregw.cli.framework import click
from coregw.cli.services.serve import chosen_settings, run_service, server_options

if TYPE_CHECKING:
    from coregw.gateway.server import Service

__all__ = ["command"]


@click.command("serve-plants")
@server_options
def command(
    worker: tuple[int, int] | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - those of `chosen_settings`
) -> None:
    """Run the sample plant store alone on a RocksDB store, and print its address.

    Clients must send the bearer token of PLANTS_ACCESS_TOKEN; if it is not set, plants can't be created. Settings,
    signals and the store are those of "coregw serve".
    """

    def service() -> Service:
        from coregw.plants.service import alone, token_from_environment

        return alone(token_from_environment())

    settings = chosen_settings(**options, as_json=as_json)
    run_service("serve-plants", settings, worker, service, as_json=as_json)
