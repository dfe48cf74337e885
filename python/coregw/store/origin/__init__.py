"""A store that reads pages, roots and payloads by name from somewhere else, and keeps nothing.

What it reads from is an `Upstream`: a gateway, or a static tree behind any web server (docs/protocol.md, section 8). It
is not trusted. Each object is compared with the digest in its name before it is returned (`Checks`); one that differs
raises `UpstreamDamaged`, which names its URL.

It accepts no writes. It has no dates either: that a root or payload is held is what the upstream said a moment ago.
"""

from coregw.store.origin.store import OriginStore
from coregw.store.origin.upstream import RAW, Checks, Hasher, Sink, Upstream, page_path, payload_path, root_path

__all__ = ["RAW", "Checks", "Hasher", "OriginStore", "Sink", "Upstream", "page_path", "payload_path", "root_path"]
