"""The plant store as it is run, alone and beside a gateway: a process on RocksDB."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import serving

TOKEN = "a-plant-token~of+the/tests=="
ALONE, BESIDE = "serve-plants", "serve"


def running(
    command: str, data: Path, token: str = TOKEN, **settings: object
) -> AbstractContextManager[serving.Process]:
    """``coregw serve-plants`` or ``coregw serve`` on a free port, for the length of a block; it must end well."""
    return serving.process(data, {"PLANTS_ACCESS_TOKEN": token}, command, **settings)
