"""CAR export and import: only verified files get their name, and damaged files are found before they are sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import coregw
from car_files import block, car_of_payloads, cid, frames, header, split
from coregw import Cid, List, Map, payload_cid
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.errors import InvalidInput, ProofError, RootNotFound, TooLarge, Unavailable
from gateways import Liar, Reply, honest_gateway, names

EMPTY = cid(0x303110, b"\0")


@pytest.fixture
def root(client: Client) -> str:
    """A map of twelve payloads that the gateway holds, one that it does not hold, and a nested map."""
    nested = client.create_root({"inner": client.put_payload(b"inner")})
    arcs = {f"docs/{i}": client.put_payload(b"page %d" % i) for i in range(12)}
    return client.create_root(arcs | {"gone": payload_cid(b"not stored"), "nested": nested})


def test_an_exported_and_imported_root_gives_the_same_answers(client: Client, root: str, tmp_path: Path) -> None:
    progress: list[int] = []
    done = client.export_car(root, tmp_path / "a.car", payloads=True, progress=progress.append)
    car = (tmp_path / "a.car").read_bytes()
    assert (done.root, done.nested_roots, done.missing_payloads, done.missing_roots) == (root, 1, 1, 0)
    assert (done.blocks, done.bytes) == (len(frames(car)) - 1, len(car))
    assert sum(progress) == len(car)
    with honest_gateway(tmp_path / "other") as url, Client(url) as other:
        progress.clear()
        imported = other.import_car(tmp_path / "a.car", progress=progress.append)
        assert (imported.roots, imported.blocks, imported.bytes) == ([root], done.blocks, len(car))
        assert sum(progress) == len(car)
        assert other.get_payload(other.resolve(root, "docs/7")) == b"page 7"
        assert other.get_payload(other.resolve(root, "nested/inner")) == b"inner"
        assert list(other.walk(root)) == list(client.walk(root))
        other.export_car(root, tmp_path / "b.car", payloads=True)
    assert (tmp_path / "b.car").read_bytes() == car


@pytest.mark.anyio
async def test_the_asyncio_client_returns_the_same(gateway: str, root: str, tmp_path: Path) -> None:
    async with AsyncClient(gateway) as client:
        done = await client.export_car(root, tmp_path / "a.car")
        assert done.missing_payloads == 14
        imported = await client.import_car(tmp_path / "a.car")
    assert (imported.roots, imported.blocks, imported.bytes) == ([root], done.blocks, done.bytes)
    assert names(tmp_path) == ["a.car"]


def test_a_pipe_is_refused_and_not_waited_for(client: Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # which nobody writes to
    with pytest.raises(InvalidInput, match="pipe is not a regular file"):
        client.import_car(tmp_path / "pipe")


def test_nested_trees_that_are_not_in_the_file_are_counted(client: Client, tmp_path: Path) -> None:
    unknown = [Map({"never": payload_cid(b"stored")}).root, List([payload_cid(b"nor this")]).root]
    held = client.create_root({"map": unknown[0], "again": unknown[0]})
    root = client.create_root({"a": held, "b": unknown[0], "c/d": unknown[1]})
    done = client.export_car(root, tmp_path / "a.car", payloads=True)
    assert (done.nested_roots, done.missing_payloads, done.missing_roots) == (1, 0, 4)


def test_a_gateway_cannot_leave_out_a_nested_tree_unnoticed(liar: Liar, root: str, tmp_path: Path) -> None:
    nested = bytes(Cid(Map({"inner": payload_cid(b"inner")}).root))

    def lie(reply: Reply) -> Reply:
        head, *blocks = frames(reply.body)
        return reply.with_body(b"".join([head, *(each for each in blocks if split(each)[0] != nested)]))

    done = liar(lie).export_car(root, tmp_path / "a.car")
    assert (done.nested_roots, done.missing_roots) == (0, 1)


def without(number: int) -> Callable[[bytes], bytes]:
    return lambda car: b"".join(frame for i, frame in enumerate(frames(car)) if i != number)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lambda car: car[:-1], "ends inside it"),
        (lambda car: car[:-3] + bytes([car[-3] ^ 1]) + car[-2:], "another hash"),
        (without(1), "is not among the blocks"),
        (without(9), "is not among the blocks"),
        (lambda car: car + block(cid(0x303210, b"\x10"), b"\x10"), "not reachable from any root"),
        (lambda _: header(EMPTY) + block(EMPTY, b"\0"), "names other roots"),
        (lambda car: header(EMPTY, EMPTY) + b"".join(frames(car)[1:]), "names other roots"),
        (lambda _: b"", "ends inside it"),
        (lambda _: b"<html>", "the header"),
    ],
)
def test_a_tampered_export_is_refused_and_leaves_no_file(
    liar: Liar, root: str, tmp_path: Path, lie: Callable[[bytes], bytes], message: str
) -> None:
    lying = liar(lambda reply: reply.with_body(lie(reply.body)))
    with pytest.raises(ProofError, match=message):
        lying.export_car(root, tmp_path / "a.car")
    assert names(tmp_path) == []


def test_a_truncated_export_is_retried_and_then_unavailable(liar: Liar, root: str, tmp_path: Path) -> None:
    attempts: list[int] = []

    def cut(reply: Reply) -> Reply:
        attempts.append(1)
        chunked = {"transfer-encoding": "chunked", "connection": "close"}
        body = reply.body[: len(reply.body) // 2]
        return Reply(reply.method, reply.path, reply.request, 200, b"%x\r\n%s\r\n" % (len(body), body), chunked)

    progress: list[int] = []
    settings = ClientSettings(attempts=2, backoff_seconds=0.001, backoff_max_seconds=0.002, idle_seconds=2)
    with pytest.raises(Unavailable):
        liar(cut, settings).export_car(root, tmp_path / "a.car", progress=progress.append)
    assert len(attempts) == 2
    assert min(progress) < 0  # what follows the last whole block is requested again
    assert names(tmp_path) == []


def test_a_failed_export_leaves_no_file(client: Client, root: str, tmp_path: Path) -> None:
    with pytest.raises(RootNotFound):
        client.export_car(Cid(cid(0x303110, b"?")), tmp_path / "a.car")
    with pytest.raises(InvalidInput, match="is a payload"):
        client.export_car(payload_cid(b"x"), tmp_path / "a.car")
    (tmp_path / "taken").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="exists already"):
        client.export_car(root, tmp_path / "taken")
    assert (tmp_path / "taken").read_bytes() == b"mine"
    with Client(client.base_url, ClientSettings(max_car_blocks=5)) as small, pytest.raises(TooLarge):
        small.export_car(root, tmp_path / "a.car")
    with Client(client.base_url, ClientSettings(max_car_bytes=500)) as small, pytest.raises(TooLarge):
        small.export_car(root, tmp_path / "a.car")
    assert names(tmp_path) == ["taken"]


def test_a_damaged_file_is_found_before_it_is_sent(liar: Liar, client: Client, root: str, tmp_path: Path) -> None:
    paths: list[str] = []

    def recorded(reply: Reply) -> Reply:
        paths.append(reply.path)
        return reply

    client.export_car(root, tmp_path / "a.car", payloads=True)
    car = (tmp_path / "a.car").read_bytes()
    for bad, message in ((car[:-1], "ends inside it"), (car[:-1] + b"!", "another hash"), (b"", "the header")):
        (tmp_path / "a.car").write_bytes(bad)
        with pytest.raises(InvalidInput, match=message):
            liar(recorded).import_car(tmp_path / "a.car")
    assert paths == []
    with pytest.raises(FileNotFoundError):
        client.import_car(tmp_path / "nothing.car")


def test_the_gateway_refuses_incomplete_trees(client: Client, root: str, tmp_path: Path) -> None:
    client.export_car(root, tmp_path / "a.car")
    (tmp_path / "a.car").write_bytes(without(4)((tmp_path / "a.car").read_bytes()))
    with pytest.raises(InvalidInput, match="is not among the blocks"):
        client.import_car(tmp_path / "a.car")


@pytest.mark.parametrize("lie", [b'"blocks":1', b'"bytes":1', b'"roots":[]'])
def test_an_import_answer_that_describes_another_file_is_refused(
    liar: Liar, root: str, tmp_path: Path, lie: bytes
) -> None:
    name, _, value = lie.partition(b":")

    def other(reply: Reply) -> Reply:
        if not reply.path.startswith("/v1/car"):
            return reply
        members = {b'"roots"': b"[]" if b"roots" in name else b'["%s"]' % root.encode(), b'"blocks"': b"30"}
        members |= {b'"bytes"': b"3000", name: value}
        return reply.with_body(b"{" + b",".join(key + b":" + each for key, each in members.items()) + b"}", 201)

    lying = liar(other)
    lying.export_car(root, tmp_path / "a.car")
    with pytest.raises(ProofError, match="something other"):
        lying.import_car(tmp_path / "a.car")


def test_a_carv2_is_sent_as_what_it_is(client: Client, tmp_path: Path) -> None:
    first = car_of_payloads(b"in a CARv2")
    offsets = b"".join(each.to_bytes(8, "little") for each in (51, len(first), 0))
    (tmp_path / "file.car").write_bytes(b"\x0a\xa1\x67version\x02" + bytes(16) + offsets + first)
    assert client.import_car(tmp_path / "file.car").blocks == 1
    assert client.get_payload(coregw.payload_cid(b"in a CARv2")) == b"in a CARv2"
