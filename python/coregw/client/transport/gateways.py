"""Which gateway a call goes to, with which options, and when it is repeated.

```
in use ──► no answer, or unavailable ──► rests 10 s, or as long as it asked for ──► may be used again
       └─► an answer that is not proven ──► rests 10 min; the call has failed
```

A client stays with the gateway that works. If all rest, the one whose rest ends first is next.

Failed attempts are logged only if the program has imported `logging`, which takes longer to import than most calls. A
forked child forgets the connections of its parent without closing them: that would end the parent's TLS sessions, and
remove its sockets from an event loop that both processes share.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import SplitResult, quote, unquote, urlsplit

import pycurl

from coregw._core import is_loopback
from coregw.client.settings import ClientSettings, ConnectionOptions
from coregw.client.transport.exchange import Answer, is_retryable
from coregw.errors import CoregwError, InvalidInput, ProofError, Unavailable

if TYPE_CHECKING:
    import logging

    from coregw.client.transport.exchange import Call

__all__ = [
    "LOGGER",
    "REFUSED_REST_SECONDS",
    "REST_SECONDS",
    "Address",
    "Exchange",
    "Forkable",
    "Gateways",
    "Retries",
    "Target",
    "addresses_in",
    "handle_options",
    "milliseconds",
    "parse_addresses",
    "request_headers",
    "warn",
    "watch_forks",
]

# Whatever may be credentials in a malformed URL: everything before the last "@", and everything after "?" or "#".
_CREDENTIALS: Final = re.compile(r"^((?:static\+)?[a-z]*://)?.*@|[?#].*$", re.DOTALL | re.IGNORECASE)

_STATIC: Final = "static+"

_SEPARATOR: Final = re.compile(r",(?=\s*(?:static\+)?https?://)")

_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is.

    Attributes:
        url: The URL without credentials and without a trailing slash.
        credentials: User and password, or None.
        is_secure: Whether the connection is encrypted (``https``).
        is_static: Whether this is a static tree behind a web server (``static+`` before the URL), not a gateway.
        is_loopback: Whether the host is this machine. Proxies of the environment do not apply to it.
    """

    url: str
    credentials: tuple[str, str] | None = field(repr=False)
    is_secure: bool
    is_loopback: bool
    is_static: bool = False

    @property
    def shown(self) -> str:
        """The address as a user writes it, without credentials."""
        return f"{_STATIC}{self.url}" if self.is_static else self.url

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an ``http`` or ``https`` URL, with or without ``static+`` before it.

        Raises:
            InvalidInput: `text` is not such a URL, or has a query or a fragment. No credentials are in the message.
        """
        is_static = text.startswith(_STATIC)
        try:
            parts, port = _split(text.removeprefix(_STATIC))
            host = (parts.hostname or "").encode("idna").decode()
        except ValueError:
            # What the parser says is left out: it may quote a part of a password.
            shown = _CREDENTIALS.sub(r"\1", text)
            raise InvalidInput(
                f"gateway address {shown!r:.500}: expected a URL such as http://127.0.0.1:8080"
            ) from None
        netloc = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
        path = quote(parts.path.rstrip("/"), safe=_PATH_CHARACTERS)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(
            url=f"{parts.scheme}://{netloc}{path}",
            credentials=(user, password) if user or password else None,
            is_secure=parts.scheme == "https",
            is_loopback=is_loopback(host),
            is_static=is_static,
        )


def addresses_in(text: str) -> list[str]:
    """Return the addresses in a text that separates them by commas, such as the variable ``COREGW_GATEWAY``."""
    return [address.strip() for address in _SEPARATOR.split(text)]


def _split(text: str) -> tuple[SplitResult, int | None]:
    """Return the parts of a URL and its port. Raises `ValueError` if it can't be the address of a gateway."""
    if not text.isprintable() or " " in text:  # urlsplit drops line breaks silently
        raise ValueError(text)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(text)
    return parts, parts.port


LOGGER: Final = "coregw.client"

_DEBUG: Final = 10  # logging.DEBUG


def _is_logged() -> bool:
    """Return whether requests are logged."""
    return "logging" in sys.modules and _logger().isEnabledFor(_DEBUG)


@cache
def _logger() -> logging.Logger:
    import logging

    return logging.getLogger(LOGGER)


def _log(call: Call, gateway: str, started: float, outcome: Answer | CoregwError) -> None:
    """Log an attempt at DEBUG, which began when `time.monotonic` was `started`."""
    milliseconds = (time.monotonic() - started) * 1000
    result = f"{outcome.status}" if isinstance(outcome, tuple) else f"{type(outcome).__name__}: {outcome.message}"
    message = "%s %s%s: %s (%.1f ms)"
    _logger().debug(message, call.method, gateway, call.path, result, milliseconds)


def warn(message: str, *arguments: object) -> None:
    """Log at WARNING, which Python prints to stderr unless the program configures logging."""
    _logger().warning(message, *arguments)


# Below the gateway's 30 s, so that it seldom closes a kept-alive connection just as it is reused.
_KEEPALIVE_SECONDS: Final = 20

_SUPPRESS_CONNECT_HEADERS: Final = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl does not name

_PROXY_SSL_OPTIONS: Final = 261  # CURLOPT_PROXY_SSL_OPTIONS, the same

_BUFFER_BYTES: Final = 512 << 10
"""Of received bytes per read, and of sent bytes per write; libcurl allocates both when they are needed."""


_PROXY_SCHEMES: Final = frozenset({"http", "https", "socks5", "socks5h"})


def handle_options(
    address: Address, settings: ClientSettings, connection: ConnectionOptions
) -> list[tuple[int, object]]:
    """Return the options that all calls to a gateway share.

    Raises:
        InvalidInput: The proxy's address is malformed.
    """
    options: list[tuple[int, object]] = [
        (pycurl.NOSIGNAL, 1),
        (pycurl.FOLLOWLOCATION, 0),
        (_SUPPRESS_CONNECT_HEADERS, 1),
        (pycurl.CONNECTTIMEOUT_MS, milliseconds(min(settings.connect_seconds, settings.answer_seconds))),
        (pycurl.MAXAGE_CONN, _KEEPALIVE_SECONDS),
        (pycurl.BUFFERSIZE, _BUFFER_BYTES),
        (pycurl.UPLOAD_BUFFERSIZE, _BUFFER_BYTES),
        *_credential_options(address, connection),
        *_proxy_options(address, connection),
    ]
    if address.is_secure:
        options += _authority_options(connection.ca_cert, pycurl.CAINFO, pycurl.CAPATH, pycurl.SSL_OPTIONS)
        given = (
            (pycurl.SSLCERT, connection.client_cert),
            (pycurl.SSLKEY, connection.client_key),
            (pycurl.KEYPASSWD, connection.client_key_password),
        )
        options += [(option, os.fspath(value)) for option, value in given if value is not None]
    return options


def request_headers(address: Address, connection: ConnectionOptions) -> dict[str, str]:
    """Return the headers of every request to a gateway besides those of the call, with lower-case names."""
    headers = {name.lower(): value for name, value in connection.headers.items()}
    if connection.bearer_token is not None:
        headers["authorization"] = f"Bearer {connection.bearer_token}"
    if address.credentials is not None:
        headers.pop("authorization", None)
    return headers


def _credential_options(address: Address, connection: ConnectionOptions) -> list[tuple[int, object]]:
    credentials = address.credentials or connection.basic_auth
    if credentials is not None:
        user, password = credentials
        return [
            (pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC),
            (pycurl.USERNAME, user.encode()),
            (pycurl.PASSWORD, password.encode()),
        ]
    if connection.netrc is not None:
        return [
            (pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC),
            (pycurl.NETRC, pycurl.NETRC_OPTIONAL),
            (pycurl.NETRC_FILE, os.fspath(connection.netrc)),
        ]
    return []


def _proxy_options(address: Address, connection: ConnectionOptions) -> list[tuple[int, object]]:
    """Return which proxy to use. libcurl itself reads the variables of the environment.

    A proxy's user and password are separate options, since libcurl quotes a URL that it can't use.
    """
    proxy = connection.proxy
    if proxy is None:
        return [(pycurl.NOPROXY, "*")] if address.is_loopback else []
    if not proxy:
        return [(pycurl.NOPROXY, "*")]
    try:
        parts = urlsplit(proxy)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _malformed_proxy() from None
    if not host or parts.scheme not in _PROXY_SCHEMES or not proxy.isprintable() or " " in proxy:
        raise _malformed_proxy()
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _malformed_proxy()
    netloc = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    options: list[tuple[int, object]] = [(pycurl.PROXY, f"{parts.scheme}://{netloc}"), (pycurl.NOPROXY, "")]
    if parts.username is not None:
        options.append((pycurl.PROXYUSERNAME, unquote(parts.username).encode()))
        options.append((pycurl.PROXYPASSWORD, unquote(parts.password or "").encode()))
    if parts.scheme == "https":
        options += _authority_options(connection.ca_cert, pycurl.PROXY_CAINFO, pycurl.PROXY_CAPATH, _PROXY_SSL_OPTIONS)
    return options


def _malformed_proxy() -> InvalidInput:
    return InvalidInput("proxy: expected a URL such as http://user:password@127.0.0.1:3128")  # it may have a password


def _authority_options(given: os.PathLike[str] | None, file: int, folder: int, native: int) -> list[tuple[int, object]]:
    """Return where trusted certificates are. libcurl reads no environment variables, and a wheel of it no folder."""
    if given is not None:
        path = os.fspath(given)
        is_folder = os.path.isdir(path)  # noqa: PTH112 - without pathlib's checks
        # both, so that no default of libcurl's remains
        return [(file, None if is_folder else path), (folder, path if is_folder else None)]
    if sys.platform in ("win32", "darwin"):
        return [(native, pycurl.SSLOPT_NATIVE_CA)]
    import ssl

    paths = ssl.get_default_verify_paths()  # considers SSL_CERT_FILE and SSL_CERT_DIR
    options: list[tuple[int, object]] = []
    if paths.cafile is not None:
        options.append((file, os.fspath(paths.cafile)))
    if paths.capath is not None:
        options.append((folder, os.fspath(paths.capath)))
    return options


def milliseconds(seconds: float) -> int:
    """Return a timeout for libcurl: rounded up, and not 0, which would mean none."""
    return max(1, min(math.ceil(seconds * 1000), (1 << 31) - 1))


REST_SECONDS: Final = 10.0

REFUSED_REST_SECONDS: Final = 600.0

_MAX_ASKED_SECONDS: Final = 3600.0
"""A gateway that asks to be left alone for longer, by mistake or not, is tried again after this time."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A gateway as requests are sent to it.

    Attributes:
        number: Its index in the client's list.
        address: Its address.
        options: Options of libcurl.
        headers: Additional request headers, with lower-case names.
    """

    number: int
    address: Address
    options: Sequence[tuple[int, object]] = field(repr=False)
    headers: dict[str, str] = field(repr=False)


class Gateways:
    """The gateways of a client, at least one. Safe to share between threads.

    Args:
        addresses: Their addresses, the preferred one first.
        settings: The client's settings.
        connection: How they are reached.
        clock: Returns the time in seconds.

    Attributes:
        current: The one to ask.
        switches: How often another one became the current one.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: ClientSettings,
        connection: ConnectionOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all = [
            Target(number, each, handle_options(each, settings, connection), request_headers(each, connection))
            for number, each in enumerate(addresses)
        ]
        self._clock = clock
        self._rests_until = [0.0] * len(self._all)
        self._asked_until = [0.0] * len(self._all)  # by Retry-After
        self._announced_until = 0.0
        self.current = self._all[0]
        self.switches = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def preferred(self) -> str:
        """The address of the first one, without credentials. It stays the same when another one is asked."""
        return self._all[0].address.shown

    def asked_seconds(self) -> float:
        """Return how long the current gateway asked to be left alone."""
        return max(0.0, self._asked_until[self.current.number] - self._clock())

    def is_announced(self, seconds: float) -> bool:
        """Whether a call has said that the client waits. If not, the caller says it for all within `seconds`."""
        now = self._clock()
        if now < self._announced_until:
            return True
        self._announced_until = now + seconds
        return False

    def failed(self, target: Target, error: CoregwError) -> None:
        """Note an error of an exchange, and take the next gateway if this one was unavailable or is refused."""
        if isinstance(error, ProofError):
            self.refused(error, target.address.shown)
            return
        self._name(error, target)
        if isinstance(error, Unavailable) and is_retryable(error):
            asked = min(error.retry_after or 0.0, _MAX_ASKED_SECONDS)
            self._asked_until[target.number] = self._clock() + asked
            self._rest(target, max(REST_SECONDS, asked))

    def refused(self, error: ProofError, gateway: str | None) -> None:
        """Note that an answer was not proven: the caller learns of it, and further calls go to the next gateway.

        Args:
            error: The error, to which the gateway's address is added.
            gateway: The address of the gateway that answered; unknown ones are ignored.
        """
        target = next((each for each in self._all if each.address.shown == gateway), None)
        if target is None or error.gateway is not None:  # noted already
            return
        self._name(error, target)
        if len(self._all) > 1:
            warn("gateway %s is set aside: %s", target.address.shown, error.message)
            self._rest(target, REFUSED_REST_SECONDS)

    def _rest(self, target: Target, seconds: float) -> None:
        now = self._clock()
        self._rests_until[target.number] = now + seconds
        if len(self._all) == 1 or self.current is not target:  # another task or thread was faster
            return
        following = self._all[target.number + 1 :] + self._all[: target.number + 1]
        self.current = min(following, key=lambda each: self._left(each, now))
        if self.current is not target:
            self.switches += 1

    def _left(self, target: Target, now: float) -> tuple[float, float]:
        asked, rests = self._asked_until[target.number], self._rests_until[target.number]
        return max(0.0, asked - now), max(0.0, rests - now)

    def _name(self, error: CoregwError, target: Target) -> None:
        """Say which gateway an error is of, in its message where there are several."""
        shown = error.gateway = target.address.shown
        if len(self._all) > 1 and shown not in error.message:
            error.message = f"{error.message} (gateway {shown})"


def parse_addresses(given: str | Sequence[str]) -> tuple[Address, ...]:
    """Parse the address of a gateway or a static tree, or those of several gateways.

    Raises:
        InvalidInput: There is none, one is not an address or is given twice, or one of several is a static tree.
    """
    addresses = tuple(map(Address.parse, [given] if isinstance(given, str) else given))
    if not addresses:
        raise InvalidInput("gateway address: expected at least one")
    if len({each.shown for each in addresses}) < len(addresses):
        raise InvalidInput(f"gateway addresses: {', '.join(each.shown for each in addresses)}: one is given twice")
    for each in addresses:
        if each.is_static and len(addresses) > 1:
            raise InvalidInput(f"gateway address {each.shown}: a static tree can't be one of several")
    return addresses


_SILENT_SECONDS = 1.0
"""How long a call waits without a line in the log."""


class Retries:
    """The retries of one call.

    Every gateway is tried once without a wait in between; then the client waits, and tries all again. A call that
    is continued where it failed has ``retry_seconds`` from each failure before which it received or sent more, and
    altogether the time of one exchange, ``answer_seconds``.

    Args:
        settings: The client's settings.
        gateways: Its gateways, to which each failure was reported.
    """

    def __init__(self, settings: ClientSettings, gateways: Gateways) -> None:
        self._settings = settings
        self._gateways = gateways
        self._failed = 0
        self._tried = 0
        self._rounds = 0
        self._has_hope = False
        self._began = self._until = 0.0
        self._done = 0
        self._has_warned = False

    def wait_seconds(self, error: CoregwError, done: int = 0) -> float | None:
        """Return how long to wait before the next attempt, or None if the call has failed.

        Args:
            error: The error of the last attempt.
            done: Number of bytes that the next attempt need not request or send.
        """
        settings = self._settings
        self._failed += 1
        self._tried += 1
        self._has_hope |= not (isinstance(error, Unavailable) and error.is_lasting)
        if not is_retryable(error) or (settings.attempts is not None and self._failed >= settings.attempts):
            return None
        now = time.monotonic()
        if self._failed == 1:
            self._began, self._until = now, now + settings.retry_seconds
        elif done > self._done:
            self._until = min(now + settings.retry_seconds, self._began + settings.answer_seconds)
            self._rounds = 0
        self._done = max(self._done, done)
        wait = self._gateways.asked_seconds()
        if self._tried >= len(self._gateways):
            if not self._has_hope:
                return None
            self._tried, self._has_hope = 0, False
            self._rounds += 1
            wait = max(wait, self._backoff_seconds())
        if now + wait > self._until:
            return None
        self._warn(error, now + wait)
        return wait

    def _warn(self, error: CoregwError, until: float) -> None:
        """Say once that the call waits, as soon as that is noticeable, unless another call has said so."""
        seconds = self._settings.retry_seconds
        if not self._has_warned and until - (self._until - seconds) > _SILENT_SECONDS:
            self._has_warned = True
            if not self._gateways.is_announced(seconds):
                warn("%s; trying again for %g s", error.message, seconds)

    def _backoff_seconds(self) -> float:
        import random

        settings = self._settings
        longest = min(settings.backoff_seconds * 2.0 ** min(self._rounds - 1, 60), settings.backoff_max_seconds)
        return random.uniform(longest / 2, longest)  # noqa: S311 - not for cryptography


class Exchange:
    """A call with its repetitions: which gateway is asked, and whether it is asked again.

    A transport attempts `call` at the gateway that `begin` returns, and tells `answered` or `failed` what it got. An
    exchange refers to no error, whose traceback refers to it: a cycle would keep the body of the call.

    Args:
        call: The call.
        gateways: The client's gateways.
        settings: The client's settings.

    Attributes:
        call: The call to attempt next: after a failure perhaps only what is left of it.
    """

    __slots__ = ("_gateways", "_is_complete", "_retries", "_settings", "_started", "_target", "call")

    def __init__(self, call: Call, gateways: Gateways, settings: ClientSettings) -> None:
        self.call = call
        self._gateways = gateways
        self._settings = settings
        self._retries: Retries | None = None
        self._is_complete = False

    def begin(self) -> Target:
        """Return the gateway of the next attempt."""
        self._started = time.monotonic() if _is_logged() else None
        self._target = self._gateways.current
        return self._target

    def answered(self, answer: Answer) -> Answer:
        """Note the answer, and return it."""
        if self._started is not None:
            _log(self.call, self._target.address.url, self._started, answer)
        return answer

    def failed(self, error: CoregwError) -> float | None:
        """Note the error of an attempt, and return how long to wait before the next one; None if there is none."""
        self._gateways.failed(self._target, error)
        if self._started is not None:
            _log(self.call, self._target.address.url, self._started, error)
        if self._retries is None:
            self._retries = Retries(self._settings, self._gateways)
        wait = self._retries.wait_seconds(error, self.call.done)
        if wait is None:
            return None
        rest = self.call.again(error)
        if rest is None:
            self._is_complete = True
            return None
        self.call = rest
        return wait

    def end(self, error: CoregwError) -> Answer | CoregwError:
        """Return the outcome of a call that is not attempted again: its last error, unless nothing was left to do."""
        return Answer(200, b"") if self._is_complete else error


class Forkable(Protocol):
    """A transport, as a child process finds it."""

    def forked(self) -> object:
        """Forget the connections of the parent process, and return them. Called in the child, before anything else."""


_watched: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()

_lock: Final = threading.RLock()
"""Held during a fork, and while `_watched` changes."""

_forking: Final[list[Forkable]] = []
"""Transports of a process that forks: a function that another library calls in the child may drop the last reference to
one, and what that closes must have been forgotten before."""

_kept: Final[list[object]] = []
"""In a child: the connections of its parent, so that nothing ever closes them there."""


def watch_forks(transport: Forkable) -> None:
    """Call `forked` of a transport in every child process that is forked while it exists."""
    with _lock:
        _watched.add(transport)


def _before() -> None:
    _lock.acquire()
    _forking.extend(_watched)


def _in_parent() -> None:
    _forking.clear()
    _lock.release()


def _in_child() -> None:
    _kept.extend([transport.forked() for transport in _forking])
    _forking.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
