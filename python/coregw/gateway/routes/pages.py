"""Pages for browsers: the viewer of the OpenAPI document, the explorer, and the document itself.

All of their files are served from here, so the pages work offline.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from litestar import Request, route

from coregw._core import __version__
from coregw.gateway.description import DESCRIPTION, Description
from coregw.gateway.replies import CONDITIONS, Reply, conditional, json_reply
from coregw.gateway.requests import header, preferred, query_parameters
from coregw.messages import encode
from coregw.messages.common import About

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

__all__ = ["explorer_handlers", "handlers", "page_handlers"]

_SCRIPT: Final = "text/javascript"

_ACCEPTS_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q\s*=\s*0(\.0*)?\s*(,|$))", re.IGNORECASE)

_JSON: Final = "application/json"

_HTML: Final = "text/html"

_EXPLORER_PATH: Final = "/"

_VIEWER_PATH: Final = "/docs"


class _Site(NamedTuple):
    """A page and the files that it loads.

    Attributes:
        folder: Where they are, below ``coregw.gateway``.
        subject: What it is called in descriptions.
        images: The sources of images that it may show.
        assets: The media types of the files by name, besides ``index.html``.
    """

    folder: str
    subject: str
    images: str
    assets: Mapping[str, str]

    @property
    def headers(self) -> dict[str, str]:
        """The headers of all of its files."""
        return {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
            f"img-src {self.images}; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
        }


_VIEWER: Final = _Site(
    "viewer",
    "documentation page",
    "data:",
    {"swagger-ui-bundle.js": _SCRIPT, "swagger-ui.css": "text/css", "start.js": _SCRIPT},
)

_EXPLORER: Final = _Site(
    "explorer", "explorer", "blob: data:", {"explorer.js": _SCRIPT, "explorer-style.css": "text/css"}
)

_DESCRIBED_HEADERS: Final = {"ETag": "Of the file, in quotes.", "Cache-Control": "`no-cache`: revalidate each time."}

_NO_HEADERS: Final[Mapping[str, str]] = {}

_NOT_MODIFIED: Final = {304: "If-None-Match names the file."}

_MOVED: Final = {308: "The path ended with a slash, so the page's relative links would not work."}


class _File(NamedTuple):
    """A file of a page as it is sent, and its headers."""

    content: bytes
    headers: dict[str, str]


def page_handlers() -> list[HTTPRouteHandler]:
    """Return the routes of the documentation page at ``/docs``, and of the files below it."""
    page = _handler(_VIEWER, _VIEWER_PATH, "docs", "index.html", _HTML, "This documentation as a page.")
    return [page, *_assets(_VIEWER, f"{_VIEWER_PATH}/", "docs")]


def explorer_handlers() -> list[HTTPRouteHandler]:
    """Return the routes of the explorer, which is at ``/``, and of the files beside it."""
    return [_explorer_page(), *_assets(_EXPLORER, _EXPLORER_PATH, "explorer")]


def _assets(site: _Site, base: str, prefix: str) -> list[HTTPRouteHandler]:
    """Return the routes of the files that a page loads."""
    return [
        _handler(site, f"{base}{name}", prefix, name, kind, f"A file of the {site.subject}: {name}.")
        for name, kind in site.assets.items()
    ]


def _handler(site: _Site, path: str, prefix: str, name: str, media_type: str, summary: str) -> HTTPRouteHandler:
    """Return the route of one file of a site."""
    is_page = name == "index.html"
    description = Description(
        summary,
        answer=media_type,
        headers=_DESCRIBED_HEADERS,
        codes=("precondition_failed",),
        request_headers=CONDITIONS,
        others=_NOT_MODIFIED | (_MOVED if is_page else {}),
    )

    @route(path, http_method=["GET", "HEAD"], name=f"{prefix}_{name.partition('.')[0]}", opt={DESCRIPTION: description})
    async def site_file(request: Request[Any, Any, Any]) -> Reply:
        query_parameters(request.scope)
        if is_page and request.scope["raw_path"].endswith(b"/"):  # relative links would miss the path's last segment
            return Reply(status=308, headers={"Location": ".." + path[path.rindex("/") :]})
        return _send(site, name, media_type, request)

    return site_file


def _explorer_page() -> HTTPRouteHandler:
    """Return the route of ``/``: the explorer, or for clients that prefer JSON to HTML what serves it."""
    description = Description(
        "The explorer: a page that verifies proofs in the browser. As JSON, if Accept prefers it: what this is.",
        answer=(_HTML, About),
        headers=_DESCRIBED_HEADERS,
        codes=("precondition_failed",),
        request_headers=CONDITIONS,
        others=_NOT_MODIFIED,
    )

    @route(_EXPLORER_PATH, http_method=["GET", "HEAD"], name="explorer_index", opt={DESCRIPTION: description})
    async def explorer_index(request: Request[Any, Any, Any]) -> Reply:
        query_parameters(request.scope)
        if preferred(request.scope, _HTML, _JSON) == 1:
            service = About(version=__version__)
            return json_reply(encode(service), headers={"Cache-Control": "no-cache", "Vary": "Accept"})
        return _send(_EXPLORER, "index.html", _HTML, request, {"Vary": "Accept"})

    return explorer_index


def _send(
    site: _Site, name: str, media_type: str, request: Request[Any, Any, Any], further: Mapping[str, str] = _NO_HEADERS
) -> Reply:
    """Return the response with a file."""
    gzipped = _ACCEPTS_GZIP.search(header(request.scope, b"accept-encoding") or "") is not None
    file = _read(site.folder, name, gzipped=gzipped)
    headers = site.headers | file.headers | dict(further)
    unmet = conditional(request.scope, file.headers["ETag"], headers)
    return unmet or Reply(file.content, media_type=f"{media_type}; charset=utf-8", headers=headers)


@cache
def _read(folder: str, name: str, *, gzipped: bool) -> _File:
    """Read a file of a page. Files that are stored compressed are sent so to clients that accept it."""
    home = files("coregw.gateway").joinpath(*folder.split("/"))
    compressed = home / f"{name}.gz"
    headers = {}
    if not compressed.is_file():
        content = (home / name).read_bytes()
    else:
        headers["Vary"] = "Accept-Encoding"
        content = compressed.read_bytes()
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        else:
            content = gzip.decompress(content)
    return _File(content, headers | {"ETag": f'"{sha256(content).hexdigest()[:32]}"'})


@route(
    "/openapi.json",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("This document.", answer="application/json")},
)
async def openapi_document(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /openapi.json``: what `coregw.gateway.openapi` builds for the first one who asks."""
    query_parameters(request.scope)
    return json_reply(request.app.state["openapi"]())


handlers: Final = (openapi_document,)
