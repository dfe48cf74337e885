"""``coregw witness``: run a witness of transparency logs."""

from __future__ import annotations

from pathlib import Path

from coregw.cli.framework import LOCAL_PATH, click
from coregw.cli.trust.common import signer_of

__all__ = ["command"]


@click.command("witness")
@click.option(
    "--key",
    type=LOCAL_PATH,
    required=True,
    help="File with the private key of the witness.",
)
@click.option("--name", required=True, help="Name of the witness, such as witness.example.org.")
@click.option(
    "--log", "logs", metavar="VKEY", multiple=True, required=True, help="Key of a log to cosign (repeatable)."
)
@click.option(
    "--state",
    type=LOCAL_PATH,
    required=True,
    help="File that remembers what was cosigned.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7380, show_default=True, help="0 picks a free one.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON, and log JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Log errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Log each request.")
def command(
    *,
    key: Path,
    name: str,
    logs: tuple[str, ...],
    state: Path,
    host: str,
    port: int,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run a witness (c2sp.org/tlog-witness): it cosigns checkpoints that continue what it has cosigned before.

    Clients that require its cosignature cannot be shown different histories by a gateway or operator. Keep the file
    --state: a witness that loses it may cosign two histories. A reverse proxy has to provide TLS.
    """
    import asyncio

    from coregw.cli.services.serve import announce_as_json
    from coregw.gateway.listener import announce, loop_factory
    from coregw.gateway.logs import log_to_stderr
    from coregw.gateway.server import GatewayServer
    from coregw.gateway.settings import Settings
    from coregw.store.memory import MemoryStore
    from coregw.tlog.note import VerifierKey
    from coregw.witness.app import witness_service
    from coregw.witness.cosigning import Witness

    witness = Witness(state, signer_of(key, name, is_witness=True), [VerifierKey.parse(each) for each in logs])
    settings = Settings(
        host=host,
        port=port,
        hosts="*",
        data=state.parent,
        log_level="error" if quiet else "info",
        access_log=verbose,
        log_format="json" if as_json else "text",
    )
    log_to_stderr(settings)
    on_ready = announce_as_json if as_json else announce
    server = GatewayServer(settings, MemoryStore(), on_ready, service=witness_service(witness))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(server.serve())
