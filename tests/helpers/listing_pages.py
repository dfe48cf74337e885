"""Pages of listings as a gateway proves them, made of maps in memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from coregw import Map, _core

PROFILE = "core.scan/v0alpha1"

Segments = Sequence[str]


def page(tree: Map, after: Segments | None = None, limit: int = 2, prefix: Segments = ()) -> tuple[bytes, bytes]:
    """A request for a page of a listing, and its result."""
    found = tree.scan(list(prefix), after=None if after is None else list(after), limit=limit)
    link = {"/": tree.root}
    asked: dict[str, Any] = {"prefix": list(prefix)} | ({} if after is None else {"after": list(after)})
    step = {"kind": "map_scan", "from": link, "target": link, **asked, "limit": limit, "more": found.more}
    evidence = {
        "evidence_kind": "tree",
        "evidence_backend": "sha2-256",
        "proof": base64.b64encode(found.proof).decode(),
    }
    prooflist = {"root": link, "query": f"scan:{'/'.join(prefix)}", "steps": [step | evidence]}
    entries = [{"segments": segments, "target": target} for segments, target in found.entries]
    result = {"profile": PROFILE, "entries": entries, "more": found.more, "prooflist": prooflist}
    request = {"profile": PROFILE, "root": tree.root, **asked, "limit": limit}
    return json.dumps(request).encode(), json.dumps(result).encode()


def listing(files: Mapping[str, str]) -> _core.FolderListing:
    """The complete listing of a folder's map without attributes."""
    made = _core.FolderListing(Map(files).root)
    made.add_files(*page(Map(files), limit=1_000))
    return made
