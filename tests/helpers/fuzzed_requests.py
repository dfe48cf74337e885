"""Requests made of the examples of a gateway by random changes: of methods, targets, headers and bodies.

The changes are such as any HTTP library sends on; `test_smuggling` has those of framing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2

import coregw
import documented
import serving

__all__ = ["Sent", "changed", "examples_of"]

HELD = coregw.payload_cid(b"hello")
ABSENT = coregw.payload_cid(b"stored by no test")
EMPTY_MAP = coregw.Map({}).root

_JSON = {"content-type": "application/json"}
_CAR = {"content-type": "application/vnd.ipld.car"}
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
_SEGMENTS = (
    HELD,
    ABSENT,
    EMPTY_MAP,
    HELD[:-1],
    HELD.upper(),
    "hello",
    "",
    ".",
    "..",
    "%2e%2e",
    "%2F",
    "%00",
    "%ff",
    "%",
    "%zz",
    "%f0%9f%8c%bf",
    "a" * 3000,
    "%61" * 500,
    "0",
    "-1",
    ";",
    "*",
    "car",
    "has",
    "batch",
    "@payload",
)
_VALUES = (
    "",
    "0",
    "1",
    "-1",
    "true",
    "1.5",
    "1e3",
    "9" * 30,
    "9007199254740992",
    HELD,
    EMPTY_MAP,
    "docs/guide",
    "docs%2Fguide",
    "%00",
    "%ff",
    "%",
    "+",
    "/",
    "a//b",
    "a" * 3000,
    "%5B%5D",
    "raw",
    "y",
    "y,y",
    "*",
)
_NAMES = (
    "path",
    "paths",
    "segments",
    "key",
    "prefix",
    "limit",
    "after",
    "index",
    "start",
    "end",
    "codec",
    "suite",
    "payloads",
    "bare",
    "have",
    "format",
    "dag-scope",
    "entity-bytes",
    "revision",
    "since",
    "x",
)
_FIELDS: dict[str, tuple[str, ...]] = {
    "accept": (
        "*/*",
        "application/json",
        "application/vnd.ipld.raw",
        "application/vnd.ipld.car; version=1; order=dfs; dups=n",
        "application/vnd.ipld.car;version=3",
        "application/octet-stream;q=0",
        "text/html, */*;q=0.1",
        ";;,,",
        "a/b;q=9",
        "x" * 2000,
        ",".join(f"a/b{number}" for number in range(300)),
    ),
    "accept-encoding": ("gzip", "identity;q=0", "*;q=0", "br, zstd"),
    "access-control-request-headers": ("authorization, x", ""),
    "access-control-request-method": ("POST", "BREW", ""),
    "authorization": (
        "Bearer x",
        "Bearer",
        "Basic eDp5",
        "bearer " + serving.ADMIN_TOKEN,
        f"Bearer {serving.ADMIN_TOKEN}, Bearer x",
        "Bearer " + "x" * 3000,
    ),
    "cache-control": ("no-cache", "only-if-cached", "max-age=x"),
    "content-encoding": ("gzip", "identity", "br, gzip", ""),
    "content-type": (
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=utf-16",
        "application/x-ndjson",
        "application/vnd.ipld.car; version=1",
        "application/vnd.ipld.car; version=2",
        "application/octet-stream",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "application/json" + " " * 2000 + "x",
        "/",
        "",
    ),
    "expect": ("100-continue", "200-ok"),
    "forwarded": ("for=1.2.3.4;host=b",),
    "host": ("localhost", "evil.example", "127.0.0.1:1", "[::1]"),
    "if-match": ("*", '"x"', f'"{HELD}"', 'W/"x"', "x", '"', ",".join(['"x"'] * 300)),
    "if-modified-since": ("Thu, 01 Jan 1970 00:00:00 GMT", "x"),
    "if-none-match": ("*", f'"{HELD}"', f'W/"{HELD}", "x"', '"', ""),
    "if-range": (f'"{HELD}"', "x", 'W/"x"'),
    "origin": ("null", "http://evil.example", "http://localhost", "x"),
    "range": (
        "bytes=0-0",
        "bytes=1-",
        "bytes=-1",
        "bytes=-0",
        "bytes=5-1",
        "bytes=0-0,2-2",
        "bytes=" + ",".join(f"{number}-{number}" for number in range(500)),
        f"bytes={1 << 64}-",
        f"bytes=0-{1 << 70}",
        "bytes=",
        "bytes=a-b",
        "items=0-1",
        "bytes 0-1",
    ),
    "sec-fetch-site": ("cross-site", "same-origin", "x"),
    "traceparent": ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x"),
    "x-forwarded-for": ("1.2.3.4", "x"),
    "x-request-id": ("a", "x" * 3000, ""),
}
_JSON_VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    1e300,
    (1 << 53) - 1,
    1 << 53,
    1 << 64,
    "",
    "\0",
    "a//b",
    "/",
    "é",
    "\U0001f33f",
    "x" * 5000,
    HELD,
    ABSENT,
    EMPTY_MAP,
    "QUJD",
    [],
    {},
    [[]],
    {"/": HELD},
    [HELD] * 1100,
)
_BODIES = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"' + b"a" * 100_000,
    b"[" * 100_000,
    b'{"a":' * 40 + b"1" + b"}" * 40,
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b'{"root":"\\ud800"}',
    b'{"root":"\xed\xa0\x80"}',
    b'{"arcs":{},"arcs":{}}',
    b'{"n":' + b"9" * 5000 + b"}",
    b'{"n":1e' + b"9" * 400 + b"}",
    b"{}" + b" " * 1000 + b"x",
    b"\n\n\n",
    b"\x3a\xa2eroots\x80gversion\x01",
    b"\xff" * 300,
    bytes(70_000),
)


@dataclass(frozen=True)
class Sent:
    """A request.

    Attributes:
        method: The method.
        target: Path and query, as they are sent.
        fields: Headers, without those that frame the body.
        body: The body.
    """

    method: str
    target: str
    fields: dict[str, str]
    body: bytes

    def by(self, client: httpx2.Client) -> httpx2.Response:
        """Send it with a client that has the address of a gateway."""
        whole = {"target": self.target.encode()}
        return client.request(self.method, "/", headers=self.fields, content=self.body, extensions=whole)


def examples_of(url: str) -> list[Sent]:
    """Fill a gateway by the examples of its document. Returns these requests, and imports of the CARs in responses."""
    seen: list[Sent] = []

    def note(request: httpx2.Request) -> None:
        own = {"host", "connection", "content-length", "user-agent", "accept-encoding"}
        fields = {name: value for name, value in request.headers.items() if name not in own}
        seen.append(Sent(request.method, request.url.raw_path.decode(), fields, request.read()))

    with httpx2.Client(base_url=url, timeout=60, event_hooks={"request": [note]}) as client:
        document = client.get("/openapi.json").json()
        answers = [answer for _, _, answer in documented.replay(client, document, serving.ADMIN_TOKEN)]
    cars = [
        answer.content for answer in answers if answer.headers.get("content-type", "").startswith(_CAR["content-type"])
    ]
    assert all(answer.status_code < 500 for answer in answers)
    assert cars
    return seen + [Sent("POST", "/v1/car", _CAR, car) for car in cars]


def changed(examples: list[Sent], seed: int) -> Iterator[Sent]:
    """Endless requests, each an example with one to three changes."""
    rng = random.Random(seed)
    bodies = [each.body for each in examples if each.body]
    while True:
        request = rng.choice(examples)
        for _ in range(rng.randint(1, 3)):
            request = rng.choice(_CHANGES)(request, rng, bodies)
        yield request


def _method(request: Sent, rng: random.Random, _: Iterable[bytes]) -> Sent:
    return replace(request, method=rng.choice(_METHODS))


def _path(request: Sent, rng: random.Random, _: Iterable[bytes]) -> Sent:
    path, mark, query = request.target.partition("?")
    segments = path.split("/")[1:]
    at = rng.randrange(len(segments))
    kind = rng.randrange(6)
    if kind == 0:
        del segments[at]
    elif kind == 1:
        segments.insert(at, rng.choice(_SEGMENTS))
    elif kind == 2:  # the same path, spelled differently
        segments[at] = "".join(f"%{ord(each):02x}" if rng.random() < 0.2 else each for each in segments[at])
    else:
        segments[at] = rng.choice(_SEGMENTS)
    return replace(request, target="/" + "/".join(segments) + mark + query)


def _query(request: Sent, rng: random.Random, _: Iterable[bytes]) -> Sent:
    path, _, query = request.target.partition("?")
    parts = query.split("&") if query else []
    if parts and rng.random() < 0.5:
        at = rng.randrange(len(parts))
        name = parts[at].partition("=")[0]
        parts[at : at + 1] = rng.choice([[], [parts[at]] * 2, [name], [f"{name}={rng.choice(_VALUES)}"]])
    else:
        parts.insert(rng.randint(0, len(parts)), f"{rng.choice(_NAMES)}={rng.choice(_VALUES)}")
    return replace(request, target=path + "?" + "&".join(parts))


def _field(request: Sent, rng: random.Random, _: Iterable[bytes]) -> Sent:
    if request.fields and rng.random() < 0.1:
        return replace(request, fields={})
    name = rng.choice([*_FIELDS])
    return replace(request, fields=request.fields | {name: rng.choice(_FIELDS[name])})


def _body(request: Sent, rng: random.Random, bodies: list[bytes]) -> Sent:
    body = request.body or rng.choice(bodies)
    kind = rng.randrange(8)
    at = rng.randrange(len(body))
    if kind == 0:
        body = body[:at]
    elif kind == 1:
        body = body[:at] + rng.randbytes(1) + body[at + rng.randint(0, 1) :]
    elif kind == 2:
        body = rng.choice(_BODIES)
    elif kind == 3:
        body = rng.choice(bodies)
    elif kind == 4:
        body += rng.choice([body, b" ", b"\0", b"{}"])
    else:
        body = _json(body, rng)
    return replace(request, body=body)


def _json(body: bytes, rng: random.Random) -> bytes:
    """A body in which one value of JSON is another, is missing, or is there twice."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    places = [*_places(value)]
    if not places:
        return json.dumps(rng.choice(_JSON_VALUES)).encode()
    holder, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice([*_NAMES, "é", "", "\0"])] = holder[key]
    elif kind == 1:
        holder.extend([holder[key]] * rng.choice([1, 1100]))
    else:
        holder[key] = rng.choice(_JSON_VALUES)
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON
    """All containers in a value of JSON with the keys and indices of what they contain."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in members:
        yield value, key
        yield from _places(each)


_Change = Callable[[Sent, random.Random, list[bytes]], Sent]
_CHANGES: tuple[_Change, ...] = (_method, _path, _path, _query, _query, _field, _field, _field, _body, _body, _body)
