"""The targets of files, by the slow model of their chunks and the public classes."""

from __future__ import annotations

import coregw
from folder_model import chunks


def slow_target(data: bytes, suite: str) -> str:
    """The target of a file with these bytes (protocol section 7)."""
    cids = [coregw.payload_cid(chunk) for chunk in chunks(data)]
    return cids[0] if len(cids) == 1 else coregw.List(cids, [len(chunk) for chunk in chunks(data)], suite).root
