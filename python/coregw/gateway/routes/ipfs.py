"""Blocks for IPFS clients: raw blocks, and CARs of one block, of the IPFS Trustless Gateway specification.

A block is a payload, or the tree node that a root CID names; clients hash it. A CAR is served if all that is requested
is one block. Payloads of codec `raw` are also served to clients that take any type, as files to download. Any other
request is refused, never guessed at: paths below a CID, IPNS, and CARs of several blocks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple, Self, cast
from urllib.parse import quote

from litestar import Request, route
from litestar.params import FromPath  # noqa: TC002 - Litestar reads annotations at run time

from coregw._core import Cid, block_head, car_header, entity_bytes, negotiate
from coregw.engine import StoredPayload
from coregw.engine.objects import RAW_CODEC, Scope
from coregw.errors import InvalidInput, NotFound
from coregw.gateway.context import Gateway
from coregw.gateway.description import CAR, DESCRIPTION, OCTETS, Description, Parameter
from coregw.gateway.replies import CONDITIONS, IMMUTABLE, Problem, Reply, Representation, conditional, gated
from coregw.gateway.requests import header, header_bytes, query_parameters

__all__ = ["handlers"]

_Format = Literal["raw", "car", "any"]
_RAW: Final = "application/vnd.ipld.raw"
_CAR_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "dag-scope": ("block", "entity", "all"),
    "car-version": ("1",),
    "car-order": ("dfs", "unk"),
    "car-dups": ("y", "n"),
}
_CARS: Final = [f"{CAR}; version=1; order={order}; dups={dups}" for order in ("dfs", "unk") for dups in "ny"]
"""With one block, each order is right, and blocks are repeated and not repeated."""
_OFFERS: Final = [OCTETS, _RAW, *_CARS]
_NO_FORMAT: Final = f"no format requested; expected ?format=raw, ?format=car, Accept: {_RAW} or Accept: {CAR}"
_NOT_IN_QUOTES: Final = re.compile(r'[^\x20-\x7e]|["\\]')
_CODES: Final = ("invalid_cid", "payload_not_found", "root_not_found", "precondition_failed")
_QUERY: Final[Mapping[str, str | Parameter]] = {
    "format": Parameter(
        "May be left out if Accept names `application/vnd.ipld.raw` or `application/vnd.ipld.car`.",
        {"type": "string", "enum": ["raw", "car"]},
    ),
    "filename": "The name in Content-Disposition; `{cid}.bin` or `{cid}.car` if absent.",
    "download": "Ignored: blocks are always attachments.",
    "dag-scope": Parameter(
        "How much a CAR has: more than one block is refused. `all` if absent.",
        {"type": "string", "enum": _CAR_CHOICES["dag-scope"]},
    ),
    "entity-bytes": Parameter(
        "The bytes of a file that are needed, `from:to`, some of which it must have: then the scope is `entity`.",
        {"type": "string", "pattern": r"^-?[0-9]{1,19}:(\*|-?[0-9]{1,19})$"},
    ),
    "car-version": Parameter("The version of a CAR.", {"type": "string", "enum": ["1"]}),
    "car-order": Parameter("The order of a CAR's blocks; with one, any.", {"type": "string", "enum": ["dfs", "unk"]}),
    "car-dups": Parameter("Whether a CAR may repeat blocks; `n` if absent.", {"type": "string", "enum": ["y", "n"]}),
}
_HEADERS: Final = {
    "ETag": "The normalised CID, and `.raw` or `.car` with the scope, in quotes.",
    "Cache-Control": IMMUTABLE,
    "Content-Disposition": "`attachment` with a file name.",
    "X-Ipfs-Path": "The requested path.",
    "X-Ipfs-Roots": "The requested CID.",
    "Vary": "`Accept`, if the query has no format, or no `car-dups` for a CAR.",
    "Content-Location": "The same with the format that is sent, if the query has none or Accept prefers another.",
}
_CONDITIONS: Final = (*CONDITIONS, "Cache-Control")
_OTHERS: Final = {
    304: "If-None-Match names the block, and it is held.",
}


@route(
    "/ipfs/{cid:str}",
    http_method=["GET", "HEAD"],
    name="block",
    opt={
        DESCRIPTION: {
            "GET": Description(
                "The block that a CID names: a payload, or the top node of a held root or stored page; hash it before "
                "use.",
                answer=(_RAW, CAR, OCTETS),
                codes=(*_CODES, "range_not_satisfiable"),
                query=_QUERY,
                request_headers=("Range", "If-Range", *_CONDITIONS),
                headers=_HEADERS | {"Content-Range": "Which bytes these are, with 206."},
                others=_OTHERS | {206: "The requested range of bytes."},
            ),
            "HEAD": Description(
                "Whether a block is held, and how long it is; Range is ignored.",
                codes=_CODES,
                query=_QUERY,
                request_headers=_CONDITIONS,
                headers=_HEADERS,
                others=_OTHERS,
            ),
        }
    },
)
async def block(request: Request[Any, Any, Any], cid: FromPath[str]) -> Reply:
    """``GET`` and ``HEAD /ipfs/{cid}``."""
    gateway, scope = Gateway.of(request), request.scope
    query = query_parameters(scope, *_QUERY)
    if (header(scope, b"service-worker") or "").strip().lower() == "script":
        raise InvalidInput("a block cannot be registered as a service worker")
    wanted = _Wanted.of(header_bytes(scope, b"accept") or b"", query)
    name = Cid(cid)
    try:
        content = await gateway.engine.payloads.find_block(name)
    except NotFound:
        if _only_if_cached(request):
            message = "the block is not held, and Cache-Control is only-if-cached"
            return Problem("precondition_failed", message).reply()
        raise
    if wanted.format == "any" and name.codec != RAW_CODEC:
        raise InvalidInput(f"{_NO_FORMAT}; only payloads of codec raw are served as files")
    headers = _headers(cid, name.text, query, wanted)
    if wanted.format == "car":
        return await _Car(name, content, query, wanted.dups, headers).reply(gateway, request)
    media_type, etag = (_RAW, f'"{name.text}.raw"') if wanted.format == "raw" else (OCTETS, f'"{name.text}"')
    return await Representation(content, media_type, etag, headers).reply(gateway, scope)


class _Wanted(NamedTuple):
    """What a request is for, by the ``format`` parameter or else by Accept.

    Attributes:
        format: A format, or any type.
        accepted: The format that Accept prefers; None if it accepts none.
        dups: Whether the blocks of a CAR may be repeated, ``y`` or ``n``: with one block both are true.
    """

    format: _Format
    accepted: _Format | None
    dups: str

    @classmethod
    def of(cls, accept: bytes, query: Mapping[str, str]) -> Self:
        """Return what Accept and the query parameters name.

        Raises:
            InvalidInput: If they name no format.
        """
        chosen = negotiate(accept, _OFFERS)
        accepted: _Format | None = None if chosen is None else ("any", "raw", "car")[min(chosen, 2)]
        asked = query.get("format", accepted)
        if asked is None:
            raise InvalidInput(_NO_FORMAT)
        if asked not in ("raw", "car") and "format" in query:
            raise InvalidInput(f"query parameter 'format' is {asked!r:.100}, expected raw or car")
        car = negotiate(accept, _CARS)
        dups = query.get("car-dups") or ("n" if car is None else _CARS[car][-1])
        return cls(cast("_Format", asked), accepted, dups)

    def headers(self, query: Mapping[str, str], path: str) -> dict[str, str]:
        """Return the headers of a response that depends on Accept."""
        found = {}
        decides_dups = self.format == "car" and "car-dups" not in query
        if "format" not in query or decides_dups:
            found["Vary"] = "Accept"
        if self.format != "any" and (self.accepted in ("raw", "car") and self.accepted != query.get("format")):
            named = {name: value for name, value in query.items() if value} | {"format": self.format}
            if decides_dups and self.dups == "y":
                named["car-dups"] = "y"
            rest = "".join(f"&{name}={quote(value, safe='')}" for name, value in named.items() if name != "format")
            found["Content-Location"] = f"{path}?format={self.format}{rest}"
        return found


class _Car(NamedTuple):
    """A CAR of one block.

    Attributes:
        cid: The CID of the block, which the header names as the root.
        content: The block.
        query: The query parameters.
        dups: Whether blocks may be repeated, ``y`` or ``n``.
        headers: The headers of a success besides those for caching.
    """

    cid: Cid
    content: StoredPayload | bytes
    query: Mapping[str, str]
    dups: str
    headers: Mapping[str, str]

    async def reply(self, gateway: Gateway, request: Request[Any, Any, Any]) -> Reply:
        """Return the response.

        Raises:
            InvalidInput: If the request is malformed, or for more than this block.
        """
        scope = self._scope()
        payloads = gateway.engine.payloads
        async with gateway.chunk_reads:
            found = await payloads.one_block(self.cid, self.content, scope)
        if found is None:
            raise InvalidInput(
                f"dag-scope {scope} of {self.cid.text} may be more than one block; request its blocks with format=raw"
            )
        content, asked = found.content, self.query.get("entity-bytes")
        if asked is not None:  # the part that it names is in the one block
            entity_bytes(asked, found.entity_size)
        etag = f'"{self.cid.text}.car.{scope}{"" if asked is None else f".{asked}"}"'
        headers = {"ETag": etag, "Cache-Control": IMMUTABLE, "Accept-Ranges": "none", **self.headers}
        if (unmet := conditional(request.scope, etag, headers)) is not None:
            return unmet
        head = car_header(self.cid)
        if self.cid.hash_name == "identity":
            content = b""  # the CID contains the block, so the CAR does not
        else:
            head += block_head(self.cid, _size(content))
        headers["Content-Length"] = str(len(head) + _size(content))
        parts = _parts(gateway, head, content)
        return Reply(parts, media_type=f"{CAR}; version=1; order=dfs; dups={self.dups}", headers=headers)

    def _scope(self) -> Scope:
        for name, allowed in _CAR_CHOICES.items():
            if (given := self.query.get(name)) is not None and given not in allowed:
                raise InvalidInput(f"query parameter {name!r} is {given!r:.100}, expected {' or '.join(allowed)}")
        asked = self.query.get("entity-bytes")
        if asked is not None:
            entity_bytes(asked, None)  # refuses what is malformed before anything is read
        return cast("Scope", self.query.get("dag-scope", "all" if asked is None else "entity"))


def _size(content: StoredPayload | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.size


async def _parts(gateway: Gateway, head: bytes, content: StoredPayload | bytes) -> AsyncGenerator[bytes, None]:
    """Yield a CAR: what precedes the block, and the block."""
    if isinstance(content, bytes):
        yield head + content
        return
    yield head
    async with aclosing(gated(gateway.engine.payloads.read(content, 0, content.size), gateway.chunk_reads)) as chunks:
        async for chunk in chunks:
            yield chunk


def _only_if_cached(request: Request[Any, Any, Any]) -> bool:
    directives = (header(request.scope, b"cache-control") or "").split(",")
    return "only-if-cached" in (directive.strip().lower() for directive in directives)


def _headers(requested: str, name: str, query: Mapping[str, str], wanted: _Wanted) -> dict[str, str]:
    """Return a block's headers besides those for caching. `requested` is a CID, so it is plain ASCII."""
    ending = "car" if wanted.format == "car" else "bin"
    return {
        "Content-Disposition": _attachment(query.get("filename") or f"{name}.{ending}"),
        "X-Ipfs-Path": f"/ipfs/{requested}",
        "X-Ipfs-Roots": requested,
        **wanted.headers(query, f"/ipfs/{quote(requested, safe='')}"),
    }


def _attachment(filename: str) -> str:
    """Return a Content-Disposition (RFC 6266): in ASCII, and if that loses something, in UTF-8 as well (RFC 8187)."""
    plain = _NOT_IN_QUOTES.sub("_", filename)
    encoded = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}"
    return f'attachment; filename="{plain}"{encoded}'


@route(
    "/ipfs/{cid:str}/{path:path}",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("Always refused: raw blocks have no paths below them.", status=400, query=_QUERY)},
)
async def below_block(cid: FromPath[str], path: FromPath[str]) -> None:
    """``GET`` and ``HEAD /ipfs/{cid}/{path}``: a 400, since a 404 would mean that the block is not held."""
    raise InvalidInput(f"path {path!r:.200}: raw blocks have no paths below them; request /ipfs/{cid}")


handlers: Final = (block, below_block)
