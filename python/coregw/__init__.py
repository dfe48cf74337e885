"""Authenticated maps and lists: build them, prove their content, and verify proofs from others.

Trees, proofs and verification are implemented in Rust, in the extension `coregw._core`; they need no other package.
`Client` and `AsyncClient` need the ``client`` extra, and are imported on first use, so `import coregw` stays fast.

    >>> import coregw
    >>> cid = coregw.payload_cid(b"hello")
    >>> cid
    'bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq'
    >>> m = coregw.Map({"docs/readme": cid, "docs/guide/intro": coregw.payload_cid(b"intro")})
    >>> proof = m.prove("docs/readme")                         # what a gateway sends
    >>> coregw.verify_key(m.root, "docs/readme", proof) == cid # what a client checks, knowing only the root
    True
    >>> coregw.verify_key(m.root, "docs/nothing", m.prove("docs/nothing")) is None # absence is proven, too
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
    Attributes,
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
    chunk_sizes,
    decode_attributes,
    encode_attributes,
    encode_key,
    payload_cid,
    verify_changes,
    verify_index,
    verify_key,
    verify_key_many,
    verify_keys,
    verify_range,
    verify_scan,
)
from coregw.building import build
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
    UnprovenAbsence,
    UpstreamDamaged,
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
    from coregw.folders.tree import hash_tree, verify_tree
    from coregw.trust import TrustStore

__all__ = [
    "Applied",
    "AsyncClient",
    "Attributes",
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
    "TrustStore",
    "Unauthorized",
    "Unavailable",
    "UnprovenAbsence",
    "UpstreamDamaged",
    "__version__",
    "build",
    "chunk_sizes",
    "decode_attributes",
    "encode_attributes",
    "encode_key",
    "hash_tree",
    "payload_cid",
    "verify_changes",
    "verify_diff",
    "verify_index",
    "verify_key",
    "verify_key_many",
    "verify_keys",
    "verify_map_proof",
    "verify_range",
    "verify_read",
    "verify_resolve",
    "verify_scan",
    "verify_scan_result",
    "verify_transition",
    "verify_tree",
]


_CLIENTS = {"AsyncClient": "coregw.client.aio", "Client": "coregw.client.sync"}
_LAZY = _CLIENTS | dict.fromkeys(("hash_tree", "verify_tree"), "coregw.folders.tree")
_LAZY["TrustStore"] = "coregw.trust"


def __getattr__(name: str) -> object:
    """Import a name on first use. Raises `ImportError`, naming the extra, if it can't be imported."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value: object = getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        from coregw.extras import missing_extra

        raise missing_extra(error, f"coregw.{name}", "client") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    missing = set() if find_spec("pycurl") else {*_CLIENTS, "TrustStore"}  # so that help() works without the extra
    return sorted({*globals(), *__all__} - missing)
