"""A gateway under mixed load for ten minutes, and the memory of its process.

The load: resolves, batches of them, listings, small and large uploads, downloads, mutations, publications, refused
requests, requests for missing content, clients that stop reading, and aborted uploads. Memory is flat if the regression
line through the samples of the last half rises by at most 5 % of their mean. The run fails (exit code 1) if memory is
not flat, if it exceeds the bound that the settings imply, or if any response is unexpected.

    python benches/soak.py --seconds 600
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import coregw
import report

MIB = 1 << 20
MEMORY = 768 * MIB
RISE = 0.05
ARCS = 100_000
CLIENTS = 6
TOKEN = "soak"  # noqa: S105 - the gateway exists only during this run
PROFILES = {"core.resolve/v0alpha1": "/v1/resolve", "core.scan/v0alpha1": "/v1/scan"}


class Client:
    """A client that sends one random kind of request after another."""

    def __init__(self, address: str, number: int, counts: collections.Counter[str]) -> None:
        self.address, self.number, self.counts = address, number, counts
        self.rng = random.Random(number)
        self.connection = HTTPConnection(address, timeout=60)
        self.root, self.paths, self.cids = "", [f"d{i % 100}/f{i}" for i in range(ARCS)], [""]
        self.revision = 0

    def ask(self, method: str, path: str, body: bytes | None, *expected: int) -> bytes:
        self.connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in expected:
            raise AssertionError(f"{method} {path[:80]}: {answer.status} {text[:200]!r}")
        return text

    def prepare(self) -> None:
        """Create a map of this client's own, and a payload."""
        arcs = {path: coregw.payload_cid(b"%d %d" % (self.number, i)) for i, path in enumerate(self.paths)}
        self.root = json.loads(self.ask("POST", "/v1/roots", json.dumps({"arcs": arcs}).encode(), 201))["root"]
        self.current = {path: arcs[path] for path in self.paths[:1000]}
        self.upload(MIB)

    def query(self, profile: str, **members: object) -> None:
        body = {"profile": profile, "root": self.root, **members}
        self.ask("POST", PROFILES[profile], json.dumps(body).encode(), 200)

    def resolve(self) -> None:
        self.query("core.resolve/v0alpha1", segments=self.rng.choice(self.paths).split("/"))

    def resolve_batch(self) -> None:
        paths = [path.split("/") for path in self.rng.sample(self.paths, 200)]
        self.ask("POST", "/v1/resolve/batch", json.dumps({"root": self.root, "paths": paths}).encode(), 200)

    def scan(self) -> None:
        self.query("core.scan/v0alpha1", prefix=[f"d{self.rng.randrange(100)}"], limit=500)

    def upload(self, size: int | None = None) -> None:
        data = self.rng.randbytes(size or self.rng.choice((4096, 4096, 200_000, 3 * MIB)))
        self.cids = [*self.cids[-50:], json.loads(self.ask("POST", "/v1/cas", data, 201))["cid"]]

    def upload_again(self) -> None:
        self.ask("POST", "/v1/cas", b"the same" * 300_000, 201)

    def download(self) -> None:
        self.ask("GET", f"/v1/cas/{self.cids[-1]}", None, 200)

    def mutate(self) -> None:
        path = self.rng.choice(list(self.current))
        before, after = self.current[path], coregw.payload_cid(self.rng.randbytes(8))
        sides = {"before": before, "after": after}
        change = {"path": path, **{side: {"target": cid, "target_kind": "cas"} for side, cid in sides.items()}}
        body = json.dumps({"deltas": [{"kind": "map", "changes": [change]}], "prove": True}).encode()
        self.root = json.loads(self.ask("POST", f"/v1/roots/{self.root}/mutations", body, 201))["new_root"]
        self.current[path] = after

    def publish(self) -> None:
        body = {"name": f"n{self.number}", "root": self.root, "expected_revision": self.revision}
        self.ask("POST", "/admin/v1/scopes/soak/roots", json.dumps(body).encode(), 200, 201)
        self.revision += 1

    def send_refused(self) -> None:
        self.ask("POST", "/v1/resolve", b'{"profile": ', 400)
        self.ask("GET", f"/v1/cas/{coregw.payload_cid(self.rng.randbytes(8))}", None, 404)
        self.ask("POST", "/v1/scan", b" " * (MIB + 1), 413)
        self.connection.close()

    def abort_upload(self) -> None:
        """Close the connection in the middle of an upload."""
        with socket.create_connection(self.address.split(":"), timeout=60) as plain:
            plain.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n" % (8 * MIB))
            plain.sendall(bytes(self.rng.randrange(5 * MIB)))

    def read_slowly(self) -> None:
        """Start a download, stop reading for a while, and close the connection."""
        with socket.create_connection(self.address.split(":"), timeout=60) as plain:
            plain.sendall(f"GET /v1/cas/{self.cids[1]} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
            plain.recv(1000)
            time.sleep(0.5)

    def run(self, until: float) -> None:
        kinds: dict[Callable[[], None], int] = {
            self.resolve: 40, self.resolve_batch: 8, self.scan: 8, self.upload: 8, self.upload_again: 2,
            self.download: 8, self.mutate: 8, self.publish: 4, self.send_refused: 4, self.abort_upload: 1,
            self.read_slowly: 1,
        }  # fmt: skip
        while time.monotonic() < until:
            [what] = self.rng.choices(list(kinds), list(kinds.values()))
            what()
            self.counts[what.__name__] += 1
            time.sleep(0.002)


def memory(pid: int) -> float:
    """Return the private memory of a process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def load(address: str, pid: int, seconds: float) -> tuple[list[float], list[float], collections.Counter[str]]:
    """Run all clients and sample the memory every second. Return times, samples, and the number of requests by kind."""
    counts: collections.Counter[str] = collections.Counter()
    clients = [Client(address, number, counts) for number in range(CLIENTS)]
    for client in clients:
        client.prepare()
    failed: list[BaseException] = []

    def work(client: Client) -> None:
        try:
            client.run(start + seconds)
        except BaseException as error:  # noqa: BLE001 - any error fails the run
            failed.append(error)

    start = time.monotonic()
    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    times, samples = [], []
    while any(thread.is_alive() for thread in threads):
        times.append(time.monotonic() - start)
        samples.append(memory(pid))
        time.sleep(min(1, seconds / 60))
    if failed:
        raise failed[0]
    return times, samples, counts


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="duration; by default ten minutes")
    args = parser.parse_args()
    seconds = args.seconds or (20 if args.quick else 600)
    environment = os.environ | {"GATEWAY_ADMIN_TOKEN": TOKEN}
    with tempfile.TemporaryDirectory(dir=report.REPOSITORY / "target") as data:
        command = [sys.executable, "-m", "coregw", "serve", "--port", "0", "--data", data]
        command += ["--set", "log_level=error", "--set", f"memory={MEMORY}"]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert gateway.stdout is not None
            address = gateway.stdout.readline().rpartition("/")[2].strip()
            times, samples, counts = load(address, gateway.pid, seconds)
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait()

    half = len(samples) // 2
    mean = statistics.fmean(samples[half:])
    rise = statistics.linear_regression(times[half:], samples[half:]).slope * (times[-1] - times[half]) / mean
    bound = MEMORY / MIB
    figures = report.Report(
        "soak",
        f"Memory under mixed load for {seconds:,.0f} seconds",
        args,
        (
            "Private memory (RssAnon), with 32 MiB of page cache, 16 MiB of block cache, 128 MiB for bodies.",
            f"Requests of {CLIENTS} clients: " + ", ".join(f"{n:,} {what}" for what, n in counts.most_common()) + ".",
        ),
    )
    figures.add("rise over the last half, relative to the mean", 100 * rise, "%", better="lower", bar=100 * RISE)
    figures.add("peak / bound from the settings", max(samples) / bound, better="lower", bar=1)
    figures.add("mean of the last half", mean, "MiB", recorded=False)
    figures.panel("memory", "seconds", "MiB")
    figures.line("memory", "private memory", times, samples)
    figures.line("memory", "bound from the settings", [0, times[-1]], [bound, bound])
    figures.finish()
    if not all(figure.is_met() for figure in figures.figures.values()):
        sys.exit("memory is not flat, or exceeds the bound from the settings")


if __name__ == "__main__":
    main()
