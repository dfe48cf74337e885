"""Hostile clients beside honest ones: every honest request is answered, memory stays bounded, and nothing is left over.

The attackers and the honest client have different addresses, since a gateway limits what one address may use. The
attackers run in a process of their own, so that they do not slow down the measurement.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # when it runs as the attackers' process
sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

import coregw
import serving
from chaos.attacks import ATTACKS, Target, keep_attacking
from chaos.ledger import cid_of
from chaos.report import Report
from coregw.gateway.limits.machine import least_bytes
from coregw.gateway.settings import Settings
from processes import open_files

COUNT = len(ATTACKS)

_MIB = 1 << 20
_CONNECTIONS = 150
_SECONDS = 6.0
_HONEST_ADDRESS = ("127.0.0.2", 0)
_PAUSE_SECONDS = 0.02
_ANSWER_SECONDS = 30.0
_SETTLE_SECONDS = 60.0
_KEPT_LINKS = 64
"""Connections to its application that a gateway keeps (`MAX_IDLE` in rust/front/src/proxy.rs): each has two sockets."""
_MAX_CONNECTIONS = 400
_MEMORY_BYTES = least_bytes(Settings(connections=_MAX_CONNECTIONS))
_SETTINGS = {
    "proxies": "none",
    "memory": _MEMORY_BYTES,
    "connections": _MAX_CONNECTIONS,
    "header_seconds": 2.0,
    "rate_grace_seconds": 1.0,
    "body_idle_seconds": 2.0,
    "drain_seconds": 2.0,
    "write_seconds": 3.0,
    "keep_alive_seconds": 2,
}


def run(
    seed: int,
    count: int,
    folder: Path,
    *,
    names: Sequence[str] = tuple(ATTACKS),
    connections: int = _CONNECTIONS,
    seconds: float = _SECONDS,
) -> Report:
    """Attack gateways in `count` ways, each a gateway of its own.

    Args:
        seed: Chooses what the attackers send.
        count: The number of attacks; after the last kind, the first follows again.
        folder: An empty folder.
        names: The kinds of attacks.
        connections: How many connections attack at once.
        seconds: How long each attack lasts.
    """
    rng = random.Random(seed)
    results = [
        _attacked(folder / str(number), names[number % len(names)], connections, seconds, rng)
        for number in range(count)
    ]
    latencies = sorted(latency for result in results for latency in result.latencies)
    failures = [failure for result in results for failure in result.failures]
    figures: dict[str, object] = {"seed": seed, "attacks": count, "honest requests": len(latencies)}
    figures |= {"failures": len(failures), "median ms": 1000 * latencies[len(latencies) // 2]}
    figures |= {"p99 ms": 1000 * latencies[len(latencies) * 99 // 100]}
    figures |= {"memory MiB": {result.name: result.growth >> 20 for result in results}}
    return Report("hostile", not failures, figures, failures)


@dataclass
class _Result:
    name: str
    latencies: list[float] = field(default_factory=list)
    growth: int = 0
    failures: list[str] = field(default_factory=list)


def _attacked(data: Path, name: str, connections: int, seconds: float, rng: random.Random) -> _Result:
    """Attack a new gateway, with an honest client beside."""
    result, failed = _Result(name), Counter[str]()
    with serving.process(data, **_SETTINGS) as gateway:
        target, honest = _prepared(gateway)
        memory, sockets = _memory(gateway), _sockets(gateway)
        most = memory
        with _attackers(name, target, connections, rng.randrange(1 << 30)):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                began = time.monotonic()
                if (failure := honest.ask(rng)) is not None:
                    failed[failure] += 1
                result.latencies.append(time.monotonic() - began)
                most = max(most, _memory(gateway))
                time.sleep(_PAUSE_SECONDS)
        if not _until_settled(gateway, sockets):
            result.failures.append(f"{name}: {_sockets(gateway)} sockets are open, and {sockets} were before")
    if failed:
        what = f"{failed.total()} of {len(result.latencies)} honest requests failed: {dict(failed)}"
        result.failures.append(f"{name}: {what}")
    result.growth = most - memory
    if most > _MEMORY_BYTES:
        result.failures.append(
            f"{name}: {most >> 20} MiB of memory, of which the gateway may use {_MEMORY_BYTES >> 20}"
        )
    return result


class _Honest:
    """A client that asks for one small thing at a time, each on a new connection."""

    def __init__(self, port: int, root: str) -> None:
        self._port = port
        self._root = root

    def ask(self, rng: random.Random) -> str | None:
        """Send a request. Returns how it failed, or None."""
        data = rng.randbytes(1000)
        resolve = {"profile": "core.resolve/v0alpha1", "root": self._root, "segments": ["0", "0"]}
        method, path, body, expected = rng.choice(
            [
                ("GET", "/healthz", None, 200),
                ("POST", "/v1/cas", data, 201),
                ("POST", "/v1/resolve", json.dumps(resolve).encode(), 200),
            ]
        )
        connection = http.client.HTTPConnection("127.0.0.1", self._port, _ANSWER_SECONDS, _HONEST_ADDRESS)
        try:
            connection.request(
                method, path, body, {"Content-Type": "application/json"} if path == "/v1/resolve" else {}
            )
            answer = connection.getresponse()
            received = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return f"{path}: {type(error).__name__}"
        finally:
            connection.close()
        if answer.status != expected:
            return f"{path}: {answer.status}"
        return f"{path}: another CID" if path == "/v1/cas" and json.loads(received)["cid"] != cid_of(data) else None


def _prepared(gateway: serving.Process) -> tuple[Target, _Honest]:
    with coregw.Client(gateway.url) as client:
        large = client.put_payload(random.Random(1).randbytes(8 * _MIB))
        arcs = {f"{number % 10}/{number}": cid_of(b"%d" % number) for number in range(5000)}
        root = client.create_root(arcs)
        sequence = client.create_list([cid_of(b"%d" % number) for number in range(10_000)])
        long_keys = client.create_root({f"{number}/{'x' * 950}": cid_of(b"") for number in range(1000)})
    honest = _Honest(gateway.port, root)
    for number in range(30):  # before memory is measured
        assert honest.ask(random.Random(number)) is None
    return Target(gateway.port, large, root, sequence, long_keys), honest


@contextmanager
def _attackers(name: str, target: Target, connections: int, seed: int) -> Iterator[None]:
    arguments = [name, json.dumps(asdict(target)), str(connections), str(seed)]
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"attacking\n"
    try:
        yield
    finally:
        process.communicate(timeout=_SETTLE_SECONDS)  # closes stdin, which ends it
        assert process.returncode == 0


def _until_settled(gateway: serving.Process, sockets: tuple[int, int]) -> bool:
    """Whether the gateway has closed what the attackers opened, after a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < deadline:
        of_clients, others = _sockets(gateway)
        if of_clients <= sockets[0] and others <= sockets[1] + 2 * _KEPT_LINKS:
            return True
        time.sleep(0.1)
    return False


def _sockets(gateway: serving.Process) -> tuple[int, int]:
    """The sockets of connections from clients, and the others."""
    table = Path(f"/proc/{gateway.popen.pid}/net/tcp").read_text().splitlines()[1:]
    names = {f"socket:[{line.split()[9]}]" for line in table}
    found = [name for name in open_files(gateway.popen.pid) if name.startswith("socket:")]
    of_clients = sum(name in names for name in found)
    return of_clients, len(found) - of_clients


def _memory(gateway: serving.Process) -> int:
    lines = Path(f"/proc/{gateway.popen.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


async def _main(name: str, target: Target, connections: int, seed: int) -> None:
    """The attackers' process: attacks until its stdin is closed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    print("attacking", flush=True)
    await keep_attacking(ATTACKS[name], target, connections, seed, stop)


if __name__ == "__main__":
    _name, _target, _connections, _seed = sys.argv[1:]
    asyncio.run(_main(_name, Target(**json.loads(_target)), int(_connections), int(_seed)))
