"""Build the site: ``python -m website.build`` collects and generates its pages, and has zensical render them.

The output is target/site. It contains the API documentation of ``target/pdoc`` and ``target/doc``, which ``make docs``
builds before, and a script that ``make docs`` installs by npm; without it, the search works over HTTP only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from website import http, reference
from website.pages import HOME, rewritten, sources

__all__ = ["collect", "generated", "main"]

_OWN: Final = HOME / "website"
_WORK: Final = HOME / "target" / "website"
_SITE: Final = HOME / "target" / "site"
_SHIM: Final = HOME / "js" / "node_modules" / "iframe-worker"
"""Runs the worker of the search in pages that are opened as files, where browsers refuse workers."""

_PICTURES: Final = ("*.svg", "*.png")
_EXTERNAL: Final = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="?(?:https?:)?//[^>]*>|<link[^>]*rel="?stylesheet"?[^>]*href="?(?:https?:)?//[^>]*>'
)


def generated() -> dict[str, str]:
    """Return the pages of the reference that are made of code, by their places on the site."""
    return {
        "reference/python.md": reference.python(),
        "reference/commands.md": reference.commands(),
        "reference/settings.md": reference.settings(),
        "reference/errors.md": reference.errors(),
        "reference/metrics.md": reference.metrics(),
        "reference/http.md": http.page(
            "HTTP",
            "Every route of a gateway, with its parameters, answers and errors: the OpenAPI document as a page. "
            "A gateway serves the document at `/openapi.json`, and a page with which it can be tried at `/docs`.",
            http.gateway_document(),
        ),
        "reference/management.md": http.page(
            "HTTP of the management",
            "The routes for operators, on the control socket and the management address "
            "([how](../operations.md#management)): their OpenAPI document as a page, which both serve at "
            "`/openapi.json`. Commands such as `coregw status`, `backup` and `gc` send these requests.",
            http.management_document(),
        ),
    }


def collect(folder: Path) -> None:
    """Write the pages of the site, its configuration and its pictures to a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    places = sources()
    texts = {place: rewritten(page, (HOME / page).read_text("utf-8"), places) for page, place in places.items()}
    for place, text in (texts | generated()).items():
        file = folder / "docs" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    for kind in _PICTURES:
        for picture in (HOME / "docs").rglob(kind):
            copy = folder / "docs" / picture.relative_to(HOME / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, copy)
    shutil.copyfile(_OWN / "coregw.css", folder / "docs" / "coregw.css")
    if _SHIM.is_dir():
        shutil.copyfile(_SHIM / "shim" / "index.js", folder / "docs" / "iframe-worker.js")
        shutil.copyfile(_SHIM / "LICENSE", folder / "docs" / "iframe-worker.LICENSE")
    else:
        (folder / "docs" / "iframe-worker.js").write_text("// Built without npm: the search needs a server.\n", "utf-8")
    shutil.copyfile(_OWN / "zensical.toml", folder / "zensical.toml")


def _render() -> None:
    shutil.rmtree(_SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    subprocess.run(command, cwd=_WORK, check=True)  # noqa: S603 - our own interpreter and arguments
    shutil.move(_WORK / "site", _SITE)
    shutil.copytree(HOME / "target" / "pdoc", _SITE / "api")
    crates = ("coregw_core", "coregw_folders", "coregw_front", "coregw_lanes", "coregw_ops")
    for part in (*crates, "static.files", "src", "trait.impl", "type.impl"):
        if (HOME / "target" / "doc" / part).is_dir():
            shutil.copytree(HOME / "target" / "doc" / part, _SITE / "rust" / part)
    for file in (HOME / "target" / "doc").glob("*.*"):
        if file.is_file():
            shutil.copyfile(file, _SITE / "rust" / file.name)


def _external_loads() -> list[str]:
    """Return each tag of the pages that would load something from elsewhere."""
    return [
        f"{page.relative_to(_SITE)}: {tag}"
        for page in _SITE.rglob("*.html")
        if page.relative_to(_SITE).parts[0] not in {"api", "rust"}
        for tag in _EXTERNAL.findall(page.read_text("utf-8"))
    ]


def _broken_links() -> list[str]:
    """Return each broken link of the reference into the API documentation; zensical checks those to its own pages."""
    broken = []
    for page in (_SITE / "reference").glob("*.html"):
        for link in re.findall(r'href="?([^" >]+)', page.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            if not re.match(r"\.\./(api|rust)/", name):
                continue
            file = page.parent / name
            if not file.is_file() or (anchor and f'id="{anchor}"' not in file.read_text("utf-8")):
                broken.append(f"{page.relative_to(_SITE)}: {link}")
    return broken


def main() -> None:
    """Build the site. Exits with an error if a page has a broken link, or would load something from elsewhere."""
    collect(_WORK)
    _render()
    if wrong := _external_loads() + _broken_links():
        sys.exit("pages load from elsewhere, or have broken links:\n" + "\n".join(wrong))
    place = _SITE.relative_to(HOME)
    if _SHIM.is_dir():
        sys.stdout.write(f"the site is in {place}: open index.html there, or serve the folder\n")
    else:
        sys.stdout.write(
            f"the site is in {place}; its search needs a server, since npm was not found:"
            f" python -m http.server --directory {place}\n"
        )


if __name__ == "__main__":
    main()
