"""Authenticated maps and lists: build them, prove what they hold, and verify what somebody else says they hold.

The trees, the proofs and their verification are the extension `coregw._core`, written in Rust; the clients are
imported when they are first asked for. This module only gathers names: importing it loads no HTTP and no server code.

    >>> import coregw
    >>> cid = coregw.payload_cid(b"hello")
    >>> cid
    'bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq'
    >>> m = coregw.Map({"docs/readme": cid, "docs/guide/intro": coregw.payload_cid(b"intro")})
    >>> proof = m.prove("docs/readme")                         # what a gateway sends
    >>> coregw.verify_key(m.root, "docs/readme", proof) == cid # what a client checks, with the root alone
    True
    >>> coregw.verify_key(m.root, "docs/nothing", m.prove("docs/nothing")) is None # absence is proven too
    True
    >>> coregw.verify_key(m.root, "docs/readme", proof[:-1])
    Traceback (most recent call last):
    ...
    coregw.errors.ProofError: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coregw._core import (
    Applied,
    Change,
    Cid,
    Diff,
    Element,
    List,
    Map,
    PayloadHasher,
    Range,
    ReadOutcome,
    Scan,
    __version__,
    encode_key,
    payload_cid,
    verify_changes,
    verify_index,
    verify_key,
    verify_key_many,
    verify_range,
    verify_scan,
)
from coregw.errors import (
    Conflict,
    CoregwError,
    IndexNotFound,
    InvalidInput,
    NotFound,
    PathNotFound,
    PayloadNotFound,
    ProofError,
    RecordNotFound,
    RootNotFound,
    StorageFull,
    StoreDamaged,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from coregw.verify import (
    verify_diff,
    verify_map_proof,
    verify_read,
    verify_resolve,
    verify_scan_result,
    verify_transition,
)

if TYPE_CHECKING:
    from coregw.client import AsyncClient, Client

__all__ = [
    "Applied",
    "AsyncClient",
    "Change",
    "Cid",
    "Client",
    "Conflict",
    "CoregwError",
    "Diff",
    "Element",
    "IndexNotFound",
    "InvalidInput",
    "List",
    "Map",
    "NotFound",
    "PathNotFound",
    "PayloadHasher",
    "PayloadNotFound",
    "ProofError",
    "Range",
    "ReadOutcome",
    "RecordNotFound",
    "RootNotFound",
    "Scan",
    "StorageFull",
    "StoreDamaged",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "__version__",
    "encode_key",
    "payload_cid",
    "verify_changes",
    "verify_diff",
    "verify_index",
    "verify_key",
    "verify_key_many",
    "verify_map_proof",
    "verify_range",
    "verify_read",
    "verify_resolve",
    "verify_scan",
    "verify_scan_result",
    "verify_transition",
]


def __getattr__(name: str) -> object:
    """The clients, on first use: they bring in HTTP code that a verifier has no need of."""
    if name not in {"AsyncClient", "Client"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coregw import client

    globals().update(AsyncClient=client.AsyncClient, Client=client.Client)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
