"""What schemathesis loads beside a document: CARs as bodies, and CIDs that the gateway holds in place of most texts."""

from __future__ import annotations

from typing import Any, Final

import schemathesis

import coregw

HELLO: Final = coregw.payload_cid(b"hello")
ARCS: Final = {"@payload": HELLO, "docs/guide": coregw.payload_cid(b"the guide"), "docs/readme": HELLO}
CIDS: Final = [coregw.Map(ARCS).root, HELLO, coregw.Map({}).root, coregw.payload_cid(b"not held")]
"""The first three are held by a gateway that has answered the examples of its document."""

NAMED_BY_CID: Final = frozenset({"cid", "root", "a", "b", "object", "expected_root", "target", "cids", "/"})
"""Members and parameters whose values are CIDs."""


@schemathesis.hook("map_path_parameters")
@schemathesis.hook("map_body")
def lead_somewhere(_: schemathesis.HookContext, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Any JSON, with real CIDs for four of five texts where CIDs are meant."""
    return _with_cids(value, is_cid=False)


def _with_cids(value: Any, *, is_cid: bool) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _with_cids(each, is_cid=name in NAMED_BY_CID) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_cids(each, is_cid=is_cid) for each in value]
    if is_cid and isinstance(value, str):
        return [*CIDS, value][sum(value.encode("utf-8", "surrogatepass")) % 5]  # by the text, so that a seed is enough
    return value


@schemathesis.serializer("application/vnd.ipld.car")
def car(_: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Bytes as they are, and the text of all else: no CAR, but something that is sent as one."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
