"""Hooks of schemathesis: CARs and lines as request bodies, and CIDs that the gateway holds instead of most strings."""

from __future__ import annotations

from typing import Any, Final

import schemathesis

import coregw

HELLO: Final = coregw.payload_cid(b"hello")
ARCS: Final = {"@payload": HELLO, "docs/guide": coregw.payload_cid(b"the guide"), "docs/readme": HELLO}
CIDS: Final = [coregw.Map(ARCS).root, HELLO, coregw.Map({}).root, coregw.payload_cid(b"not held")]
"""The first three are held by a gateway after the examples of its document."""

NAMED_BY_CID: Final = frozenset({"cid", "root", "a", "b", "object", "expected_root", "target", "cids", "/"})
"""Members and parameters whose values are CIDs."""


@schemathesis.hook("map_path_parameters")
@schemathesis.hook("map_body")
def lead_somewhere(_: schemathesis.HookContext, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Replace four of five strings by real CIDs where CIDs are expected."""
    return _with_cids(value, is_cid=False)


def _with_cids(value: Any, *, is_cid: bool) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _with_cids(each, is_cid=name in NAMED_BY_CID) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_cids(each, is_cid=is_cid) for each in value]
    if is_cid and isinstance(value, str):
        choice = sum(value.encode("utf-8", "surrogatepass")) % 5  # by the value alone, so that a seed reproduces a run
        return [*CIDS, value][choice]
    return value


@schemathesis.serializer("application/vnd.ipld.car")
def car(_: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Return bytes unchanged, and anything else as text: not a CAR, but sent as one."""
    return _bytes(value)


@schemathesis.serializer("application/x-ndjson")
def lines(_: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """Return text as it is, the lines of an example; anything else is sent as if it were lines."""
    return _bytes(value)


def _bytes(value: Any) -> bytes:  # noqa: ANN401
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
