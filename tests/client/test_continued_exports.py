"""Exports whose answers are truncated: what has arrived is not requested again, and all of it is verified."""

from __future__ import annotations

import asyncio
import filecmp
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from car_files import frames, split
from coregw import Cid, payload_cid
from coregw.client import Client, ClientSettings
from coregw.errors import ProofError, Unavailable
from cut_network import CUT, SETTINGS, cutting
from gateways import Liar, Reply, names

MIB = 1 << 20
ATTEMPTS = ClientSettings(attempts=3, backoff_seconds=0.001, backoff_max_seconds=0.002, idle_seconds=5)


@pytest.fixture(scope="module")
def root(gateway: str) -> str:
    """A map of many arcs, with a nested list, and payloads of which one is longer than a connection lasts."""
    rng = random.Random(1)
    arcs = {f"folder {number % 30}/file {number}": payload_cid(b"not held %d" % number) for number in range(20_000)}
    with Client(gateway) as direct:
        datas = [rng.randbytes(size) for size in (7 * MIB, 50_000, 2 * MIB, 700_000)]
        elements = direct.create_list([direct.put_payload(rng.randbytes(90_000)) for _ in range(30)])
        return direct.create_root(
            {**arcs, "list": elements, **{f"{number}": direct.put_payload(data) for number, data in enumerate(datas)}}
        )


@pytest.mark.anyio
@pytest.mark.parametrize("is_blocking", [False, True], ids=["AsyncClient", "Client"])
@pytest.mark.parametrize("payloads", [True, False], ids=["payloads", "nodes"])
async def test_an_export_continues(gateway: str, root: str, tmp_path: Path, payloads: bool, is_blocking: bool) -> None:
    with Client(gateway) as direct:
        whole = direct.export_car(root, tmp_path / "whole.car", payloads=payloads)
    shown: list[int] = []

    def exported(url: str) -> object:
        with Client(url, SETTINGS) as client:
            return client.export_car(root, tmp_path / "cut.car", payloads=payloads, progress=shown.append)

    async with cutting(gateway, CUT if payloads else CUT // 4) as (proxy, client):
        if is_blocking:
            done = await asyncio.to_thread(exported, client.base_url)
        else:
            done = await client.export_car(root, tmp_path / "cut.car", payloads=payloads, progress=shown.append)
        assert proxy.cuts >= 4
        assert proxy.received < 1.1 * whole.bytes
    assert done == whole
    assert sum(shown) == whole.bytes
    assert filecmp.cmp(tmp_path / "whole.car", tmp_path / "cut.car", shallow=False)


@dataclass
class Truncated:
    """Truncates the first export, and passes the answers that continue it through a lie.

    Attributes:
        keep: How many bytes of the first answer are sent.
        lie: What is done with the others.
        asked: What was requested after that.
    """

    keep: int
    lie: Callable[[Reply], Reply] = lambda reply: reply
    asked: list[str] = field(default_factory=list)
    is_cut: bool = False

    def __call__(self, reply: Reply) -> Reply:
        if self.is_cut:
            self.asked.append(reply.path)
            return self.lie(reply)
        self.is_cut = True
        part = reply.body[: self.keep]
        chunked = {"transfer-encoding": "chunked", "connection": "close"}
        return Reply(reply.method, reply.path, reply.request, 200, b"%x\r\n%s\r\n" % (len(part), part), chunked)


@pytest.fixture
def small(gateway: str) -> str:
    """A map of twelve payloads, of which one is 300,000 bytes long."""
    with Client(gateway) as direct:
        arcs = {f"docs/{i}": direct.put_payload(b"page %d" % i) for i in range(11)}
        return direct.create_root({**arcs, "long": direct.put_payload(random.Random(2).randbytes(300_000))})


def whole(gateway: str, root: str, tmp_path: Path) -> bytes:
    with Client(gateway) as direct:
        direct.export_car(root, tmp_path / "whole.car", payloads=True)
    car = (tmp_path / "whole.car").read_bytes()
    (tmp_path / "whole.car").unlink()
    return car


def block_end(car: bytes, number: int) -> int:
    return sum(map(len, frames(car)[: number + 2]))


def test_only_what_follows_the_last_whole_block_is_requested(
    gateway: str, liar: Liar, small: str, tmp_path: Path
) -> None:
    car = whole(gateway, small, tmp_path)
    last = Cid(split(frames(car)[6])[0]).text
    for more in (0, 1, 20):
        lie = Truncated(block_end(car, 5) + more)
        liar(lie, ATTEMPTS).export_car(small, tmp_path / f"{more}.car", payloads=True)
        assert lie.asked == [f"/v1/roots/{small}/car?payloads=true&after={last}&occurrence=1"]
        assert (tmp_path / f"{more}.car").read_bytes() == car


def test_without_a_whole_block_the_export_begins_anew(gateway: str, liar: Liar, small: str, tmp_path: Path) -> None:
    car = whole(gateway, small, tmp_path)
    lie = Truncated(len(frames(car)[0]) + 3)
    liar(lie, ATTEMPTS).export_car(small, tmp_path / "a.car", payloads=True)
    assert lie.asked == [f"/v1/roots/{small}/car?payloads=true"]
    assert (tmp_path / "a.car").read_bytes() == car


def test_a_gateway_that_cannot_continue_sends_all(gateway: str, liar: Liar, small: str, tmp_path: Path) -> None:
    """An older gateway does not know the parameter, and another one may not have the block."""
    car = whole(gateway, small, tmp_path)

    def refuse(reply: Reply) -> Reply:
        if "after=" not in reply.path:
            return reply
        return reply.with_body(b'{"error":"invalid_request","message":"unknown query parameter"}', 400)

    lie = Truncated(block_end(car, 5), refuse)
    shown: list[int] = []
    liar(lie, ATTEMPTS).export_car(small, tmp_path / "a.car", payloads=True, progress=shown.append)
    assert ["after=" in path for path in lie.asked] == [True, False]
    assert (tmp_path / "a.car").read_bytes() == car
    assert sum(shown) == len(car)


def test_a_payload_of_two_answers_that_do_not_fit_is_requested_again(
    gateway: str, liar: Liar, small: str, tmp_path: Path
) -> None:
    car = whole(gateway, small, tmp_path)
    long = next(number for number, frame in enumerate(frames(car)[1:]) if len(frame) > 300_000)
    start = block_end(car, long - 1)

    def other(reply: Reply) -> Reply:
        if not reply.path.startswith("/v1/cas/"):
            return reply
        at = int(reply.received["range"].removeprefix("bytes=").removesuffix("-"))
        headers = {"content-range": f"bytes {at}-299999/300000"}
        return Reply(reply.method, reply.path, reply.request, 206, bytes(300_000 - at), headers)

    lie = Truncated(start + 200_000, other)
    liar(lie, ATTEMPTS).export_car(small, tmp_path / "a.car", payloads=True)
    assert [path.split("?")[0].split("/")[2] for path in lie.asked] == ["cas", "roots"]
    assert (tmp_path / "a.car").read_bytes() == car


@pytest.mark.parametrize(
    ("lie", "error", "message"),
    [
        (lambda body: b"\x3a" + body[1:], ProofError, "not a CAR of this root"),
        (lambda body: body[:-3] + bytes([body[-3] ^ 1]) + body[-2:], ProofError, "another hash"),
        (lambda body: b"".join(frames(body)[:-1]), Unavailable, "do not fit together"),
    ],
    ids=["header", "hash", "missing node"],
)
def test_an_answer_that_does_not_continue_the_other_is_refused(
    gateway: str,
    liar: Liar,
    small: str,
    tmp_path: Path,
    lie: Callable[[bytes], bytes],
    error: type[Exception],
    message: str,
) -> None:
    car = whole(gateway, small, tmp_path)
    lying = liar(Truncated(block_end(car, 5), lambda reply: reply.with_body(lie(reply.body))), ATTEMPTS)
    with pytest.raises(error, match=message):
        lying.export_car(small, tmp_path / "a.car", payloads=True)
    assert names(tmp_path) == []
