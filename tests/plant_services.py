"""Processes that serve the plant store on RocksDB, alone or beside a gateway."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import serving

TOKEN = "a-plant-token~of+the/tests=="
ALONE, BESIDE = "serve-plants", "serve"


def running(
    command: str, data: Path, token: str = TOKEN, **settings: object
) -> AbstractContextManager[serving.Process]:
    """Run ``coregw serve-plants`` or ``coregw serve`` on a free port during a block; it must end with exit code 0."""
    return serving.process(data, {"PLANTS_ACCESS_TOKEN": token}, command, **settings)
