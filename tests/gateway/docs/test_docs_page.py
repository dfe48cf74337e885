"""The documentation page: it loads files from the gateway only, and all of them exist."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import pytest

import coregw.gateway
from tables import rows

if TYPE_CHECKING:
    import httpx2

VIEWER = Path(coregw.gateway.__file__).parent / "viewer"


@pytest.fixture(scope="module")
def page(client: httpx2.Client) -> httpx2.Response:
    return client.get("/docs")


def test_page_may_load_only_from_its_own_origin(page: httpx2.Response) -> None:
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "data:"
    assert not re.search(r"<style|<script>| on\w+=| style=", page.text)


def test_all_files_of_the_page_are_served(client: httpx2.Client, page: httpx2.Response) -> None:
    referred = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    start = client.get("/docs/start.js").text
    referred += re.findall(r'url: "([^"]+)"', start)
    local = [urljoin(str(page.url), each) for each in referred if not each.startswith("data:")]
    assert len(local) == 5
    for url in local:
        assert urlsplit(url)[:2] == urlsplit(str(page.url))[:2]
        answer = client.get(url)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")


@pytest.mark.parametrize(
    ("name", "kind"), [("swagger-ui-bundle.js", "text/javascript"), ("swagger-ui.css", "text/css")]
)
def test_viewer_files_match_the_digests_in_their_readme(client: httpx2.Client, name: str, kind: str) -> None:
    found = re.search(rf"`{name}` \| `([0-9a-f]{{64}})`", (VIEWER / "README.md").read_text("utf-8"))
    assert found is not None
    for coding, sent in [("gzip", "gzip"), ("identity", None), ("gzip;q=0", None), ("br, gzip;q=0.5", "gzip")]:
        answer = client.get(f"/docs/{name}", headers={"accept-encoding": coding})
        assert answer.headers.get("content-encoding") == sent
        assert (answer.headers["vary"], answer.headers["content-type"]) == ("Accept-Encoding", f"{kind}; charset=utf-8")
        assert hashlib.sha256(answer.content).hexdigest() == found[1]


def test_viewer_is_served_with_its_licences() -> None:
    assert "Apache License" in (VIEWER / "LICENSE").read_text("utf-8")
    assert {"NOTICE", "swagger-ui-bundle.js.LICENSE.txt"} <= {path.name for path in VIEWER.iterdir()}


@pytest.mark.parametrize("path", ["/docs", "/docs/start.js", "/docs/swagger-ui.css"])
def test_matching_etag_of_a_viewer_file_is_304(client: httpx2.Client, path: str) -> None:
    etag = client.get(path).headers["etag"]
    assert client.get(path, headers={"if-none-match": etag}).status_code == 304
    assert client.get(path, headers={"if-none-match": '"another"'}).status_code == 200


@rows("path", ["/docs", "/docs/start.js", "/openapi.json", "/healthz"])
def test_head_is_get_without_a_body(client: httpx2.Client, path: str) -> None:
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))


def test_trailing_slash_redirects_to_the_page(client: httpx2.Client, page: httpx2.Response) -> None:
    moved = client.get("/docs/")
    assert moved.status_code == 308
    assert urljoin(str(moved.url), moved.headers["location"]) == str(page.url)


def test_explorer_loads_only_its_own_files(client: httpx2.Client) -> None:
    page = client.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; ")
    for forbidden in ("unsafe", "http:", "https:", "*"):
        assert forbidden not in policy
    assert not re.search(r"<style|<script>| on\w+=| style=", page.text)
    referred = [each for each in re.findall(r'(?:src|href)="([^"#]+)"', page.text) if not each.startswith("data:")]
    assert sorted(referred) == ["explorer-style.css", "explorer.js"]
    for each in referred:
        answer = client.get(f"/{each}")
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == policy
        assert client.get(f"/{each}", headers={"if-none-match": answer.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("application/json", "application/json"), ("text/html, application/json", "text/html"), (None, "text/html")],
)
def test_explorer_answers_json_clients_in_json(client: httpx2.Client, accept: str | None, kind: str) -> None:
    answer = client.get("/", headers={} if accept is None else {"accept": accept})
    assert answer.headers["content-type"].split(";")[0] == kind
    assert answer.headers["vary"] == "Accept"
    if accept == "application/json":
        said = answer.json()
        assert (said["service"], said["version"]) == ("coregw", client.get("/healthz").json()["version"])
        assert (
            client.get(f"/{said['openapi']}").status_code == client.get(f"/{said['documentation']}").status_code == 200
        )
