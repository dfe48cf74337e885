"""Static trees with everything that a root can have, and web servers for them: Python's, and nginx if it is there."""

from __future__ import annotations

import asyncio
import http.server
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from coregw.client import Client, ClientSettings
from coregw.client.static.check import CheckedTree, check_static
from coregw.client.static.export import Exported, export_static

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NGINX = os.environ.get("COREGW_TEST_NGINX") or shutil.which("nginx")

needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (COREGW_TEST_NGINX names it)")


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def python_server(folder: Path) -> Iterator[str]:
    """Serve a folder by Python's own web server. Yields the address of the static tree."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=folder)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"static+http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def nginx_main(place: Path, site: str) -> Path:
    """Write the configuration of an nginx that keeps all its files in a folder. Returns its path."""
    temporary = "".join(
        f"{each}_temp_path {place}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (place / "nginx.conf").write_text(
        f"{user} pid {place}/pid; error_log {place}/errors; worker_processes 1;\n"
        f"events {{ }}\nhttp {{ access_log off; {temporary}\n{site} }}\n"
    )
    return place / "nginx.conf"


@contextmanager
def running_nginx(place: Path, site: Callable[[int], str]) -> Iterator[str]:
    """Run nginx with what `site` returns for a free port. Yields the address."""
    assert NGINX is not None
    place.mkdir(exist_ok=True)
    # nginx tells nobody which port it has, so it listens on one that this process finds free.
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as found:
        port = found.server_address[1]
    configuration = nginx_main(place, site(port))
    process = subprocess.Popen(
        [NGINX, "-c", configuration, "-p", place, "-g", "daemon off;"], stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/", timeout=60)
                break
            except httpx2.ConnectError:
                assert process.poll() is None, (place / "errors").read_text()
                time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx_server(folder: Path) -> Iterator[str]:
    """Serve a folder by nginx with the configuration in deploy/. Yields the address of the static tree."""
    folder.chmod(0o755)
    text = (DEPLOY / "nginx" / "static.conf").read_text("utf-8").replace("/srv/coregw-static", str(folder))
    with running_nginx(
        folder.with_name(f"{folder.name}.nginx"), lambda port: text.replace("listen 80;", f"listen 127.0.0.1:{port};")
    ) as url:
        yield f"static+{url}"


@contextmanager
def nginx_cache(place: Path, gateway: str) -> Iterator[str]:
    """Cache a gateway by nginx with the configuration in deploy/, and its files in a folder. Yields its address."""
    text = (DEPLOY / "nginx" / "gateways.conf").read_text("utf-8")
    text, servers = re.subn(r"server 127\.0\.0\.1:\d+ ", f"server {gateway.removeprefix('http://')} ", text)
    assert (servers, text.count("listen 80;"), text.count("/var/cache/nginx/coregw")) == (3, 1, 1)
    text = text.replace("/var/cache/nginx/coregw", str(place / "cache"))
    with running_nginx(place, lambda port: text.replace("listen 80;", f"listen 127.0.0.1:{port};")) as url:
        yield url


@dataclass(frozen=True)
class Sample:
    """Roots with everything that a root can have, held by a gateway with all payloads."""

    root: str
    changed: str
    folder: str
    changed_folder: str
    file: str
    blake3: str
    large: str
    empty: str


def sample(client: Client, folder: Path) -> Sample:
    """Add maps of several pages, nested roots, lists, blake3, a payload of several chunks, and two folders."""
    cids = client.put_payloads([b"payload %d" % i for i in range(300)])
    large = client.put_payload(bytes(range(256)) * 10_000)
    files = client.create_list(cids[:200], [len(b"payload %d" % i) for i in range(200)])
    blake3 = client.build({f"b/{i}": cids[i % 300] for i in range(500)}, "blake3")
    arcs = {f"directory {i % 5}/file {i}": cids[i % 300] for i in range(1500)}
    arcs |= {
        "file": files,
        "nested": blake3,
        "large": large,
        "identity": "bafkqac3imvwgy3zao5xxe3de",
        "@payload": cids[0],
    }
    root = client.build(arcs)
    empty = client.create_root({})
    changed = client.update(
        root, {"directory 1/new": cids[7], "directory 2/file 2": cids[9], "empty": empty}, ["large"]
    )
    for name, size in (("a", 10), ("b/long", 700_000), ("b/c/deep", 3000), ("b/c/other", 3000)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(b"%d %s\n" % (i, name.encode()) for i in range(size // 5))[:size])
        os.utime(path, ns=(10**18, 10**18))
    (folder / "link").symlink_to("a")
    first = client.add(folder, attributes="no-times", use_cache=False).root
    (folder / "b" / "c" / "other").write_bytes(b"changed")
    (folder / "a").chmod(0o755)
    second = client.add(folder, attributes="no-times", use_cache=False).root
    return Sample(root, changed, first, second, files, blake3, large, empty)


SETTINGS = ClientSettings(attempts=4, idle_seconds=20, backoff_seconds=0.001, backoff_max_seconds=0.002, connections=4)


def export(source: str, root: str, folder: Path, **options: object) -> Exported:
    return asyncio.run(export_static(source, root, folder, settings=SETTINGS, **options))


def check(place: Path | str) -> CheckedTree:
    return asyncio.run(check_static(place))


class Trees:
    """A gateway with roots, and a static tree of them."""

    def __init__(self, gateway: str, top: Path) -> None:
        self.gateway = gateway
        self.top = top
        with Client(gateway, SETTINGS) as client:
            (source := top.with_name("source")).mkdir()
            self.sample: Sample = sample(client, source)
        self.exported = [
            export(gateway, each, top, name=("docs", "main"))
            for each in (
                self.sample.root,
                self.sample.changed,
                self.sample.folder,
                self.sample.changed_folder,
            )
        ]

    def file(self, path: str) -> Path:
        return self.top / path[1:]


@contextmanager
def replaced(file: Path, content: bytes | None) -> Iterator[None]:
    """Change a file, or remove it, for a while."""
    before = file.read_bytes()
    try:
        file.unlink() if content is None else file.write_bytes(content)
        yield
    finally:
        file.write_bytes(before)
