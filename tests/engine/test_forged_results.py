"""Forged results, receipts and CARs: each differs from an honest one in one place, and is refused."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import pytest

import car_files
import coregw
from coregw import InvalidInput, ProofError
from coregw.engine import Engine
from coregw.store.memory import MemoryStore
from forging import LIST, binary, list_inner, list_leaf

Json = dict[str, Any]
CIDS = [coregw.payload_cid(bytes([number])) for number in range(40)]
CORE = "core.{}/v0alpha1"


class Exchange(NamedTuple):
    """A request, its honest result, and the verifier of both."""

    name: str
    request: Json
    result: Json
    verify: Callable[[str, str], object]

    def refuses(self, result: Json | str) -> None:
        text = result if isinstance(result, str) else json.dumps(result)
        with pytest.raises(ProofError):
            self.verify(json.dumps(self.request), text)


def verify_diff(request: str, result: str) -> object:
    asked = json.loads(request)
    return coregw.verify_diff(asked["a"], asked["b"], result, None, None, 2)


async def answers() -> AsyncIterator[Exchange]:
    engine = Engine(MemoryStore())
    nested = coregw.Map({"c": CIDS[7], "@payload": CIDS[8]}, suite="blake3")
    arcs = {f"f/{number}": CIDS[number] for number in range(6)} | {"nested": nested.root}

    async def create(arcs: dict[str, str], suite: str = "sha2-256") -> str:
        root: str = json.loads(await engine.create_root(json.dumps({"arcs": arcs, "suite": suite}).encode()))["root"]
        return root

    await create({"c": CIDS[7], "@payload": CIDS[8]}, "blake3")
    root, empty = await create(arcs), await create({})
    other = await create({**arcs, "f/3": CIDS[30], "g": CIDS[9]})
    elements = [{"index": i, "after": {"target": CIDS[i], "size": 1 + i % 3}} for i in range(9)]
    receipt = await engine.mutate(empty, json.dumps({"deltas": [{"kind": "list", "changes": elements}]}).encode())
    items = json.loads(receipt)["new_root"]

    async def ask(name: str, verb: str, request: Json, verify: Callable[[str, str], object]) -> Exchange:
        try:
            result = json.loads(await getattr(engine, verb)(json.dumps(request).encode()))
        except coregw.NotFound as absent:
            result = json.loads(absent.details or b"")
        return Exchange(name, request, result, verify)

    for path in (["nested", "c"], ["nested", "@payload"], ["f", "2"]):
        request = {"profile": CORE.format("resolve"), "root": root, "segments": path}
        yield await ask(f"resolve {path}", "resolve", request, coregw.verify_resolve)
    for at, query in (
        (root, {"kind": "map_key", "segments": ["f", "2"]}),
        (root, {"kind": "map_key", "segments": ["f", "9"]}),
        (items, {"kind": "list_index", "index": 4}),
        (items, {"kind": "list_index", "index": 40}),
        (items, {"kind": "list_range", "start": 3, "end": 9}),
    ):
        request = {"profile": CORE.format("read"), "root": at, "query": query}
        yield await ask(f"read {query}", "read", request, coregw.verify_read)
    for asked in ({"key": ["f", "2"]}, {"key": ["f", "z"]}, {"keys": [["f", "4"], ["f", "z"], ["f", "1"]]}):
        request = {"profile": CORE.format("map-proof"), "root": root, **asked}
        yield await ask(f"map proof {asked}", "map_proof", request, coregw.verify_map_proof)
    request = {"profile": CORE.format("scan"), "root": root, "prefix": ["f"], "after": ["f", "0"], "limit": 2}
    yield await ask("scan", "scan", request, coregw.verify_scan_result)
    differences = json.loads(await engine.diff(root, other, "", None, 2))
    yield Exchange("diff", {"a": root, "b": other}, differences, verify_diff)
    deltas = [
        {"kind": "map", "changes": [{"path": "f/3", "before": {"target": CIDS[3]}, "after": {"target": CIDS[4]}}]},
        {"kind": "list", "object": items, "changes": [{"index": 9, "after": {"target": CIDS[1]}}]},
    ]
    receipt = await engine.mutate(root, json.dumps({"deltas": deltas, "prove": True}).encode())
    yield Exchange("mutation", {"root": root, "deltas": deltas}, json.loads(receipt), coregw.verify_transition)
    await engine.close()


@pytest.fixture(scope="module")
def exchanges() -> dict[str, Exchange]:
    async def collect() -> list[Exchange]:
        return [exchange async for exchange in answers()]

    found = asyncio.run(collect())
    for exchange in found:
        exchange.verify(json.dumps(exchange.request), json.dumps(exchange.result))
    return {exchange.name: exchange for exchange in found}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - any JSON
    """The paths of every member and item inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield (*path, name)
        yield from places(item, (*path, name))


def at(value: Any, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - any JSON
    for name in path:
        value = value[name]
    return value


MAY_BE_LEFT_OUT = {"sizes", "offset"}
"""Members of the step of a range, which follow from the proof (protocol section 5)."""


def test_result_without_one_of_its_members_or_items_is_refused(exchanges: dict[str, Exchange]) -> None:
    left_out = set()
    for exchange in exchanges.values():
        proven = exchange.verify(json.dumps(exchange.request), json.dumps(exchange.result))
        for path in places(exchange.result):
            forged = copy.deepcopy(exchange.result)
            del at(forged, path[:-1])[path[-1]]
            if path[-1] in MAY_BE_LEFT_OUT:
                left_out.add(path[-1])
                assert exchange.verify(json.dumps(exchange.request), json.dumps(forged)) == proven
            else:
                exchange.refuses(forged)
    assert left_out == MAY_BE_LEFT_OUT


def test_result_has_the_spelling_of_its_request(exchanges: dict[str, Exchange]) -> None:
    spelled = [each for each in exchanges.values() if "profile" in each.request and "profile" in each.result]
    assert {each.request["profile"] for each in spelled} >= {CORE.format("resolve"), CORE.format("read")}
    for exchange in spelled:
        asked, answered = json.dumps(exchange.request), json.dumps(exchange.result)
        malt = [text.replace('"core.', '"malt.', 1) for text in (asked, answered)]
        assert exchange.verify(malt[0], malt[1]) == exchange.verify(asked, answered)
        exchange.refuses(malt[1])
        with pytest.raises(ProofError):
            exchange.verify(malt[0], answered)


def others(value: object) -> list[object]:
    match value:
        case bool():
            return [not value, 0]
        case int():
            return [value + 1, str(value), None]
        case str():
            return [f"{value}A", "", CIDS[39], None]
        case None:
            return [0, {"/": CIDS[39]}]
        case list():
            return [[*value, *value], {}, None] if value else [{}, None]
        case _:
            return [[], "", None]


def test_result_with_another_value_is_refused(exchanges: dict[str, Exchange]) -> None:
    for exchange in exchanges.values():
        for path in places(exchange.result):
            for other in others(at(exchange.result, path)):
                forged = copy.deepcopy(exchange.result)
                at(forged, path[:-1])[path[-1]] = other
                exchange.refuses(forged)


def test_result_with_an_unknown_or_duplicate_member_is_refused(exchanges: dict[str, Exchange]) -> None:
    for exchange in exchanges.values():
        honest = json.dumps(exchange.result)
        first = next(iter(exchange.result))
        escaped = f"\\u{ord(first[0]):04x}{first[1:]}"
        for member in ('"unknown":1', f'"{first}":null', f'"{escaped}":null'):
            exchange.refuses(f"{{{member},{honest[1:]}")


def test_result_that_is_not_strict_json_is_refused(exchanges: dict[str, Exchange]) -> None:
    for exchange in exchanges.values():
        honest = json.dumps(exchange.result)
        for forged in (f"{honest}1", f"\ufeff{honest}", honest[:-1], f"[{honest}]", ""):
            exchange.refuses(forged)


def test_proof_that_is_not_canonical_base64_is_refused(exchanges: dict[str, Exchange]) -> None:
    for exchange in exchanges.values():
        for path in places(exchange.result):
            if path[-1] == "proof" or (path[0] == "proofs" and len(path) == 2):
                for edit in ("{}=", "{}AA==", " {}", "{}A"):
                    forged = copy.deepcopy(exchange.result)
                    at(forged, path[:-1])[path[-1]] = edit.format(at(forged, path))
                    exchange.refuses(forged)


def test_result_of_another_request_is_refused(exchanges: dict[str, Exchange]) -> None:
    for exchange in exchanges.values():
        for other in exchanges.values():
            if other is not exchange:
                exchange.refuses(other.result)


def test_claimed_absence_of_a_present_key_is_refused(exchanges: dict[str, Exchange]) -> None:
    present = exchanges["read {'kind': 'map_key', 'segments': ['f', '2']}"]
    absent = copy.deepcopy(exchanges["read {'kind': 'map_key', 'segments': ['f', '9']}"].result)
    present.refuses(absent)
    absent["prooflist"]["query"] = absent["prooflist"]["steps"][0]["path"] = "f/2"
    present.refuses(absent)


def test_steps_that_end_early_or_lead_elsewhere_are_refused(exchanges: dict[str, Exchange]) -> None:
    whole = exchanges["resolve ['nested', 'c']"]
    steps = whole.result["prooflist"]["steps"]
    assert len(steps) == 2
    for forged_steps in (steps[:1], steps[1:], steps[::-1], [steps[0], steps[0]], [*steps, steps[1]], []):
        for target in (whole.result["target"], steps[0]["target"]["/"]):
            forged = copy.deepcopy(whole.result)
            forged["prooflist"]["steps"], forged["target"] = forged_steps, target
            whole.refuses(forged)


def test_diff_of_swapped_maps_is_refused_and_names_the_map(exchanges: dict[str, Exchange]) -> None:
    honest = exchanges["diff"]
    swapped = honest._replace(request={"a": honest.request["b"], "b": honest.request["a"]})
    swapped.refuses(honest.result)
    forged = copy.deepcopy(honest.result)
    forged["proofs"]["b"] = forged["proofs"]["a"]
    with pytest.raises(ProofError) as caught:
        honest.verify(json.dumps(honest.request), json.dumps(forged))
    assert caught.value.step == 1


def test_diff_that_withholds_a_difference_is_refused(exchanges: dict[str, Exchange]) -> None:
    honest = exchanges["diff"]
    assert len(honest.result["entries"]) == 2
    for entries, more in ((honest.result["entries"][:1], False), (honest.result["entries"][:1], True), ([], False)):
        honest.refuses({**honest.result, "entries": entries, "more": more})


def test_receipt_of_other_changes_is_refused(exchanges: dict[str, Exchange]) -> None:
    honest = exchanges["mutation"]
    side = {"target": CIDS[5]}
    for member, value in (
        ("changes", [{"path": "f/3", "before": {"target": CIDS[3]}, "after": side}]),
        ("changes", [{"path": "f/4", "before": {"target": CIDS[4]}, "after": side}]),
        ("object", exchanges["diff"].request["b"]),
        ("expected_root", exchanges["diff"].request["b"]),
    ):
        request = copy.deepcopy(honest.request)
        request["deltas"][0][member] = value
        honest._replace(request=request).refuses(honest.result)
    honest._replace(request={**honest.request, "root": exchanges["diff"].request["b"]}).refuses(honest.result)


def receipt(tree: coregw.List, change: coregw.Change) -> Json:
    applied = tree.apply([change])
    proof = base64.b64encode(applied.proof).decode()
    delta = {"object": tree.root, "result": applied.tree.root, "proof": proof}
    new = applied.tree.root
    return {"base_root": tree.root, "new_root": new, "delta_count": 1, "arc_count": 1, "deltas": [delta]}


def test_receipt_with_sizes_that_are_not_fixed_is_refused() -> None:
    sent = {"index": 0, "before": {"target": CIDS[0]}, "after": {"target": CIDS[5], "size": 2}}
    for sizes, is_fixed in (([2, 2, 1], True), ([2, 1, 2], False), ([2, 2, 2], False)):
        tree = coregw.List(CIDS[:3], sizes)
        delta = {"kind": "list", "changes": [sent], "commit": {"fixed_list": {"total_size": 5, "chunk_size": 2}}}
        request = {"root": tree.root, "deltas": [delta]}
        change = coregw.Change(0, CIDS[0], CIDS[5], 2)
        exchange = Exchange("fixed", request, receipt(tree, change), coregw.verify_transition)
        if is_fixed:
            exchange.verify(json.dumps(request), json.dumps(exchange.result))
        else:
            exchange.refuses(exchange.result)


# ---------------------------------------------------------------------------------------------------------------- CARs


LEAVES = [list_leaf(1, binary(cid)) for cid in CIDS[:3]]
TOP = list_inner(LEAVES[0], LEAVES[1])


def node(part: Any) -> bytes:  # noqa: ANN401 - a part whose proof is its encoding
    return car_files.block(part.root(LIST), part.proof)


def top(left: tuple[int, int] = (1, 1), right: tuple[int, int] = (1, 1)) -> tuple[bytes, bytes]:
    """A node above the first two leaves that states these counts and measures: its root, and its block."""
    sides = ((left, LEAVES[0]), (right, LEAVES[1]))
    data = b"\x12" + b"".join(bytes(stated) + leaf.digest for stated, leaf in sides)
    root = car_files.cid(LIST, data)
    return root, car_files.block(root, data)


def import_car(car: bytes) -> list[str]:
    """Import a CAR into an empty store. If it is refused, nothing of it is held."""

    async def run() -> list[str]:
        store = MemoryStore()
        engine = Engine(store)

        async def chunks() -> AsyncIterator[bytes]:
            yield car

        try:
            roots: list[str] = json.loads(await engine.cars.import_car(chunks()))["roots"]
        except coregw.CoregwError:
            for part in (TOP, *LEAVES):
                request = {"profile": CORE.format("read"), "query": {"kind": "list_index", "index": 0}}
                request["root"] = coregw.Cid(part.root(LIST)).text
                with pytest.raises(coregw.NotFound) as caught:
                    await engine.read(json.dumps(request).encode())
                assert caught.value.code == "root_not_found"
            raise
        finally:
            await engine.close()
        return roots

    return asyncio.run(run())


def refuse_car(car: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        import_car(car)


def test_car_with_another_tree_than_its_root_is_refused() -> None:
    root, block = top()
    first, second, other = (node(leaf) for leaf in LEAVES)
    header = car_files.header(root)
    assert import_car(header + block + first + second) == [coregw.Cid(root).text]
    refuse_car(header + block + first, "not among the blocks")
    refuse_car(header + first + second, "not among the blocks")
    refuse_car(header + block + first + second + other, "not reachable from any root")


def test_car_with_a_block_of_another_hash_is_refused() -> None:
    root = LEAVES[0].root(LIST)
    header, block = car_files.header(root), node(LEAVES[0])
    for flipped in range(len(block) - len(LEAVES[0].proof), len(block)):
        forged = bytearray(block)
        forged[flipped] ^= 1
        refuse_car(header + bytes(forged), "another hash")
    refuse_car(header + block + car_files.block(binary(CIDS[1]), b"other"), "another hash")


def test_car_whose_counts_or_measures_differ_from_the_children_is_refused() -> None:
    leaves = b"".join(node(leaf) for leaf in LEAVES[:2])
    for left, right in (((1, 2), (1, 1)), ((1, 1), (1, 2)), ((2, 1), (1, 1))):
        root, block = top(left, right)
        refuse_car(car_files.header(root) + block + leaves, "differs from what its parent records")


def test_truncated_car_is_refused() -> None:
    whole = car_files.header(LEAVES[0].root(LIST)) + node(LEAVES[0])
    for length in range(len(whole)):
        with pytest.raises(InvalidInput):
            import_car(whole[:length])


def test_car_with_another_header_is_refused() -> None:
    header, block = car_files.header(LEAVES[0].root(LIST)), node(LEAVES[0])
    for at_byte in range(len(header)):
        forged = bytearray(header)
        forged[at_byte] ^= 0x20
        with pytest.raises(InvalidInput):
            import_car(bytes(forged) + block)
