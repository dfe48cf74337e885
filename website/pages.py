"""The pages that the site takes from the repository, and the links between them.

Links in the repository lead to files of the repository, so that they work where it is browsed. On the site they lead
to the pages that show these files, and to the repository for files that no page shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["HOME", "REPOSITORY", "rewritten", "sources"]

HOME: Final = Path(__file__).parent.parent
REPOSITORY: Final = "https://github.com/coregw/coregw/blob/main/"

_ELSEWHERE: Final = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benches/README.md": "benches.md",
    "js/README.md": "js.md",
}
"""The pages outside of docs/: their places on the site by their paths in the repository."""

_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")


def sources() -> dict[str, str]:
    """Return the place on the site of every page of the repository, by its path there."""
    places = dict(_ELSEWHERE)
    for page in sorted((HOME / "docs").rglob("*.md")):
        path = page.relative_to(HOME / "docs").as_posix()
        if path != "decisions/template.md":
            places[f"docs/{path}"] = path.removesuffix("README.md") + "index.md" if page.stem == "README" else path
    return places


def rewritten(source: str, text: str, places: dict[str, str]) -> str:
    """Return the text of a page with the links of the site.

    Args:
        source: The path of the page in the repository.
        text: Its Markdown.
        places: What `sources` returns.

    Raises:
        ValueError: If a link names a file that the repository does not have; the message names page and link.
    """

    def link(match: re.Match[str]) -> str:
        return match[1] + _target(source, match[2], places) + match[3]

    return "".join(part if is_code else _LINK.sub(link, part) for is_code, part in _split(text))


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a page, each with whether it is a fenced block of code."""
    end = 0
    for match in _FENCE.finditer(text):
        yield False, text[end : match.start()]
        yield True, match[0]
        end = match.end()
    yield False, text[end:]


def _target(source: str, link: str, places: dict[str, str]) -> str:
    if link.startswith(REPOSITORY):
        path = link.removeprefix(REPOSITORY)
    elif re.match(r"[a-z]+:|#", link):
        return link
    else:
        path = os.path.normpath(os.path.join(os.path.dirname(source), link.partition("#")[0]))  # noqa: PTH118, PTH120
    path, _, in_link = path.partition("#")
    anchor = in_link or link.partition("#")[2]
    if not (HOME / path).exists():
        raise ValueError(f"{source}: {link}: the repository has no {path}")
    if path in places:
        start = os.path.dirname(places[source]) or "."  # noqa: PTH120 - paths of the site are text
        target = os.path.relpath(places[path], start)
    elif path.startswith("docs/") and not path.endswith(".md") and (HOME / path).is_file():
        return link  # a picture, which is copied to the same place
    else:
        target = REPOSITORY + path
    return f"{target}#{anchor}" if anchor else target
