"""The store that a command works on: through the gateway that has it open, or in its directory."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from coregw.cli.framework import LOCAL_PATH, click
from coregw.errors import ERROR_CODES, CoregwError, Unavailable

if TYPE_CHECKING:
    from types import TracebackType

    from coregw.concurrency import EventLoopThread
    from coregw.store.collection import CollectableStore

__all__ = [
    "BlockingStore",
    "Control",
    "data_option",
    "find_control",
    "is_shared",
    "opened_database",
    "opened_store",
    "require_control",
    "shared_store",
]

F = TypeVar("F", bound=Callable[..., Any])

ShowProgress = Callable[[dict[str, Any]], None]

_PREFIX: Final = "/admin/v1/maintenance/"


def data_option(command: F) -> F:
    """Add the option ``--data DIR``, with the environment variable COREGW_DATA."""
    return click.option(
        "--data",
        type=LOCAL_PATH,
        envvar="COREGW_DATA",
        show_envvar=True,
        default="coregw-data",
        show_default=True,
        help="Folder of the store.",
    )(command)


def find_control(data: Path) -> Control | None:
    """Connect to the gateway that has a data directory open; None if no gateway has.

    Raises:
        OSError: If the gateway's control socket cannot be used, such as for lack of permission.
    """
    try:
        return Control(data)
    except Unavailable:
        return None


def require_control(data: Path) -> Control:
    """Connect to the gateway that has a data directory open.

    Raises:
        Unavailable: If no gateway has it open.
        OSError: As `find_control`.
    """
    return Control(data)


class Control:
    """Maintenance of a running gateway. Use ``with``; leaving it closes the connection, which cancels what runs."""

    def __init__(self, data: Path) -> None:
        """Connect. Raises as `require_control`."""
        self._http = _UnixConnection(data)
        self._http.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a ``GET`` of a maintenance route, such as ``status``. Raises as `run`."""
        answer: dict[str, Any] = json.loads(self._request("GET", path, None).read())
        return answer

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        """Return the answer to a ``POST`` to a maintenance route that answers at once. Raises as `run`."""
        answer: dict[str, Any] = json.loads(self._request("POST", path, body).read())
        return answer

    def run(self, path: str, body: object = None, show: ShowProgress | None = None) -> dict[str, Any]:
        """Run a job, and return its result.

        Args:
            path: The maintenance route, such as ``flush``.
            body: The request as an object that JSON can express; None sends no body.
            show: Called with each progress that the gateway reports.

        Raises:
            CoregwError: What the gateway reports, as the class of its code.
            Unavailable: If the gateway ends before the job does.
        """
        response = self._request("POST", path, body)
        try:
            for line in response:
                message = json.loads(line)
                if "result" in message:
                    result: dict[str, Any] = message["result"]
                    return result
                if "error" in message:
                    raise _error(message["error"])
                if show is not None:
                    show(message["progress"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, CoregwError):
                raise
            raise Unavailable(f"the gateway ended before {path} did: {error}") from error
        raise Unavailable(f"the gateway ended before {path} did")

    def _request(self, method: str, path: str, body: object) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            if self._http.sock is None:
                self._http.connect()
            self._http.request(method, _PREFIX + path, content, headers | self._http.authorization)
            response = self._http.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the gateway did not answer: {error}") from error
        if response.status >= 400:
            raise _error(json.loads(response.read()))
        return response


class _UnixConnection(http.client.HTTPConnection):
    """A connection to the control socket of a data directory.

    Attributes:
        authorization: The header that the gateway to which this is connected requires.
    """

    def __init__(self, data: Path) -> None:
        super().__init__("localhost")
        self._data = data
        self.authorization: dict[str, str] = {}

    def connect(self) -> None:
        """Connect, or connect again after the gateway has closed an idle connection."""
        from coregw.gateway.control import connect_to_control

        found = connect_to_control(self._data)
        if found is None:
            raise Unavailable(f"no gateway is running on {self._data}; coregw serve --data {self._data} starts one")
        self.sock = found.socket
        self.authorization = {"Authorization": f"Bearer {found.token}"}


def _error(answer: dict[str, Any]) -> CoregwError:
    """Return the exception that an error body means."""
    code = answer["error"]
    kind = ERROR_CODES[code].exception if code in ERROR_CODES else CoregwError
    return kind(answer["message"], code=code)


T = TypeVar("T")


def is_shared() -> bool:
    """Whether ``COREGW_STORE`` names a store in PostgreSQL; then the data directory holds none."""
    from coregw.gateway.settings import Settings

    return Settings.load(strict=False).is_shared


@asynccontextmanager
async def opened_store(data: Path, *, reads_only: bool = False) -> AsyncIterator[CollectableStore]:
    """Open the store that ``COREGW_STORE`` names, or the one in a directory.

    Args:
        data: The directory.
        reads_only: Whether a store in a directory is only read: then it is a snapshot, of which nothing is kept.

    Raises:
        InvalidInput, Unavailable, StoreDamaged: As `coregw.upkeep.offline.opened_directory`.
    """
    from coregw.gateway.settings import Settings
    from coregw.gateway.stores import open_shared

    settings = Settings.load(strict=False, data=data)
    if settings.is_shared:
        shared = await open_shared(settings)
        try:
            yield shared
        finally:
            await shared.close()
        return
    from coregw.upkeep.offline import opened_directory, opened_snapshot

    async with (opened_snapshot if reads_only else opened_directory)(data) as store:
        yield store


@asynccontextmanager
async def opened_database(
    url: str, bucket: str | None, option: str, expected: str = "postgresql://USER@HOST/DATABASE"
) -> AsyncIterator[CollectableStore]:
    """Open the store in a database whose address an option names. Raises as `coregw.store.postgres.open_store`.

    Args:
        url: The address.
        bucket: The bucket of the store, if it has one.
        option: The option.
        expected: What it takes, for the message if this is no address of a database.
    """
    from coregw.cli.framework import click

    if not url.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter(f"expected {expected}", param_hint=option)
    from coregw.store.postgres import open_store

    async with await open_store(url, bucket=bucket) as database:
        yield database


class BlockingStore:
    """A store in PostgreSQL for a command without an event loop: it is used in a loop of another thread.

    Attributes:
        loop: The event loop.
        store: The store.
    """

    def __init__(self, thread: EventLoopThread, store: CollectableStore) -> None:
        self.loop = thread.loop
        self.store = store
        self.call = thread.call


@contextmanager
def shared_store(data: Path) -> Iterator[BlockingStore]:
    """Open the store that ``COREGW_STORE`` names while the context is active. Raises as `open_shared`."""
    from coregw.concurrency import EventLoopThread

    opening = AsyncExitStack()
    with EventLoopThread() as thread:
        store = thread.call(opening.enter_async_context(opened_store(data)))
        try:
            yield BlockingStore(thread, store)
        finally:
            thread.call(opening.aclose())
