"""``coregw serve-plants``: run the sample plant store until it is stopped."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.framework import LOCAL_PATH, click

__all__ = ["serve_plants_command"]


@click.command("serve-plants")
@click.option(
    "--data",
    type=LOCAL_PATH,
    envvar="PLANTS_DATA",
    show_envvar=True,
    default="plants-data",
    show_default=True,
    help="Folder of the store; created if missing.",
)
@click.option(
    "--host",
    envvar="PLANTS_HOST",
    show_envvar=True,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="PLANTS_PORT",
    show_envvar=True,
    default=8081,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON, and log JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Log errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Log each request.")
def serve_plants_command(data: Path, host: str, port: int, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Run the sample plant store on a RocksDB store, and print its address.

    Clients must send the bearer token of PLANTS_ACCESS_TOKEN; if it is not set, plants can't be created. On SIGINT or
    SIGTERM, requests in flight finish, and the store is closed.
    """
    from coregw.cli.serve import announce_as_json, handle_hangup
    from coregw.gateway.listener import announce
    from coregw.gateway.logs import log_to_stderr
    from coregw.gateway.settings import Settings
    from coregw.plants.app import run

    handle_hangup()
    log_to_stderr(
        Settings(log_level="error" if quiet else "info", log_format="json" if as_json else "text", access_log=verbose)
    )
    run(data, host, port, announce_as_json if as_json else announce, logs_requests=verbose)
