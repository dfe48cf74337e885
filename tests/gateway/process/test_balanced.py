"""Three gateways on one store behind nginx, started by the commands of deploy/cluster: what clients see of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.client import Client, ClientSettings
from postgres_support import new_bucket, new_schema
from processes import until
from servers import Bucket, Postgres, free_port
from static_trees import DEPLOY, NGINX, needs_nginx, nginx_main

PORTS = (8081, 8082, 8083)
SETTINGS = ClientSettings(backoff_seconds=0.05, backoff_max_seconds=0.2)
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}

pytestmark = needs_nginx


class Balanced:
    """The processes that the commands have started."""

    def __init__(self, top: Path, url: str, ports: list[int], process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self._top = top
        self.ports = ports
        self.process = process

    @contextmanager
    def for_readers(self) -> Iterator[str]:
        """Run a second nginx that lets nobody write. Yields its address."""
        (top := self._top / "readers").mkdir()
        port = free_port()
        command = nginx_command(top, port, self.ports, writers="192.0.2.1")
        with (top / "log").open("wb") as log:
            process = subprocess.Popen(shlex.split(command), stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: answers(url))
            yield url
        finally:
            process.terminate()
            process.wait(60)

    def gateway(self, port: int) -> int:
        """The process id of the gateway at a port."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"serve" in arguments and b"%d" % port in arguments:
                    return int(entry.name)
        raise LookupError(f"no gateway at port {port}")


def answers(url: str) -> bool:
    """Whether nginx has a gateway that is ready."""
    try:
        return httpx2.get(f"{url}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def nginx_command(top: Path, port: int, ports: list[int], writers: str = "127.0.0.0/8") -> str:
    """Write the configuration of deploy/ with other ports, and return the command that runs nginx with it.

    Args:
        top: The folder of its files.
        port: The port to listen on.
        ports: Those of the gateways.
        writers: The addresses that may write, instead of those of this machine.
    """
    site = (DEPLOY / "nginx" / "gateways.conf").read_text("utf-8")
    for text, other in (
        ("listen 80;", f"listen {port};"),
        ("/var/cache/nginx/coregw", str(top / "cache")),
        ("127.0.0.0/8 1;", f"{writers} 1;"),
        *((f"127.0.0.1:{documented} ", f"127.0.0.1:{free} ") for documented, free in zip(PORTS, ports, strict=True)),
    ):
        assert site.count(text) == 1, text
        site = site.replace(text, other)
    return f"{NGINX} -c {nginx_main(top, site)} -g 'daemon off;'"


@pytest.fixture(scope="module")
def balanced(primary: Postgres, s3: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    top = tmp_path_factory.mktemp("balanced")
    port, *ports = (free_port() for _ in range(4))
    variables = {
        "COREGW": str(Path(sys.executable).with_name("coregw")),
        "PROXY": nginx_command(top, port, ports),
        "DATA": str(top),
        "PORTS": " ".join(map(str, ports)),
        "COREGW_STORE": new_schema(primary),
        "COREGW_BUCKET": new_bucket(s3),
        "GATEWAY_ADMIN_TOKEN": serving.ADMIN_TOKEN,
    }
    with (top / "log").open("wb") as log:
        process = subprocess.Popen(
            [DEPLOY / "cluster" / "gateways.sh"], env=os.environ | variables, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None, (top / "log").read_text("utf-8", "replace")
        try:
            return httpx2.get(f"{url}/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    try:
        until(is_ready)
        yield Balanced(top, url, ports, process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_any_gateway_answers_any_request(balanced: Balanced, tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    for i in range(200):
        (source / f"file {i}").write_bytes(b"%d" % i)
    (source / "large").write_bytes(os.urandom(20 << 20))
    with Client(balanced.url, SETTINGS) as client:
        root = client.add(source, use_cache=False).root
        assert client.get(root, tmp_path / "restored").files == 201
        assert client.diff_tree(root, source).differences == []
        large = client.put_payload(source / "large")
        assert len(client.get_payload(large)) == 20 << 20
    for port in balanced.ports:
        with Client(f"http://127.0.0.1:{port}", SETTINGS) as client:
            assert client.locate(root, "file 7") is not None
            assert client.get_payload(large)
    stored = httpx2.post(f"{balanced.url}/v1/cas", content=b"without a redirection")
    assert stored.status_code == 201
    chunked = httpx2.post(f"{balanced.url}/v1/cas", content=iter([b"without ", b"a redirection"]))
    assert chunked.json() == stored.json()
    for path in ("/metrics", "/", "/admin/v1/maintenance/status"):
        assert httpx2.get(f"{balanced.url}{path}").status_code == 404, path


def test_names_are_published_through_a_proxy_once(balanced: Balanced) -> None:
    with Client(balanced.url, SETTINGS) as client:
        root = client.create_root({"a": "bafkqaaa"})
        url, body = f"{balanced.url}/admin/v1/scopes/docs/roots", {"name": "main", "root": root, "expected_revision": 0}

        def publish(_: int) -> int:
            return httpx2.post(url, json=body, headers=AUTHORIZATION).status_code

        with ThreadPoolExecutor(8) as pool:
            statuses = sorted(pool.map(publish, range(8)))
        assert statuses[0] in (200, 201)
        assert statuses[1:] == [409] * 7
        published = httpx2.get(f"{url}/main", headers=AUTHORIZATION).json()
        assert (published["root"], published["revision"]) == (root, 1)


def test_queries_by_get_are_cached_by_nginx(balanced: Balanced) -> None:
    with Client(balanced.url, SETTINGS) as client:
        root = client.create_root({"cached": "bafkqaaa"})
    url = f"{balanced.url}/v1/resolve/{root}?path=cached"
    first, *others = [httpx2.get(url) for _ in range(4)]
    assert {(each.status_code, each.content, each.headers["etag"]) for each in others} == {
        (200, first.content, first.headers["etag"])
    }
    assert httpx2.get(url, headers={"if-none-match": first.headers["etag"]}).status_code == 304
    absent = f"{balanced.url}/v1/resolve/{root}?path=absent"
    assert first.headers["x-cache-status"] == "MISS"
    assert [each.headers["x-cache-status"] for each in others] == ["HIT"] * 3
    assert [httpx2.get(absent).headers.get("x-cache-status", "MISS") for _ in range(2)] == ["MISS"] * 2
    assert httpx2.get(absent).status_code == 404


def test_only_writers_write_through_a_proxy(balanced: Balanced) -> None:
    root = httpx2.post(f"{balanced.url}/v1/roots", json={"arcs": {"a": "bafkqaaa"}}).json()["root"]
    with balanced.for_readers() as url:
        batch = {"profile": "cas.has-batch/v0alpha1", "cids": ["bafkqaaa"]}
        writes = [
            httpx2.post(f"{url}/v1/cas", content=b"x"),
            httpx2.post(f"{url}/v1//cas", content=b"x"),
            httpx2.post(f"{url}/v1/roots", json={"arcs": {}}),
            httpx2.post(f"{url}/v1/roots/{root}/mutations", json={"deltas": []}),
            httpx2.post(f"{url}/v1/car", content=b""),
        ]
        assert [each.status_code for each in writes] == [403] * 5
        query = {"profile": "core.scan/v0alpha1", "root": root, "prefix": []}
        reads = [
            httpx2.post(f"{url}/v1/scan", json=query),
            httpx2.post(f"{url}/v1/cas/has", json=batch),
            httpx2.post(f"{url}/v1/roots/{root}/complete"),
            httpx2.get(f"{url}/v1/scan/{root}"),
            httpx2.head(f"{url}/v1/roots/{root}"),
        ]
        assert [each.status_code for each in reads] == [200] * 5


def test_a_gateway_that_is_killed_is_not_noticed(balanced: Balanced) -> None:
    with Client(balanced.url, SETTINGS) as client:
        root = client.build({f"{i}": "bafkqaaa" for i in range(5000)})
        killed = balanced.gateway(balanced.ports[0])

        def work(number: int) -> int:
            if number == 40:
                os.kill(killed, signal.SIGKILL)
            cid = client.put_payload(b"payload %d" % number)
            assert client.resolve(root, f"{number}") == "bafkqaaa"
            assert client.get_payload(cid) == b"payload %d" % number
            return client.resolve_many(root, [f"{number + i}" for i in range(50)]).count("bafkqaaa")

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(200))) == [50] * 200
        assert httpx2.get(f"{balanced.url}/readyz").status_code == 200
