"""How a client reaches gateways: headers, credentials, certificates and proxies. No secret is in a representation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = ["ENVIRONMENT", "SECRETS", "SIDES", "ConnectionOptions", "variables_of"]

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
