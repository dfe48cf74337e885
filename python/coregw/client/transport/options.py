"""Settings of a client as options of libcurl."""

from __future__ import annotations

import math
import os
import sys
from typing import Final
from urllib.parse import unquote, urlsplit

import pycurl

from coregw.client.connection import ConnectionOptions
from coregw.client.settings import ClientSettings
from coregw.client.transport.address import Address
from coregw.errors import InvalidInput

__all__ = ["handle_options", "milliseconds", "request_headers"]

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
