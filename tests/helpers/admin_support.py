"""Requests to the administration routes of one scope."""

from __future__ import annotations

import httpx2

import serving

AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}


class Scope:
    """One scope of published roots of a gateway."""

    def __init__(self, url: str, scope: str) -> None:
        self.path = f"/admin/v1/scopes/{scope}/roots"
        self._http = httpx2.Client(base_url=url, headers=AUTHORIZATION, timeout=60)

    def close(self) -> None:
        self._http.close()

    def publish(self, name: str, root: str, **more: object) -> httpx2.Response:
        return self._http.post(self.path, json={"name": name, "root": root, **more})

    def post(self, body: bytes, **headers: str) -> httpx2.Response:
        return self._http.post(self.path, content=body, headers=headers)

    def freeze(self, name: str, body: bytes = b"") -> httpx2.Response:
        return self._http.post(f"{self.path}/{name}/freeze", content=body)

    def get(self, name: str) -> httpx2.Response:
        return self._http.get(f"{self.path}/{name}")

    def listing(self, query: str = "") -> httpx2.Response:
        return self._http.get(self.path + query)

    def history(self, name: str, query: str = "") -> httpx2.Response:
        return self._http.get(f"{self.path}/{name}/history{query}")
