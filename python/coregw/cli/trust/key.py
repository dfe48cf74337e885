"""``coregw key``: make the key of a log, and print its public part."""

from __future__ import annotations

import os
from pathlib import Path

from coregw.cli.common import json_option, show_result
from coregw.cli.framework import LOCAL_PATH, click
from coregw.cli.trust.common import signer_of

__all__ = ["command"]


@click.command("key")
@click.argument("file", type=LOCAL_PATH)
@click.option("--name", required=True, help="Name of the key: the origin of the log, such as example.org/docs/main.")
@json_option
def command(file: Path, name: str, as_json: bool) -> None:
    """Print the public key (vkey) of the Ed25519 private key in FILE, which is created if missing.

    FILE is unencrypted PEM (PKCS #8), readable only by its owner. One FILE may sign the logs of several names.
    """
    from coregw.tlog.note import new_private_key

    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(new_private_key())
            opened.flush()
            os.fsync(opened.fileno())
    signer = signer_of(file, name)
    show_result(as_json, str(signer.key), key=str(signer.key))
