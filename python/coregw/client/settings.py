"""Limits, timeouts, and how gateways are reached."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = [
    "DEFAULT_GATEWAY",
    "ENVIRONMENT",
    "MIB",
    "SECRETS",
    "SIDES",
    "ClientSettings",
    "ConnectionOptions",
    "variables_of",
]

MIB = 1 << 20

DEFAULT_GATEWAY = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The limits and timeouts of a client.

    Attributes:
        connect_seconds: Timeout of a connection attempt.
        idle_seconds: Timeout between two chunks, sent or received. The answer to a streamed body may take longer: what
            ``stream_bytes_per_second`` allows for that body.
        answer_seconds: Timeout of one whole exchange, from connecting to the last byte of the answer, so that a gateway
            that sends byte by byte does not hold a client.
        stream_bytes_per_second: A streamed body (a CAR file, or a payload in a file), sent or received, gets one second
            more for this many bytes.
        connections: Maximum number of connections, open and kept alive.
        attempts: Maximum attempts of a request, None for as many as there is time for. 1 disables retries.
        retry_seconds: How long after its first failure a request is attempted again if no gateway can be reached, or
            answers that it is unavailable. A ``Retry-After`` is honoured within this time. All requests of a client are
            idempotent, so repeating them is safe.
        backoff_seconds: The wait after all gateways have failed once, at most; it doubles each time. Half of it is
            random.
        backoff_max_seconds: Maximum wait between two attempts.
        max_result_bytes: Maximum size of a JSON answer, errors included.
        max_payload_bytes: Maximum size of a payload, sent or received; by default the gateway's own limit.
        max_car_bytes: Maximum size of an exported CAR.
        max_car_blocks: Maximum number of blocks of a CAR, exported or imported; each needs about 60 bytes of memory.
        list_changes: Maximum number of elements that one mutation appends to a list.
        batch_bytes: Maximum size of the payloads in one batch.
        window_bytes: The initial span of a range read of a list, in units of its measure.
        cache_bytes: Maximum size of what the open files of a client keep: their payloads, and what is known of lists.
            A single payload may be larger, and is then kept by its file until that reads another.
        read_ahead_bytes: How many bytes after those that were asked for are requested with them, at most, when a file
            is read in sequence. At most half of ``cache_bytes``.
        max_entries: Maximum number of entries that a walk of a tree yields, nested maps included. Getting a folder
            counts those of its map of attributes as well. An entry of a nested map counts once more for every 16
            folders that the map is below. The files of a folder that are lists have no more elements than this, beyond
            one for every 16 KiB.
        max_nesting: Maximum depth of maps inside maps that a walk follows.

    Raises:
        InvalidInput: A setting is not above 0.
        TypeError: A setting is not a number, or a count is not an int.
    """

    connect_seconds: float = 5.0
    idle_seconds: float = 120.0
    answer_seconds: float = 600.0
    stream_bytes_per_second: int = MIB
    connections: int = 16
    attempts: int | None = None
    retry_seconds: float = 10.0
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 5.0
    max_result_bytes: int = 48 * MIB
    max_payload_bytes: int = 64 * MIB
    max_car_bytes: int = 64 * 1024 * MIB
    max_car_blocks: int = 16_000_000
    list_changes: int = 20_000
    batch_bytes: int = 16 * MIB
    window_bytes: int = 64 * MIB
    cache_bytes: int = 64 * MIB
    read_ahead_bytes: int = 4 * MIB
    max_entries: int = 4_000_000
    max_nesting: int = 64

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is None:
                continue
            kinds = int | float if each.type == "float" else int
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise TypeError(f"client setting {each.name} is {each.type}, not {type(value).__name__}")
            if not value > 0:
                raise InvalidInput(f"client setting {each.name} is {value}; it must be above 0")


_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")

_VALUE: Final = re.compile(r"[\t\x20-\x7e]{0,8192}")

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}")

_MAX_HEADERS: Final = 64

_FILES: Final = ("netrc", "ca_cert", "client_cert", "client_key")

# What decides how bodies are framed and decoded is the transport's.
_RESERVED: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host", "range"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)

ENVIRONMENT: Final[Mapping[str, str]] = {
    "headers": "COREGW_HEADERS",
    "bearer_token": "COREGW_BEARER_TOKEN",
    "basic_auth": "COREGW_BASIC_AUTH",
    "netrc": "COREGW_NETRC",
    "ca_cert": "COREGW_CA_CERT",
    "client_cert": "COREGW_CLIENT_CERT",
    "client_key": "COREGW_CLIENT_KEY",
    "client_key_password": "COREGW_CLIENT_KEY_PASSWORD",
    "proxy": "COREGW_PROXY",
}
"""The variable of each option for `ConnectionOptions.from_environment`."""

SECRETS: Final = frozenset(
    {"headers", "bearer_token", "basic_auth", "client_cert", "client_key", "client_key_password"}
)
"""The options that are for one gateway, and would tell another one who asks. A ``netrc`` names its hosts."""

SIDES: Final = ("from", "to")
"""The sides of what runs between two gateways. Each has variables of its own, and gets no secrets of the other."""


def variables_of(side: str = "") -> dict[str, str]:
    """Return the variable of each option: those of `ENVIRONMENT`, for the side ``from`` ``COREGW_FROM_HEADERS`` etc."""
    prefix = f"COREGW_{side.upper()}_" if side else "COREGW_"
    return {name: prefix + variable.removeprefix("COREGW_") for name, variable in ENVIRONMENT.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How a client reaches its gateways. Everything here is sent to every gateway of the client, and to nobody else.

    Redirects are never followed. Credentials in a gateway's address take precedence over those here, these over
    ``netrc``, and the token of a call over all.

    Attributes:
        headers: Additional request headers; at most 64. Not those of framing, such as ``Content-Length``.
        bearer_token: Sent as ``Authorization: Bearer``.
        basic_auth: User and password, sent as basic authentication.
        netrc: A file with users and passwords by host, in the format of ``.netrc``. None is read unless it is named.
        ca_cert: A PEM file, or a folder as ``openssl rehash`` makes it, of the only trusted authorities. By default,
            those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, or of the system.
        client_cert: A PEM file with the client's certificate, and with its key unless ``client_key`` is given.
        client_key: A PEM file with the key.
        client_key_password: What the key is encrypted with.
        proxy: The URL of an ``http``, ``https``, ``socks5`` or ``socks5h`` proxy for all gateways; empty for none. By
            default, gateways that are not on loopback use ``http_proxy``, ``https_proxy``, ``all_proxy`` and
            ``no_proxy`` of the environment.

    Raises:
        InvalidInput: An option is malformed, contradicts another, or names a file that does not exist.
    """

    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    bearer_token: str | None = field(repr=False, default=None)
    basic_auth: tuple[str, str] | None = field(repr=False, default=None)
    netrc: Path | None = None
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    client_key_password: str | None = field(repr=False, default=None)
    proxy: str | None = field(repr=False, default=None)

    def __post_init__(self) -> None:
        _check_headers(self.headers)
        if self.bearer_token is not None and _TOKEN.fullmatch(self.bearer_token) is None:
            raise InvalidInput("bearer_token: expected 1 to 8,192 visible ASCII characters")
        if self.basic_auth is not None and (":" in self.basic_auth[0] or not _is_text(*self.basic_auth)):
            raise InvalidInput(
                "basic_auth: expected a user without a colon, and a password, without control characters"
            )
        if self.bearer_token is not None and self.basic_auth is not None:
            raise InvalidInput("bearer_token, basic_auth: give one of them")
        if self.client_key is not None and self.client_cert is None:
            raise InvalidInput("client_key: given without client_cert")
        for each in _FILES:
            file: Path | None = getattr(self, each)
            if file is not None and not os.access(file, os.R_OK):
                raise InvalidInput(f"{each}: {printable(str(file))} is not a readable file")

    @classmethod
    def from_environment(
        cls,
        given: Mapping[str, str | None] = MappingProxyType({}),
        headers: Sequence[str] = (),
        environ: Mapping[str, str] = os.environ,
        *,
        side: str = "",
    ) -> ConnectionOptions:
        """Return the options that the variables of `variables_of` set. An empty variable counts as unset.

        ``COREGW_HEADERS`` has a line ``Name: value`` for each header, and ``COREGW_BASIC_AUTH`` is ``user:password``.
        The proxy ``none`` means none.

        Args:
            given: Options as text that take precedence; None for those that do not.
            headers: Lines ``Name: value`` that take precedence.
            environ: The variables.
            side: One of `SIDES`, or nothing for the gateways of a client.

        Raises:
            InvalidInput: As the class.
        """
        variables = variables_of(side)
        texts = {name: environ.get(variable) or None for name, variable in variables.items()}
        texts |= {name: text for name, text in given.items() if text is not None}
        lines = [*(texts.pop("headers") or "").splitlines(), *headers]
        options: dict[str, Any] = {"headers": _parsed_headers(lines)}
        for name, text in texts.items():
            if text is None:
                continue
            if name == "basic_auth":
                user, colon, password = text.partition(":")
                if not colon:
                    raise InvalidInput(f"{variables[name]}: expected user:password")
                options[name] = user, password
            elif name == "proxy":
                options[name] = "" if text == "none" else text
            else:
                options[name] = Path(text) if name in _FILES else text
        return cls(**options)


def _parsed_headers(lines: Iterable[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise InvalidInput(f"headers[{number}]: expected Name: value")  # the line may be a secret
        headers[name.strip()] = value.strip()
    return headers


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > _MAX_HEADERS:
        raise InvalidInput(f"headers: {len(headers)}, the limit is {_MAX_HEADERS}")
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise InvalidInput("headers: a name has characters that the names of headers can't have")
        if name.lower() in _RESERVED:
            raise InvalidInput(f"headers: {name} can't be set")
        if _VALUE.fullmatch(value) is None:
            raise InvalidInput(f"headers: the value of {name} is too long, or has characters that values can't have")


def _is_text(*texts: str) -> bool:
    return all(text.isprintable() and len(text) <= 1024 for text in texts)
