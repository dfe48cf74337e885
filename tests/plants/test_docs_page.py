"""The plant store's documentation page shows its own document, alone and beside a gateway."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from plant_services import ALONE

if TYPE_CHECKING:
    import httpx2


def test_everything_that_the_documentation_page_loads_exists(client: httpx2.Client, command: str) -> None:
    page = client.get("/docs" if command == ALONE else "/plants/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for each in re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text):
        assert client.get(urljoin(str(page.url), each)).status_code == 200
    document = client.get(urljoin(str(page.url), "openapi.json")).json()
    assert list(document["paths"]) == ["/plants"]


def test_page_served_with_a_gateway_is_separate_from_the_gateways(client: httpx2.Client, command: str) -> None:
    if command == ALONE:
        assert client.get("/plants/docs").status_code == 404
    else:
        assert "/v1/resolve" in client.get("/openapi.json").json()["paths"]
        assert client.get("/docs").status_code == 200
