"""The documentation page: a viewer of the OpenAPI document at the same level.

Everything is served from here, so the page works offline.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from litestar import Request, route

from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.conditions import is_listed
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import header, query_parameters

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

__all__ = ["page_handlers"]

_SCRIPT: Final = "text/javascript"
_PAGE: Final = ("index.html", "text/html")
_ASSETS: Final = {"swagger-ui-bundle.js": _SCRIPT, "swagger-ui.css": "text/css", "start.js": _SCRIPT}
_ACCEPTS_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q\s*=\s*0(\.0*)?\s*(,|$))", re.IGNORECASE)

_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_DESCRIBED_HEADERS: Final = {"ETag": "Of the file, in quotes.", "Cache-Control": "`no-cache`: revalidate each time."}
_NOT_MODIFIED: Final = {304: "If-None-Match names the file."}
_MOVED: Final = {308: "The path ended with a slash, so the page's relative links would not work."}


class _File(NamedTuple):
    """A file of the viewer as it is sent, and its headers."""

    content: bytes
    headers: dict[str, str]


def page_handlers(path: str) -> list[HTTPRouteHandler]:
    """Return the routes of the page at `path`, such as ``/docs``, and of the files that it loads from below it."""
    assets = [_handler(f"{path}/{each}", each, kind) for each, kind in _ASSETS.items()]
    return [_handler(path, *_PAGE), *assets]


def _handler(path: str, name: str, media_type: str) -> HTTPRouteHandler:
    """Return the route of one file of the viewer."""
    is_page = name == _PAGE[0]
    description = Description(
        "This documentation as a page." if is_page else f"A file of the documentation page: {name}.",
        answer=media_type,
        headers=_DESCRIBED_HEADERS,
        request_headers=("If-None-Match",),
        others=_NOT_MODIFIED | (_MOVED if is_page else {}),
    )

    @route(path, http_method=["GET", "HEAD"], name=f"docs_{name.partition('.')[0]}", opt={DESCRIPTION: description})
    async def viewer_file(request: Request[Any, Any, Any]) -> Reply:
        query_parameters(request.scope)
        if is_page and request.scope["raw_path"].endswith(b"/"):  # relative links would miss the path's last segment
            return Reply(status=308, headers={"Location": ".." + path[path.rindex("/") :]})
        gzipped = _ACCEPTS_GZIP.search(header(request.scope, b"accept-encoding") or "") is not None
        file = _read(name, gzipped=gzipped)
        if is_listed(file.headers["ETag"], header(request.scope, b"if-none-match") or ""):
            return Reply(status=304, headers=file.headers)
        return Reply(file.content, media_type=f"{media_type}; charset=utf-8", headers=file.headers)

    return viewer_file


@cache
def _read(name: str, *, gzipped: bool) -> _File:
    """Read a file of the viewer. Files that are stored compressed are sent so to clients that accept it."""
    folder = files("coregw.gateway.docs") / "viewer"
    compressed = folder / f"{name}.gz"
    headers = dict(_HEADERS)
    if not compressed.is_file():
        content = (folder / name).read_bytes()
    else:
        headers["Vary"] = "Accept-Encoding"
        content = compressed.read_bytes()
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        else:
            content = gzip.decompress(content)
    return _File(content, headers | {"ETag": f'"{sha256(content).hexdigest()[:32]}"'})
