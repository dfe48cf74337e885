"""Signed publications as docs/gateway.md describes them. What clients verify is in tests/tlog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from admin_support import AUTHORIZATION, Scope

Refusal = Callable[[httpx2.Response, int, str], str]


def note_of(proof: dict[str, Any], **other: object) -> dict[str, str]:
    values = proof | other
    return {"checkpoint": f"o/n\n{values['size']}\n{values['root_hash']}\n\n— o/n AAAAAAAA\n"}


def test_the_log_of_a_name_is_read_by_everybody_once_it_is_signed(
    client: httpx2.Client, scope: Scope, roots: list[str], expect_refusal: Refusal
) -> None:
    public = f"/v1/publications/{scope.path.split('/')[4]}/n"
    for root in roots:
        scope.publish("n", root)
    expect_refusal(client.get(f"{public}/entries"), 404, "record_not_found")
    proof = client.get(f"{scope.path}/n/proof?old=1&size=2", headers=AUTHORIZATION).json()
    assert (proof["size"], proof["record"]["root"], len(proof["inclusion"])) == (2, roots[1], 1)
    signed = client.post(f"{scope.path}/n/checkpoint", json=note_of(proof), headers=AUTHORIZATION)
    assert signed.status_code == 200
    found = client.get(f"{public}?old=1")
    assert found.json() == proof | note_of(proof)
    assert found.headers["cache-control"] == "no-store"
    assert client.get(f"{public}?revision=1").json()["record"]["root"] == roots[0]
    expect_refusal(client.get(f"{public}?revision=3"), 404, "record_not_found")
    listed = client.get(f"{public}/entries").json()
    assert [each["root"] for each in listed["records"]] == roots[:2]
    assert client.get(f"{public}/entries?limit=1").json()["next"] == 1
    for bad in ("?old=-1", "?old=x", "?revision=0", "?other=1", f"?old={1 << 53}"):
        expect_refusal(client.get(public + bad), 400, "invalid_request")
    for bad in ("?after=-1", "?limit=0", "?limit=1001"):
        expect_refusal(client.get(f"{public}/entries{bad}"), 400, "invalid_request")
    expect_refusal(client.get("/v1/publications/a%20b/n"), 400, "invalid_request")


def test_everybody_reads_the_newest_record_of_a_name_that_is_not_signed(
    client: httpx2.Client, scope: Scope, roots: list[str], expect_refusal: Refusal
) -> None:
    public = f"/v1/publications/{scope.path.split('/')[4]}/n"
    expect_refusal(client.get(public), 404, "record_not_found")
    for root in roots[:2]:
        record = scope.publish("n", root).json()
    found = client.get(public)
    assert found.json() == {"record": record, "status": "unsigned"}
    assert found.headers["cache-control"] == "no-store"
    assert client.get(f"{public}?old=1&revision=2").json() == found.json()
    for revision in (1, 3):  # its history is the operator's
        expect_refusal(client.get(f"{public}?revision={revision}"), 404, "record_not_found")


def test_a_checkpoint_of_another_tree_is_refused(
    client: httpx2.Client, scope: Scope, roots: list[str], expect_refusal: Refusal
) -> None:
    def sign(body: object, name: str = "n") -> httpx2.Response:
        return client.post(f"{scope.path}/{name}/checkpoint", json=body, headers=AUTHORIZATION)

    scope.publish("n", roots[0])
    scope.publish("n", roots[1])
    one, two = (client.get(f"{scope.path}/n/proof?size={size}", headers=AUTHORIZATION).json() for size in (1, 2))
    for other in ({"size": 1}, {"size": 3}, {"root_hash": one["root_hash"]}):
        expect_refusal(sign(note_of(two, **other)), 409, "checkpoint_mismatch")
    expect_refusal(sign(note_of(two), "unknown"), 404, "record_not_found")
    for malformed in ({}, {"checkpoint": "x"}, {"checkpoint": 1}, note_of(two, size="02"), note_of(two) | {"more": 1}):
        expect_refusal(sign(malformed), 400, "invalid_request")
    assert sign(note_of(two)).status_code == 200
    expect_refusal(sign(note_of(one)), 409, "checkpoint_mismatch")
    expect_refusal(client.get(f"{scope.path}/n/proof?size=3", headers=AUTHORIZATION), 400, "invalid_request")
