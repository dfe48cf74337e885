"""The documentation page: a viewer of the OpenAPI document beside it, all from here, so that it works offline.

Leaves out the document (`openapi`; the plant store has its own) and the viewer itself (``viewer/``).
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from litestar import Response, route

from coregw.gateway.bodies import query_parameters
from coregw.gateway.conditions import etag_listed
from coregw.gateway.openapi import DOC, Doc
from coregw.gateway.problems import AnyRequest

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

__all__ = ["page_handlers"]

_SCRIPT: Final = "text/javascript"
_PAGE: Final = ("index.html", "text/html")
_ASSETS: Final = {"swagger-ui-bundle.js": _SCRIPT, "swagger-ui.css": "text/css", "start.js": _SCRIPT}
_TAKES_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q\s*=\s*0(\.0*)?\s*(,|$))", re.IGNORECASE)

_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_SHOWN_HEADERS: Final = {"ETag": "Of these very bytes, in quotes.", "Cache-Control": "`no-cache`: ask again each time."}
_OTHERS: Final = {304: "If-None-Match names what is here."}
_MOVED: Final = {308: "The path ended with a slash, below which nothing would be found."}


class _File(NamedTuple):
    """A file of the viewer as it is sent, and the headers that go with it."""

    content: bytes
    headers: dict[str, str]


def page_handlers(path: str) -> list[HTTPRouteHandler]:
    """The page at `path`, such as ``/docs``, and what it loads from below; its document lies beside it."""
    assets = [_handler(f"{path}/{each}", each, kind) for each, kind in _ASSETS.items()]
    return [_handler(path, *_PAGE), *assets]


def _handler(path: str, name: str, media_type: str) -> HTTPRouteHandler:
    """The route of one file of the viewer."""
    is_page = name == _PAGE[0]
    doc = Doc(
        "This documentation as a page." if is_page else f"What the documentation page loads: {name}.",
        answer=media_type,
        headers=_SHOWN_HEADERS,
        request_headers=("If-None-Match",),
        others=_OTHERS | (_MOVED if is_page else {}),
    )

    @route(path, http_method=["GET", "HEAD"], name=f"docs_{name.partition('.')[0]}", opt={DOC: doc})
    async def viewer_file(request: AnyRequest) -> Response[bytes]:
        query_parameters(request)
        if is_page and request.scope["raw_path"].endswith(b"/"):  # what the page refers to lies beside it
            return Response(b"", status_code=308, headers={"Location": ".." + path[path.rindex("/") :]})
        file = _read(name, gzipped=bool(_TAKES_GZIP.search(request.headers.get("accept-encoding", ""))))
        if etag_listed(", ".join(request.headers.getall("if-none-match", [])), file.headers["ETag"]):
            return Response(b"", status_code=304, headers=file.headers)
        return Response(file.content, media_type=media_type, headers=file.headers)

    return viewer_file


@cache
def _read(name: str, *, gzipped: bool) -> _File:
    """A file of the viewer. What is compressed there is sent so to clients that take it."""
    folder = files("coregw.gateway") / "viewer"
    packed = folder / f"{name}.gz"
    headers = dict(_HEADERS)
    if not packed.is_file():
        content = (folder / name).read_bytes()
    else:
        headers["Vary"] = "Accept-Encoding"
        content = packed.read_bytes()
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        else:
            content = gzip.decompress(content)
    return _File(content, headers | {"ETag": f'"{sha256(content).hexdigest()[:32]}"'})
