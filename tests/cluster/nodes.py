"""A cluster for tests: three PostgreSQL servers of which two confirm each write, a bucket, and gateways on them.

Gateways reach each server of the database through a proxy, which stands for the network. The test is the cluster's
manager: it promotes the standby that has received most.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import serving
from network import Proxy, proxy_of
from servers import Bucket, Postgres, bucket, folder, free_port, postgres_binaries, unprivileged

T = TypeVar("T")

_SECONDS = 60
_SETTINGS = {
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_timeout": "5s",
    "wal_sender_timeout": "5s",
    "hot_standby_feedback": "on",
}


class Network:
    """Proxies in an event loop of their own thread, one for each port."""

    def __init__(self, ports: list[int], seed: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.proxies: list[Proxy] = [self._run(self._stack.enter_async_context(proxy_of(port))) for port in ports]
        for number, proxy in enumerate(self.proxies):
            proxy.rng = random.Random(f"{seed} {number}")

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(_SECONDS)

    def close(self) -> None:
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()


class Databases:
    """Three servers: a primary, and two standbys of which one has to confirm each write."""

    def __init__(self, folder: Path, count: int = 3, *, is_safe: bool = True) -> None:
        binaries = postgres_binaries()
        if binaries is None:
            raise LookupError("PostgreSQL was not found; `make test-servers` installs it")
        if (user := unprivileged()[1]) is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        names = [f"node{number}" for number in range(count)]
        # A walreceiver calls itself by this name. Every name (*) would include pg_basebackup's.
        self.nodes = [
            Postgres(binaries, folder / name, free_port(), _SETTINGS | {"cluster_name": name}) for name in names
        ]
        self.primary = self.nodes[0]
        self.primary.create()
        self.primary.start()
        for node in self.standbys:
            self.primary.copy_to(node)
            node.start()
        for node in self.nodes if is_safe else []:  # whichever is promoted
            names_of_all = f"ANY 1 ({', '.join(names)})"
            node.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names_of_all}'", "SELECT pg_reload_conf()")

    @property
    def standbys(self) -> list[Postgres]:
        return [node for node in self.nodes if node is not self.primary]

    def fail_over(self) -> None:
        """Kill what is left of the primary, promote the standby that has received most, and let the other follow it."""
        lost = self.primary
        lost.stop(signal.SIGKILL)
        received = {node.port: self._received(node) for node in self.standbys}
        self.primary = max(self.standbys, key=lambda node: received[node.port])
        self.primary.promote()
        for node in self.standbys:
            if node is not lost:
                node.follow(self.primary)

    def stop_replication(self) -> None:
        """Let the standbys receive nothing more."""
        for node in self.standbys:
            node.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        deadline = time.monotonic() + _SECONDS
        while self.primary.execute("SELECT count(*) FROM pg_stat_replication") != [(0,)]:
            assert time.monotonic() < deadline, "the standbys still follow the primary"
            time.sleep(0.05)

    def rejoin(self) -> None:
        """Make a new standby of the server that was killed, and wait until both confirm."""
        for node in self.standbys:
            if node.process is None:
                shutil.rmtree(node.data)
                self.primary.copy_to(node)
                node.start()
        deadline = time.monotonic() + _SECONDS
        query = "SELECT count(*) FROM pg_stat_replication WHERE application_name LIKE 'node%' AND state = 'streaming'"
        while self.primary.execute(query) != [(len(self.nodes) - 1,)]:
            assert time.monotonic() < deadline, "the standbys do not follow the primary"
            time.sleep(0.05)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop(signal.SIGQUIT)

    @staticmethod
    def _received(node: Postgres) -> int:
        ((position,),) = node.execute("SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint")
        return int(str(position))


@dataclass
class Cluster:
    """Everything that a test may break.

    Attributes:
        databases: The servers of the database.
        network: What is between them and the gateways.
        s3: The bucket.
        gateways: The gateways; one that is started again has the same address.
    """

    databases: Databases
    network: Network
    s3: Bucket
    path: Path
    gateways: list[serving.Process]
    unsafe: str

    @property
    def urls(self) -> list[str]:
        return [gateway.url for gateway in self.gateways]

    def start_gateway(self, number: int, port: int) -> serving.Process:
        """Start a gateway on a port."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.network.proxies)
        settings = {
            "store": f"postgresql://coregw@{hosts}/postgres?sslmode=disable{self.unsafe}",
            "bucket": self.s3.url,
        }
        data = self.path / f"gateway{number}"
        return serving.start(data, serving.ADMIN, log=data.with_suffix(".log"), port=port, **settings)

    def restart_gateway(self, number: int) -> None:
        """Kill a gateway, and start it again on its address."""
        gateway = self.gateways[number]
        gateway.popen.kill()
        gateway.popen.communicate()
        self.gateways[number] = self.start_gateway(number, gateway.port)


@contextmanager
def cluster(seed: int, *, gateways: int = 2, is_safe: bool = True) -> Iterator[Cluster]:
    """Run a cluster. One that is not safe acknowledges what no standby has."""
    with ExitStack() as stack:
        path = stack.enter_context(folder())
        s3 = stack.enter_context(bucket())
        data = path / "databases"
        data.mkdir()
        databases = Databases(data, is_safe=is_safe)
        stack.callback(databases.stop)
        network = Network([node.port for node in databases.nodes], seed)
        stack.callback(network.close)
        running = Cluster(databases, network, s3, path, [], "" if is_safe else "&unsafe=standbys")
        databases.rejoin()
        for number in range(gateways):
            gateway = running.start_gateway(number, free_port())
            running.gateways.append(gateway)
        try:
            yield running
        finally:
            for gateway in running.gateways:
                gateway.popen.kill()
                gateway.popen.communicate()
