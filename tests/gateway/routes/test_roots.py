"""Creation and mutation of roots, compared with what a client computes itself."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import coregw
from tables import rows

Ask = Callable[..., httpx2.Response]
Refusal = Callable[[httpx2.Response, int, str], str]


@rows("suite", [None, "sha2-256", "blake3"])
@rows("count", [0, 1, 2, 1000])
def test_created_root_equals_the_one_that_the_client_computes(
    ask: Ask, cid_of: Callable[..., str], suite: str | None, count: int
) -> None:
    arcs = {f"a{i % 17}/b/{i}": cid_of(str(i).encode()) for i in range(count)}
    body: dict[str, Any] = {"arcs": arcs} | ({"suite": suite} if suite else {})
    answer = ask("/v1/roots", body)
    assert (answer.status_code, answer.json()) == (201, {"root": coregw.Map(arcs, suite=suite or "sha2-256").root})
    assert ask("/v1/roots", body).json() == answer.json()


def test_large_map_is_created_and_read(ask: Ask, cid_of: Callable[..., str]) -> None:
    leaf = cid_of(b"leaf")
    arcs = {f"{i:08x}/{i * 2654435761 % 2**32:08x}": leaf for i in range(100_000)}
    root = ask("/v1/roots", {"arcs": arcs}).json()["root"]
    assert root == coregw.Map(arcs).root
    for path in list(arcs)[::9_999]:
        asked = {"profile": "core.resolve/v0alpha1", "root": root, "segments": path.split("/")}
        answer = ask("/v1/resolve", asked)
        assert coregw.verify_resolve(json.dumps(asked), answer.content) == leaf


@rows(
    ("arcs", "code"),
    [
        ('{"a": "x"}', "invalid_cid"),
        ('{"": "CID"}', "invalid_path"),
        ('{"/a": "CID"}', "invalid_path"),
        ('{"a/": "CID"}', "invalid_path"),
        ('{"a//b": "CID"}', "invalid_path"),
        ('{"' + "a" * 4097 + '": "CID"}', "invalid_path"),
        ('{"a": "CID", "a": "CID"}', "invalid_request"),
        ('{"a": "CID", "\\u0061": "CID"}', "invalid_request"),
        ('{"a": 1}', "invalid_request"),
        ('{"a": {"/": "CID"}}', "invalid_request"),
        ("[]", "invalid_request"),
    ],
)
def test_malformed_arcs_have_their_codes(
    ask: Ask, expect_refusal: Refusal, cid_of: Callable[..., str], arcs: str, code: str
) -> None:
    body = f'{{"arcs": {arcs.replace("CID", cid_of(b"x"))}}}'
    expect_refusal(ask("/v1/roots", body.encode()), 400, code)


def test_malformed_arc_is_named_with_its_place(ask: Ask, expect_refusal: Refusal) -> None:
    message = expect_refusal(ask("/v1/roots", b'{"arcs": {"a": "x"}}'), 400, "invalid_cid")
    assert re.fullmatch(r'arcs: arc "a": CID "x": .*[^ ] \(line 1 column 18\)', message)
    assert " at line" not in message


def test_an_unknown_suite_is_refused(ask: Ask, expect_refusal: Refusal) -> None:
    expect_refusal(ask("/v1/roots", {"arcs": {}, "suite": "md5"}), 400, "invalid_request")


def test_mutation_returns_a_receipt(ask: Ask, tree: dict[str, str]) -> None:
    new = {"path": "new", "after": {"target": tree["list"], "target_kind": "list"}}
    gone = {"path": "inner", "before": {"target": tree["leaf"]}}
    body = {"deltas": [{"kind": "map", "changes": [new, gone]}]}
    answer = ask(f"/v1/roots/{tree['nested']}/mutations", body)
    wanted = coregw.Map({"deep/er": tree["leaf"], "new": tree["list"]}).root
    assert answer.status_code == 201
    assert answer.json() == {
        "base_root": tree["nested"],
        "new_root": wanted,
        "delta_count": 1,
        "arc_count": 2,
        "deltas": [{"object": tree["nested"], "result": wanted}],
    }
    asked = {"profile": "core.resolve/v0alpha1", "root": wanted, "segments": ["new", "0"]}
    assert ask("/v1/resolve", asked).status_code == 200


def test_a_proven_mutation_can_be_replayed_without_the_data(ask: Ask, tree: dict[str, str]) -> None:
    changes = [{"path": "inner", "before": {"target": tree["leaf"]}, "after": {"target": tree["list"]}}]
    body = {"deltas": [{"kind": "map", "changes": changes}], "prove": True}
    receipt = ask(f"/v1/roots/{tree['nested']}/mutations", body).json()
    proof = base64.b64decode(receipt["deltas"][0]["proof"], validate=True)
    change = coregw.Change("inner", tree["leaf"], tree["list"])
    assert coregw.verify_changes(tree["nested"], [change], proof) == receipt["new_root"]


def test_lists_grow_shrink_and_name_earlier_results(ask: Ask, tree: dict[str, str], cid_of: Callable[..., str]) -> None:
    first = [{"index": i, "after": {"target": cid_of(bytes([i])), "size": i + 1}} for i in range(20)]
    made = ask(f"/v1/roots/{tree['nested']}/mutations", {"deltas": [{"kind": "list", "changes": first}]}).json()
    elements = [cid_of(bytes([i])) for i in range(20)]
    assert made["new_root"] == coregw.List(elements, sizes=range(1, 21)).root
    cut = [{"index": i, "before": {"target": elements[i], "size": i + 1}} for i in range(19, 9, -1)]
    body = {"deltas": [{"kind": "list", "object": made["new_root"], "changes": cut}]}
    answer = ask(f"/v1/roots/{tree['nested']}/mutations", body)
    assert answer.json()["new_root"] == coregw.List(elements[:10], sizes=range(1, 11)).root


def test_a_fixed_list_is_committed(ask: Ask, tree: dict[str, str], expect_refusal: Refusal) -> None:
    changes = [{"index": i, "after": {"target": tree["leaf"]}} for i in range(3)]
    delta = {"kind": "list", "changes": changes, "commit": {"fixed_list": {"total_size": 25, "chunk_size": 10}}}
    path = f"/v1/roots/{tree['nested']}/mutations"
    made = ask(path, {"deltas": [delta]}).json()["new_root"]
    assert made == coregw.List([tree["leaf"]] * 3, sizes=[10, 10, 5]).root
    delta["commit"] = {"fixed_list": {"total_size": 31, "chunk_size": 10}}
    expect_refusal(ask(path, {"deltas": [delta]}), 409, "invalid_change")


def _map_delta(**change: object) -> dict[str, Any]:
    return {"kind": "map", "changes": [change]}


def _list_delta(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "list", "changes": list(changes)}


@rows(
    ("delta", "status", "code"),
    [
        (_map_delta(path="inner", after={"target": "LIST"}), 409, "before_mismatch"),
        (_map_delta(path="inner", before={"target": "LIST"}, after={"target": "LEAF"}), 409, "before_mismatch"),
        (_map_delta(path="none", before={"target": "LEAF"}), 409, "before_mismatch"),
        (_map_delta(path="inner", before={"target": "LEAF"}, after={"target": "LEAF"}), 409, "invalid_change"),
        (_map_delta(path="none"), 409, "invalid_change"),
        (_map_delta(path="x", after={"target": "LEAF"}) | {"expected_root": "LIST"}, 409, "expected_root_mismatch"),
        (_list_delta({"index": 1, "after": {"target": "LEAF"}}), 409, "invalid_change"),
        (_list_delta(*[{"index": 0, "after": {"target": "LEAF"}}] * 2), 409, "invalid_change"),
        (_map_delta(path="x", after={"target": "LEAF"}) | {"object": "LIST"}, 400, "kind_mismatch"),
        (_map_delta(path="x", after={"target": "LEAF", "target_kind": "map"}), 400, "kind_mismatch"),
        (_map_delta(path="x", after={"target": "LEAF"}) | {"object": "ELSEWHERE"}, 404, "root_not_found"),
        (_map_delta(path="x/", after={"target": "LEAF"}), 400, "invalid_path"),
        (_map_delta(path="x", after={"target": "bogus"}), 400, "invalid_cid"),
        (_map_delta(index=0, after={"target": "LEAF"}), 400, "invalid_request"),
        (_list_delta(), 400, "invalid_request"),
    ],
)
def test_conflicting_delta_changes_nothing(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], delta: dict[str, Any], status: int, code: str
) -> None:
    elsewhere = coregw.Map({"nowhere": tree["leaf"], "held": tree["leaf"]}).root
    good = _map_delta(path=f"{status}/{code}", after={"target": tree["leaf"]})
    text = json.dumps({"deltas": [good, delta]})
    for name, value in [("LIST", tree["list"]), ("LEAF", tree["leaf"]), ("ELSEWHERE", elsewhere)]:
        text = text.replace(f'"{name}"', f'"{value}"')
    expect_refusal(ask(f"/v1/roots/{tree['nested']}/mutations", text.encode()), status, code)
    arcs = {"inner": tree["leaf"], "deep/er": tree["leaf"], f"{status}/{code}": tree["leaf"]}
    asked = {"profile": "core.resolve/v0alpha1", "root": coregw.Map(arcs).root, "segments": ["inner"]}
    expect_refusal(ask("/v1/resolve", asked), 404, "root_not_found")


@pytest.mark.parametrize(
    ("base", "status", "code"),
    [("bogus", 400, "invalid_cid"), ("LEAF", 400, "kind_mismatch"), ("ELSEWHERE", 404, "root_not_found")],
)
def test_base_root_must_be_held(
    ask: Ask, expect_refusal: Refusal, tree: dict[str, str], base: str, status: int, code: str
) -> None:
    elsewhere = coregw.Map({"nowhere": tree["leaf"], "to be": tree["leaf"], "seen": tree["leaf"]}).root
    root = {"LEAF": tree["leaf"], "ELSEWHERE": elsewhere}.get(base, base)
    body = {"deltas": [_map_delta(path="x", after={"target": tree["leaf"]})]}
    expect_refusal(ask(f"/v1/roots/{root}/mutations", body), status, code)


def test_no_deltas_are_refused(ask: Ask, expect_refusal: Refusal, tree: dict[str, str]) -> None:
    expect_refusal(ask(f"/v1/roots/{tree['nested']}/mutations", {"deltas": []}), 400, "invalid_request")


def test_the_route_says_whether_a_root_is_complete(client: httpx2.Client, expect_refusal: Refusal) -> None:
    data = b"of a complete root"
    root = client.post("/v1/roots", json={"arcs": {"a": coregw.payload_cid(data)}}).json()["root"]
    path = f"/v1/roots/{root}/complete"
    answer = client.post(path)
    assert (answer.status_code, answer.json()) == (
        200,
        {"root": root, "complete": False, "missing": coregw.payload_cid(data)},
    )
    client.post("/v1/cas", content=data)
    for _ in range(2):
        assert client.post(path).json() == {"root": root, "complete": True, "missing": None}
    absent = coregw.Map({"b": coregw.payload_cid(data)}).root
    told = client.post(f"/v1/roots/{absent}/complete").json()
    assert told == {"root": absent, "complete": False, "missing": absent}
    expect_refusal(client.post(f"/v1/roots/{coregw.payload_cid(data)}/complete"), 400, "kind_mismatch")
    expect_refusal(client.post("/v1/roots/nonsense/complete"), 400, "invalid_cid")
    expect_refusal(client.post(f"{path}?now=1"), 400, "invalid_request")
