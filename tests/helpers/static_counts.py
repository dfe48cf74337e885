"""Counts of requests and bytes for each operation of a client of a static tree, cold and with what it has kept.

As a program it prints the table of docs/distribution.md, for a map of a million keys and a folder of a thousand files.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coregw import Cid, payload_cid
from coregw.client import Client, ClientSettings, ConnectionOptions
from coregw.client.static.folder import StaticFolder
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.gateways import Address
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.memory import MemoryStore
from coregw.store.origin import page_path, payload_path, root_path
from static_trees import python_server

HEAD = "| operation | cold: requests | KiB | again, another key: requests | KiB |"


class Kept(NamedTuple):
    """Requests of lookups of further keys by a client that has most inner pages: their mean, and the maximum."""

    mean: float
    most: int


class Row(NamedTuple):
    """What an operation costs: with nothing kept, and then again on other keys."""

    operation: str
    requests: int
    kib: int
    requests_again: int
    kib_again: int


def write_tree(top: Path, keys: int, files: int) -> tuple[str, str, str]:
    """Write a static tree of a map, the same map with one change, and a folder. Returns the roots."""
    store = MemoryStore()
    payloads = [b"contents of file %d\n" % i for i in range(files)]

    async def build() -> list[str]:
        engine = Engine(store)

        async def lines(paths: list[str], target: Callable[[int], str]) -> AsyncIterator[bytes]:
            for i, path in enumerate(paths):
                yield f'["{path}","{target(i)}"]\n'.encode()

        many = [f"directory {i % 997}/file {i}" for i in range(keys)]
        fixed = payload_cid(b"a payload")
        changed = payload_cid(payloads[0])
        some = [f"{i % 10}/{i}" for i in range(files)]
        roots = [
            await engine.builds.build_root(lines(many, lambda _: fixed), "sha2-256"),
            await engine.builds.build_root(lines(many, lambda i: changed if i == 7 else fixed), "sha2-256"),
            await engine.builds.build_root(lines(some, lambda i: payload_cid(payloads[i])), "sha2-256"),
        ]
        tables = {table: dict(store._tables[table]) for table in (Table.PAGES, Table.ROOTS)}
        async with StaticFolder(top) as folder:
            await folder.put([(page_path(digest), page) for digest, page in tables[Table.PAGES].items()])
            names = [payload_path(Cid(payload_cid(payload)).multihash) for payload in [*payloads, b"a payload"]]
            await folder.put([*zip(names, [*payloads, b"a payload"], strict=True)])
            await folder.put([(root_path(root), tables[Table.PAGES][root[-32:]]) for root in tables[Table.ROOTS]])
        await engine.close()
        return [each.decode().split('"')[3] for each in roots]

    large, changed, folder_root = asyncio.run(build())
    return large, changed, folder_root


def measure(keys: int, files: int) -> tuple[list[Row], Kept]:
    """Count what each operation costs, and each lookup of a client that has looked up 500 keys together."""
    with tempfile.TemporaryDirectory(prefix="coregw-") as name:
        top = Path(name) / "tree"
        large, changed, folder = write_tree(top, keys, files)

        def path(i: int) -> str:
            return f"directory {i % 997}/file {i}"

        operations: dict[str, Callable[[Client, int], object]] = {
            "`resolve` of a key": lambda client, i: client.resolve(large, path(100 * i)),
            "`prove_key` of an absent key": lambda client, i: client.prove_key(large, f"{path(100 * i)} none"),
            "`cat` of a key": lambda client, i: client.get_payload(client.resolve(large, path(100 * i))),
            "`scan` of 1,000 entries": lambda client, i: client.scan(large, (), path(100 * i)),
            "`resolve_many` of 1,000 keys": lambda client, i: client.resolve_many(
                large, [path(i + 7 * each) for each in range(1000)]
            ),
            "`diff` with one change": lambda client, i: list(client.diff(large, changed, path(7) if i else "")),
            f"`get` of a folder of {files:,} files": lambda client, i: client.get(folder, Path(name) / f"{i}"),
        }
        rows = []
        with python_server(top) as url, counted_upstreams() as upstreams:
            for operation, run in operations.items():
                with Client(url) as client:
                    rows.append(Row(operation, *_cost(upstreams, run, client, 0), *_cost(upstreams, run, client, 1)))
            further = random.Random(1)
            with Client(url) as client:
                client.resolve_many(large, [path(further.randrange(keys)) for _ in range(500)])
                costs = [
                    _cost(upstreams, lambda client, i: client.resolve(large, path(i)), client, further.randrange(keys))
                    for _ in range(200)
                ]
            return rows, Kept(sum(requests for requests, _ in costs) / len(costs), max(costs)[0])


@contextmanager
def counted_upstreams() -> Iterator[list[HttpUpstream]]:
    """Collect all upstreams that are made: a restore has a client of its own."""
    made: list[HttpUpstream] = []
    make = HttpUpstream.__init__

    def collect(upstream: HttpUpstream, address: Address, settings: ClientSettings, *rest: ConnectionOptions) -> None:
        make(upstream, address, settings, *rest)
        made.append(upstream)

    HttpUpstream.__init__ = collect  # type: ignore[method-assign]
    try:
        yield made
    finally:
        HttpUpstream.__init__ = make  # type: ignore[method-assign]


def _cost(
    upstreams: list[HttpUpstream], run: Callable[[Client, int], object], client: Client, number: int
) -> tuple[int, int]:
    """The requests and KiB of one operation."""

    def counts() -> tuple[int, int]:
        return sum(each.traffic.requests for each in upstreams), sum(each.traffic.received for each in upstreams)

    requests, received = counts()
    run(client, number)
    requests, received = counts()[0] - requests, counts()[1] - received
    return requests, -(-received // 1024)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:3]] or [1_000_000, 1000]
    print(HEAD, "|---|---|---|---|---|", sep="\n")
    measured, kept = measure(*numbers)
    for row in measured:
        print(f"| {row.operation} | " + " | ".join(f"{each:,}" for each in row[1:]) + " |")
    print(f"with inner pages kept: {kept.mean:.2f} requests for a lookup, at most {kept.most}")
