"""A store on a PostgreSQL whose disk is full, and on one that is reached by TLS."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.errors import InvalidInput, Unavailable
from coregw.store import Table
from coregw.store.buckets import BucketChunks
from coregw.store.collection import Identity
from coregw.store.postgres import open_store
from network import tls_front
from postgres_support import new_bucket, new_schema
from servers import Bucket, Postgres, folder, free_port, postgres, require_wanted, unprivileged
from store_payloads import multihash_of, random_bytes, read, upload

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# --- copies and their buckets -----------------------------------------------------------------------------------------


LONG = random_bytes(100_000)


async def refuse(url: str, bucket: str, match: str, *, adopt: bool = False) -> None:
    with pytest.raises(InvalidInput, match=match):
        await open_store(url, bucket=bucket, adopt=adopt)


async def test_a_copied_database_is_another_incarnation_and_leaves_the_bucket_alone(
    primary: Postgres, s3: Bucket
) -> None:
    """As by pg_dump: its rows name the chunks of the other one, which it would remove."""
    url, bucket = new_schema(primary), new_bucket(s3)
    async with await open_store(url, bucket=bucket) as store:
        await upload(store, LONG)
        identity = store.identity
    copy = new_schema(primary)
    one, two = (each.rpartition("=")[2] for each in (url, copy))
    primary.execute(f"DROP SCHEMA {two}", f"ALTER SCHEMA {one} RENAME TO {two}", f"CREATE SCHEMA {one}")
    for table in primary.execute(f"SELECT tablename FROM pg_tables WHERE schemaname = '{two}'"):  # noqa: S608
        primary.execute(f"CREATE TABLE {one}.{table[0]} AS TABLE {two}.{table[0]}")
    primary.execute(f"UPDATE {one}.state SET place = place || ' of another'")  # noqa: S608
    async with await open_store(copy, bucket=bucket) as store:  # a renamed schema is the same one
        assert store.identity == identity
    await refuse(url, bucket, "another incarnation of this store")
    await refuse(url, elsewhere := new_bucket(s3), "has used another one.*--adopt")
    async with await open_store(url, bucket=elsewhere, adopt=True) as store:
        assert store.identity.store == identity.store
        assert store.identity.incarnation != identity.incarnation
    async with await open_store(copy, bucket=bucket) as store:
        assert await read(store, multihash_of(LONG)) == LONG


async def test_a_bucket_is_that_of_one_store(primary: Postgres, s3: Bucket) -> None:
    url, bucket = new_schema(primary), new_bucket(s3)
    async with await open_store(url, bucket=bucket) as store:
        await upload(store, LONG)
    for adopt in (False, True):
        await refuse(new_schema(primary), bucket, "is that of another store", adopt=adopt)
    await refuse(url, new_bucket(s3), "has used another one")
    async with await open_store(url, bucket=bucket) as one, await open_store(url, bucket=bucket) as two:
        assert one.identity == two.identity
        await one.sweep(0)
        await two.sweep(0)
        other = Identity.new()
        await one.identify(other)
        assert await read(two, multihash_of(LONG)) == LONG
        await two.sweep(0)
    async with await open_store(url, bucket=bucket) as again:
        assert again.identity == other


@pytest.mark.parametrize("ends_after", ["UPDATE", "PUT"])
async def test_a_claim_that_was_interrupted_is_completed(
    primary: Postgres, s3: Bucket, monkeypatch: pytest.MonkeyPatch, ends_after: str
) -> None:
    url, bucket = new_schema(primary), new_bucket(s3)
    async with await open_store(url, bucket=bucket) as store:
        identity = store.identity
    set_claim = BucketChunks.set_claim

    async def interrupted(self: BucketChunks, claim: str) -> None:
        if ends_after == "PUT":
            await set_claim(self, claim)
        raise Unavailable("the network is down")

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(BucketChunks, "set_claim", interrupted)
            with pytest.raises(Unavailable):
                await open_store(url, bucket=bucket)
    async with await open_store(url, bucket=bucket) as store:
        assert store.identity == identity


async def test_a_database_that_was_restored_neither_sweeps_nor_collects_for_the_one_that_lives(s3: Bucket) -> None:
    """As by a base backup: it has the place of the other one, but not its last turn."""
    with postgres() as living, folder() as path:
        if (user := unprivileged()[1]) is not None:
            os.chown(path, user.pw_uid, user.pw_gid)
        url, bucket = new_schema(living), new_bucket(s3)
        async with await open_store(url, bucket=bucket) as store:
            await upload(store, LONG)
            restored = Postgres(living.binaries, path / "data", free_port())
            living.copy_to(restored)
            restored.start()
            restored.promote()
            other = url.replace(str(living.port), str(restored.port))
            try:
                await store.sweep(0)
                await refuse(other, bucket, "older than its last use: it was restored or copied.*--adopt")
                async with await open_store(other, bucket=bucket, adopt=True) as adopted:
                    assert adopted.identity.store == store.identity.store
                    assert await read(adopted, multihash_of(LONG)) == LONG
                    await adopted.sweep(0)
                    with pytest.raises(InvalidInput, match="restored or copied"):
                        await store.sweep(0)
                    with pytest.raises(InvalidInput, match="restored or copied"):
                        async with store.collect(0):
                            pass
            finally:
                restored.stop(signal.SIGQUIT)


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
