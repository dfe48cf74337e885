"""Bodies that take as much memory as possible for each of their bytes, for every route that accepts a body."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

import serving
from car_files import TYPE, block, cid, header

MIB = 1 << 20
SIZE = 4 * MIB
EMPTY = "bafkqaaa"
"""The shortest CID: the identity CID of no bytes."""


@dataclass(frozen=True)
class LargeBody:
    """A body, and where it goes."""

    route: str
    about: str
    body: bytes
    status: int
    headers: tuple[tuple[str, str], ...] = ()


def filled(before: str, item: str, after: str, size: int = SIZE) -> bytes:
    """A body of about `size` bytes, with as many of these items as fit."""
    items = (size - len(before) - len(after)) // (len(item) + 1)
    return (before + ",".join(itertools.repeat(item, items)) + after).encode()


def short_names(before: str, item: str, after: str, size: int = SIZE) -> bytes:
    """The same, with another name of four letters in place of ``%s`` in each item."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    items = (size - len(before) - len(after)) // (len(item) + 3)
    names = itertools.islice(itertools.product(letters, repeat=4), items)
    return (before + ",".join(item % "".join(name) for name in names) + after).encode()


def lines_of_arcs(size: int) -> bytes:
    """Lines of arcs with short paths, in no order."""
    names = itertools.product("zyxwvutsrqponmlkjihgfedcba", repeat=5)
    line = f'["%s","{EMPTY}"]\n'
    return "".join(line % "".join(name) for name in itertools.islice(names, size // (len(line) + 3))).encode()


def paths_of(key: str, before: str = "") -> Iterator[tuple[str, bytes]]:
    """Arrays of segments, as the last member of an object."""
    for about, segment in (("empty", '""'), ("short", '"a"')):
        yield f"{about} segments", filled(f'{{{before}"{key}":[', segment, "]}")


def bodies_of_queries(root: str, items: str) -> Iterator[LargeBody]:
    """Bodies of requests that store nothing, or not much, one at a time.

    Args:
        root: An empty map.
        items: A list of one element.
    """
    yield from _queries(root)
    yield from _verifications(root, items)
    yield from _others()
    yield from _batches(root)


def bodies_of_creations(root: str, items: str) -> Iterator[LargeBody]:
    """Bodies that make new trees of nothing, one at a time. Arguments as for `bodies_of_queries`."""
    yield LargeBody("/v1/roots", "one arc", filled('{"arcs":{', f'"a":"{EMPTY}"', "}}"), 400)
    yield LargeBody("/v1/roots", "empty arcs", filled('{"arcs":{', '"":""', "}}"), 400)
    yield LargeBody("/v1/roots", "short arcs", short_names('{"arcs":{', f'"%s":"{EMPTY}"', "}}", 2 * SIZE), 201)
    lines = (("content-type", "application/x-ndjson"),)
    for about, line in (("empty arrays", b"[]\n"), ("one arc", b'["a","%s"]\n' % EMPTY.encode())):
        yield LargeBody("/v1/roots", f"lines: {about}", line * (SIZE // len(line)), 400, lines)
    yield LargeBody("/v1/roots", "lines: blank", b"\n" * SIZE, 201, lines)
    yield LargeBody("/v1/roots", "lines: one long line", b'["' + b"a" * SIZE, 400, lines)
    yield LargeBody("/v1/roots", "lines: short arcs", lines_of_arcs(2 * SIZE), 201, lines)


def bodies_of_changes(root: str, items: str) -> Iterator[LargeBody]:
    """Bodies that make new trees of others, one at a time. Arguments as for `bodies_of_queries`."""
    yield from _changes(root, items)


def _queries(root: str) -> Iterator[LargeBody]:
    for route, profile, key in (
        ("/v1/resolve", "core.resolve/v0alpha1", "segments"),
        ("/v1/map-proof", "core.map-proof/v0alpha1", "key"),
        ("/v1/scan", "core.scan/v0alpha1", "prefix"),
    ):
        for about, body in paths_of(key, f'"profile":"{profile}","root":"{root}",'):
            yield LargeBody(route, f"{key}: {about}", body, 400)
    profile = '"profile":"core.map-proof/v0alpha1"'
    yield LargeBody("/v1/map-proof", "keys", filled(f'{{{profile},"root":"{root}","keys":[', '["a"]', "]}"), 400)
    for about, body in paths_of("segments"):
        query = b'{"profile":"core.read/v0alpha1","root":"%s","query":%s}' % (root.encode(), body)
        yield LargeBody("/v1/read", about, query, 400)
    yield LargeBody("/v1/resolve", "an escaped profile", b'{"profile":"%s"}' % (b"\\u0061" * (SIZE // 6)), 400)
    yield LargeBody("/v1/resolve", "unknown members", short_names("{", '"%s":0', "}"), 400)


def _batches(root: str) -> Iterator[LargeBody]:
    route = "/v1/resolve/batch"
    for path in ("[]", '["a"]'):
        yield LargeBody(route, f"paths {path}", filled(f'{{"root":"{root}","paths":[', path, "]}"), 413)
    long = json.dumps(["a"] * 2048, separators=(",", ":"))
    yield LargeBody(
        route, "1,000 long paths", filled(f'{{"root":"{root}","paths":[', long, "]}", 1000 * len(long)), 200
    )
    has = '"profile":"cas.has-batch/v0alpha1"'
    json_type = (("Content-Type", "application/json"),)  # without it, the body is CIDs in binary form
    for item in ('""', '"aa"'):
        yield LargeBody("/v1/cas/has", f"CIDs {item}", filled(f'{{{has},"cids":[', item, "]}"), 413, json_type)
    get = '"profile":"cas.get-batch/v0alpha1"'
    for item in ('""', f'"{EMPTY}"'):
        yield LargeBody("/v1/cas/car", f"CIDs {item}", filled(f'{{{get},"cids":[', item, "]}"), 413)
    yield LargeBody("/v1/cas/has", "the shortest CIDs", b"\x01\x55\x00\x00" * (SIZE // 4), 413)
    pages = '"profile":"pages.get-batch/v0alpha1"'
    for item in ('""', f'"{bytes(32).hex()}"'):
        yield LargeBody("/v1/pages/car", f"digests {item}", filled(f'{{{pages},"pages":[', item, "]}"), 413)


def _verifications(root: str, items: str) -> Iterator[LargeBody]:
    link, proof = '{"/":""}', '"evidence_kind":"","evidence_backend":"","proof":""'
    step = f'{{"kind":"","from":{link},{proof}}}'
    for route, request in (
        ("/v1/verify/resolve", {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["a"]}),
        (
            "/v1/verify/read",
            {"profile": "core.read/v0alpha1", "root": items, "query": {"kind": "list_range", "start": 0}},
        ),
    ):
        start = f'{{"request":{json.dumps(request)},"result":{{"prooflist":{{"root":{link},"steps":['
        yield LargeBody(route, "empty steps", filled(start, "{}", "]}}}"), 200)
        yield LargeBody(route, "short steps", filled(start, step, "]}}}"), 200)
        for member, item in (("sizes", "1"), ("segments", link), ("prefix", '"a"'), ("keys", '""')):
            one = f'{{"kind":"","from":{link},{proof},"{member}":['
            yield LargeBody(route, f"{member} {item}", filled(start + one, item, "]}]}}}"), 200)
    start = f'{{"request":{json.dumps(request)},"result":{{'
    yield LargeBody(route, "range segments", filled(f'{start}"range_segments":[', '""', "]}}"), 200)
    nodes = base64.b64encode(_list_proof(SIZE // 4 * 3)).decode()
    asked = {"/": items}
    sent = {"kind": "list_range", "from": asked, "start": 0, "length": 1, "total_size": 1, "segments": [], "sizes": []}
    sent |= {"offset": 0, "target": asked, "evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": nodes}
    result = {"profile": "core.read/v0alpha1", "target": items, "range_segments": []}
    result["prooflist"] = {"root": asked, "query": "range:0:", "steps": [sent]}
    yield LargeBody(route, "nodes of a proof", json.dumps({"request": request, "result": result}).encode(), 200)
    for about, body in paths_of("segments", f'"profile":"core.resolve/v0alpha1","root":"{root}",'):
        yield LargeBody("/v1/verify/resolve", f"request: {about}", b'{"request":%s,"result":{}}' % body, 400)


def _list_proof(size: int) -> bytes:
    """The pruned tree of a list of the smallest elements; the counts are powers of two."""
    leaf = b"\x11\x01\x04\x01\x55\x00\x00"
    tree = leaf
    while 2 * len(tree) + 1 <= size:
        tree = b"\x12" + tree + tree
    return tree


def _changes(root: str, items: str) -> Iterator[LargeBody]:
    of_map, of_list = f"/v1/roots/{root}/mutations", f"/v1/roots/{items}/mutations"
    start, of_maps, of_lists = '{"deltas":[{"changes":[', '],"kind":"map"}]}', '],"kind":"list"}]}'
    yield LargeBody(of_map, "changes {}", filled(start, "{}", of_maps), 400)
    yield LargeBody(of_map, 'changes {"path":"a"}', filled(start, '{"path":"a"}', of_maps), 409)
    yield LargeBody(of_map, "deltas", filled('{"deltas":[', '{"kind":"","changes":[]}', "]}"), 400)
    target = f'{{"target":"{EMPTY}"}}'
    elements = ",".join(f'{{"index":{index},"after":{target}}}' for index in range(1, SIZE // 23))
    yield LargeBody(of_list, "short elements", (start + elements + of_lists).encode(), 201)
    yield LargeBody(
        of_map, "short arcs", short_names(start, f'{{"path":"%s","after":{target}}}', of_maps, 2 * SIZE), 201
    )


def _others() -> Iterator[LargeBody]:
    admin = (("authorization", f"Bearer {serving.ADMIN_TOKEN}"),)
    publish = "/admin/v1/scopes/s/roots"
    escaped = "\\ud83c\\udf3f" + "a" * (SIZE - 100)
    yield LargeBody(publish, "unknown members", short_names("{", '"%s":0', "}"), 400, admin)
    yield LargeBody(publish, "a long name", f'{{"name":"{escaped}","root":""}}'.encode(), 400, admin)
    yield LargeBody("/admin/v1/scopes/s/roots/n/freeze", "bytes", bytes(SIZE), 400, admin)
    note = f'{{"checkpoint":"{escaped}"}}'.encode()
    yield LargeBody("/admin/v1/scopes/s/roots/n/checkpoint", "a long checkpoint", note, 400, admin)
    yield LargeBody("/v1/cas", "bytes", bytes(SIZE), 201)
    car_type = tuple(TYPE.items())
    top = cid(0x303110, b"\0")
    start = header(top) + block(top, b"\0")
    identity = block(b"\x01\x55\x00\x00", b"")
    yield LargeBody("/v1/car", "empty payloads", start + identity * (SIZE // len(identity)), 201, car_type)
    payloads = (block(cid(0x55, b"%d" % number), b"%d" % number) for number in range(SIZE // 43))
    yield LargeBody("/v1/car", "short payloads", start + b"".join(payloads), 201, car_type)
    leaves = [b"\x11%c\x04\x01\x55\x00\x00" % size for size in range(1, 128)]
    lists = b"".join(block(cid(0x303210, leaf), leaf) for leaf in leaves)
    yield LargeBody("/v1/car", "unreachable trees", start + lists * (SIZE // len(lists)), 400, car_type)
