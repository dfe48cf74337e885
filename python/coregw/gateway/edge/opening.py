"""Making the engine of an edge from its settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from coregw.client import ClientSettings, ConnectionOptions
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.address import Address
from coregw.gateway.edge.engine import EdgeEngine, WritingEdgeEngine
from coregw.gateway.edge.names import UPSTREAM_TOKEN_VARIABLE, UpstreamNames
from coregw.gateway.edge.writes import UPSTREAM_WRITE_TOKEN_VARIABLE, UpstreamWrites
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken
from coregw.store import Store

__all__ = ["edge_engine"]

_SETTINGS = ClientSettings(connect_seconds=2.0, attempts=2, retry_seconds=5.0)
"""As long for an answer as a client waits: the upstream may build a map of millions of arcs. Few retries: clients of an
edge have retries of their own."""


def edge_engine(settings: Settings, spool: Path | None, store: Store, **limits: Any) -> EdgeEngine:  # noqa: ANN401
    """Return an engine over the store of an edge.

    Args:
        settings: The settings of the gateway.
        spool: The folder of temporary files, if any.
        store: The store.
        limits: As those of `coregw.engine.Engine`.

    Raises:
        InvalidInput: The upstream is not an address, a token cannot be sent in a header, or a variable of the
            connections to the upstream is malformed.
    """
    token, write_token = _token(UPSTREAM_TOKEN_VARIABLE), _token(UPSTREAM_WRITE_TOKEN_VARIABLE)
    connection = ConnectionOptions.from_environment(side="upstream")
    upstream = HttpUpstream(Address.parse(settings.upstream), _SETTINGS, connection)
    takes_writes = settings.upstream_writes == "pass"
    lifetime = settings.upstream_name_seconds
    names = UpstreamNames(store, upstream, token, lifetime, takes_writes=takes_writes and token is not None)
    if not takes_writes:
        return EdgeEngine(store, upstream, names, **limits)
    writes = UpstreamWrites(upstream, spool, settings.reserve_bytes, write_token)
    return WritingEdgeEngine(store, upstream, names, writes, **limits)


def _token(variable: str) -> str | None:
    """Return the token in an environment variable, if any. Raises `InvalidInput` if it cannot be sent in a header."""
    token = os.environ.get(variable) or None
    if token is not None:
        AccessToken(variable, token)
    return token
