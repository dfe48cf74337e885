"""Services for tests: in a process of their own on RocksDB, or in a thread of this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import httpx2
from click.testing import CliRunner

from coregw.cli.main import cli
from coregw.gateway.access import AccessToken
from coregw.gateway.control import control_file
from coregw.gateway.limits.machine import Limits
from coregw.gateway.listener import loop_factory
from coregw.gateway.server import GatewayServer
from coregw.gateway.settings import Settings
from coregw.store import Store

ADMIN_TOKEN = "an-admin-token~of+the/tests=="
ADMIN = {"GATEWAY_ADMIN_TOKEN": ADMIN_TOKEN}
"""The `environ` of a gateway with administration routes, for `start` and `process`."""

_SECONDS = 60
_LIMITED = Path(__file__).with_name("limited_gateway.py")


def shared_store(data: Path) -> dict[str, str]:
    """The settings of a store in PostgreSQL that stands for a data directory, if `on_servers` runs the tests."""
    database = os.environ.get("COREGW_TEST_DATABASE")
    if database is None:
        return {}
    import asyncpg

    schema = f"data_{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"

    async def create() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, create()).result()
    return {
        "store": f"{database}?search_path={schema}",
        "bucket": os.environ["COREGW_TEST_BUCKET"].replace("?", f"/{schema}?", 1),
    }


@dataclass
class Process:
    """A service process that accepts connections."""

    url: str
    popen: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code. A process that does not end in time is killed."""
        self.popen.send_signal(number)
        try:
            return self.popen.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise


class DidNotStart(AssertionError):
    """A service process that exited before it accepted connections, or did not start in time."""

    def __init__(self, command: str, code: int, said: str) -> None:
        super().__init__(f"{command} did not start: exit code {code}: {said}")
        self.code = code
        self.said = said


def run(
    *arguments: object, environ: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of coregw to its end, in this process: a start of the interpreter takes longer than most commands.

    Args:
        arguments: The command and its arguments.
        environ: Variables beside those of this process.
        before: Called before the command, in a process that is started for both.
    """
    command = [str(argument) for argument in arguments]
    if before is None:
        done = CliRunner(env=environ).invoke(cli, command, catch_exceptions=False)
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)
    command = [sys.executable, "-P", "-m", "coregw", *command]
    variables = os.environ | dict(environ or {})
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, preexec_fn=before)


def divided(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Any]]:
    """Divide values by name into settings, and fields of `Limits` that are none."""
    names = {each.name for each in fields(Limits)} - {*Settings.__struct_fields__}
    settings = {name: value for name, value in given.items() if name not in names}
    return settings, {name: value for name, value in given.items() if name in names}


def begin(
    data: Path,
    environ: Mapping[str, str] | None = None,
    command: str = "serve",
    *,
    log: Path | None = None,
    start_new_session: bool = False,
    **settings: object,
) -> subprocess.Popen[str]:
    """Start a service on a free port, without waiting for it.

    Of `settings`, what is none is a field of `Limits`, and a gateway has it although no setting names it.

    It does not inherit the ``COREGW_`` variables of this process. Its log is appended to a file if one is given, which
    a service that logs much needs: nobody reads the pipe that it would be otherwise.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    variables |= {"GATEWAY_ADMIN_TOKEN": ""} | dict(environ or {})
    settings, limits = divided({"port": 0} | shared_store(data) | settings)
    program = [_LIMITED, data, json.dumps(limits)] if limits else ["-m", "coregw", command, "--data", data]
    variables |= {f"COREGW_{name.upper()}": str(value) for name, value in settings.items()}
    with log.open("a") if log is not None else nullcontext(subprocess.PIPE) as stderr:
        return subprocess.Popen(
            [sys.executable, "-P", *program],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=start_new_session,
            text=True,
        )


def start(
    data: Path,
    environ: Mapping[str, str] | None = None,
    command: str = "serve",
    *,
    log: Path | None = None,
    start_new_session: bool = False,
    **settings: object,
) -> Process:
    """Start a service as `begin` does, and wait until it prints its address. Raises `DidNotStart`."""
    popen = begin(data, environ, command, log=log, start_new_session=start_new_session, **settings)
    assert popen.stdout is not None
    timer = threading.Timer(_SECONDS, popen.kill)
    timer.start()
    line = popen.stdout.readline()
    timer.cancel()
    if not line.startswith("coregw: listening on "):
        popen.kill()
        _, said = popen.communicate()
        raise DidNotStart(command, popen.returncode, said if log is None else log.read_text("utf-8").strip()[-1000:])
    return Process(line.split()[-1], popen)


@contextmanager
def process(
    data: Path, environ: Mapping[str, str] | None = None, command: str = "serve", **settings: object
) -> Iterator[Process]:
    """Run what `start` starts while the context is active. It must exit with code 0."""
    running = start(data, environ, command, **settings)
    try:
        yield running
    finally:
        if running.popen.poll() is None:
            code = running.end()
            assert code == 0, running.popen.communicate()[1]
        running.popen.communicate()


@contextmanager
def thread(
    store: Store | None,
    *,
    is_administered: bool = False,
    **settings: object,
) -> Iterator[str]:
    """Run a gateway in a thread, for tests that need a store or limits of their own. Yields its address.

    Of `settings`, what is none is a field of `Limits`.

    Without a store, it opens the one in the setting `data`. An administered one has the routes that take `ADMIN_TOKEN`.

    Raises the exception with which the gateway ended, if any.
    """
    ready: queue.Queue[str | BaseException] = queue.Queue()
    token = AccessToken.from_environment("GATEWAY_ADMIN_TOKEN", ADMIN if is_administered else {})
    given, limits = divided({"port": 0} | settings)
    chosen = Settings.load({}, **given)
    server = GatewayServer(chosen, store, ready.put, admin_token=token, limits=replace(Limits.of(chosen), **limits))

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:  # as `coregw serve` does
                runner.run(server.serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            ready.put(error)

    runner = threading.Thread(target=serve)
    runner.start()
    try:
        url = ready.get(timeout=_SECONDS)
        if isinstance(url, BaseException):
            raise url
        yield url
    finally:
        server.stop()
        runner.join(_SECONDS)
    if not ready.empty():
        raise AssertionError(f"the gateway ended with {ready.get()!r}")


def control(data: Path) -> httpx2.Client:
    """A client of the control socket in a data directory."""
    record = json.loads(control_file(data).read_text())
    return httpx2.Client(
        transport=httpx2.HTTPTransport(uds=record["socket"].replace("@", "\0")),
        base_url="http://localhost",
        headers={"authorization": f"Bearer {record['token']}"},
    )


def connect(url: str) -> socket.socket:
    """Open a TCP connection to a gateway."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def everything(connection: socket.socket) -> bytes:
    """Receive until the gateway closes the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 20):
            received += chunk
    return bytes(received)


NOBODY = 65_534


def as_nobody(attempt: Callable[[], object]) -> str:
    """Return what a function returns, or the name of what it raises, in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = str(attempt())
        except BaseException as error:  # noqa: BLE001 - nothing may leave the child
            result = type(error).__name__
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        result = file.read()
    os.waitpid(child, 0)
    return result
