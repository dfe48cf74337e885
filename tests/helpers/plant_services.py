"""A process that serves the plant store on RocksDB."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import serving

TOKEN = "a-plant-token~of+the/tests=="


def running(data: Path, token: str = TOKEN) -> AbstractContextManager[serving.Process]:
    """Run ``coregw serve-plants`` on a free port during a block; it must end with exit code 0."""
    return serving.process(data, {"PLANTS_ACCESS_TOKEN": token, "PLANTS_PORT": "0"}, "serve-plants")
