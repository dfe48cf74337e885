"""A store on a PostgreSQL whose disk is full, and on one that is reached by TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.errors import Unavailable
from coregw.store import Table
from coregw.store.postgres import open_store
from network import tls_front
from servers import Postgres, folder, postgres, require_wanted, unprivileged
from store.postgres_support import new_schema

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """Mount a file system of this size, which takes the rights of root."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        if (user := unprivileged()[1]) is not None:
            os.chown(path, user.pw_uid, user.pw_gid)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_is_a_507_and_writes_resume_when_there_is_room(tmp_path: Path) -> None:
    require_wanted()
    with folder() as place, small_disk(place / "small", "24m"), postgres() as server:
        server.execute(f"CREATE TABLESPACE small LOCATION '{place / 'small'}'")
        store = f"{new_schema(server)}&default_tablespace=small"
        with (
            serving.process(tmp_path / "data", serving.ADMIN, store=store) as gateway,
            httpx2.Client(base_url=gateway.url, timeout=60) as client,
        ):
            stored: dict[str, bytes] = {}
            for _ in range(1000):
                data = os.urandom(60_000)
                answer = client.post("/v1/cas", content=data)
                if answer.status_code != 201:
                    break
                stored[answer.json()["cid"]] = data
            assert answer.status_code == 507
            assert answer.json()["error"] == "storage_full"
            assert "disk of the database is full" in answer.text
            ready = client.get("/readyz")
            assert ready.status_code == 503
            assert "full" in ready.text
            for cid, data in stored.items():  # reads go on, and nothing acknowledged is lost
                assert client.get(f"/v1/cas/{cid}").content == data
            subprocess.run(["mount", "-o", "remount,size=48m", str(place / "small")], check=True)
            assert client.post("/v1/cas", content=data + b"more").status_code == 201
            assert client.get("/readyz").status_code == 200
        server.stop()


# --- TLS: the server of the wheel is built without it -----------------------------------------------------------------


def certificate(path: Path, name: str) -> Path:
    """Make a certificate for a host, which is its own authority; its key is in the file with the suffix ``.key``."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = path / name
    words = ["openssl", "req", "-x509", "-days", "2", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{file}.key"]
    names = ["-subj", "/CN=database", "-addext", "subjectAltName=DNS:localhost", "-out", str(file)]
    subprocess.run([*words, *names], check=True, capture_output=True)
    return file


async def test_a_database_is_reached_by_tls_that_is_verified(primary: Postgres, tmp_path: Path) -> None:
    own = certificate(tmp_path, "own")
    schema = new_schema(primary).partition("?")[2]
    async with tls_front(primary.port, own) as front:
        for hosts in (f"localhost:{front.port}", f"localhost:1,localhost:{front.port}"):
            before = front.sessions
            url = f"postgresql://coregw@{hosts}/postgres?{schema}&sslmode=verify-full&sslrootcert={own}"
            async with await open_store(url) as store:
                await store.put({Table.RECORDS: [(b"key", hosts.encode())]})
                assert await store.get(Table.RECORDS, [b"key"]) == [hosts.encode()]
            assert front.sessions > before


@pytest.mark.parametrize(
    ("host", "trusted", "mode", "reason"),
    [
        ("localhost", "other", "verify-full", "certificate verify failed"),
        ("127.0.0.1", "own", "verify-full", "certificate verify failed: IP address mismatch"),
        ("127.0.0.1", "own", "verify-ca", None),
        ("localhost", "own", "disable", "connection was closed"),
    ],
)
async def test_a_database_that_is_not_who_it_should_be_is_refused(
    primary: Postgres, tmp_path: Path, host: str, trusted: str, mode: str, reason: str | None
) -> None:
    files = {name: certificate(tmp_path, name) for name in ("own", "other")}
    schema = new_schema(primary).partition("?")[2]
    options = f"{schema}&sslmode={mode}&sslrootcert={files[trusted]}"
    async with tls_front(primary.port, files["own"]) as front:
        opening = open_store(f"postgresql://coregw@{host}:{front.port}/postgres?{options}")
        if reason is None:
            await (await opening).close()
            return
        with pytest.raises(Unavailable, match=reason):
            await opening
