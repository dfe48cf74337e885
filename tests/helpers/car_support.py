"""CARs out of a gateway and into one, for the tests of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from car_files import TYPE, cid
from coregw.store import Table

if TYPE_CHECKING:
    import httpx2

    from coregw.store.memory import MemoryStore

MAP, RAW = 0x303110, 0x55
EMPTY = cid(MAP, b"\0")


def export(client: httpx2.Client, root: str, payloads: bool = True) -> bytes:
    answer = client.get(f"/v1/roots/{root}/car", params={"payloads": str(payloads).lower()})
    assert answer.status_code == 200, answer.text
    return answer.content


def take(client: httpx2.Client, car: bytes, *, is_spooled: bool = False) -> httpx2.Response:
    """Import a CAR; one without a declared length is spooled."""
    return client.post("/v1/car", content=iter([car]) if is_spooled else car, headers=TYPE)


def post(client: httpx2.Client, path: str, body: object) -> httpx2.Response:
    return client.post(path, json=body)


def build(client: httpx2.Client, count: int, marker: str, suite: str = "sha2-256") -> str:
    """A map of payloads that the gateway has."""
    cids = {f"docs/{i}": put(client, f"{marker} {i}".encode()) for i in range(count)}
    root: str = post(client, "/v1/roots", {"arcs": cids, "suite": suite}).json()["root"]
    return root


def put(client: httpx2.Client, data: bytes) -> str:
    stored: str = client.post("/v1/cas", content=data).json()["cid"]
    return stored


def kept(store: MemoryStore) -> tuple[int, int, int]:
    """How many pages, roots and payloads there are."""
    return len(store._tables[Table.PAGES]), len(store._tables[Table.ROOTS]), len(store._contents.payloads)
