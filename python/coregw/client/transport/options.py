"""Settings of a client as options of libcurl."""

from __future__ import annotations

import math
import os
import sys
from typing import Final

import pycurl

from coregw.client.settings import ClientSettings
from coregw.client.transport.address import Address

__all__ = ["handle_options", "milliseconds"]

# Below the gateway's 30 s, so that it seldom closes a kept-alive connection just as it is reused.
_KEEPALIVE_SECONDS: Final = 20

_SUPPRESS_CONNECT_HEADERS: Final = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl does not name

_BUFFER_BYTES: Final = 512 << 10
"""Of received bytes per read, and of sent bytes per write; libcurl allocates both when they are needed."""


def handle_options(address: Address, settings: ClientSettings) -> list[tuple[int, object]]:
    """Return the options that all calls to a gateway share."""
    options: list[tuple[int, object]] = [
        (pycurl.NOSIGNAL, 1),
        (pycurl.FOLLOWLOCATION, 0),
        (_SUPPRESS_CONNECT_HEADERS, 1),
        (pycurl.CONNECTTIMEOUT_MS, milliseconds(min(settings.connect_seconds, settings.answer_seconds))),
        (pycurl.MAXAGE_CONN, _KEEPALIVE_SECONDS),
        (pycurl.BUFFERSIZE, _BUFFER_BYTES),
        (pycurl.UPLOAD_BUFFERSIZE, _BUFFER_BYTES),
    ]
    if address.credentials is not None:
        user, password = address.credentials
        options += [(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC), (pycurl.USERNAME, user), (pycurl.PASSWORD, password)]
    if address.is_loopback:
        options.append((pycurl.NOPROXY, "*"))
    if address.is_secure:
        options += _tls_options()
    return options


def _tls_options() -> list[tuple[int, object]]:
    """Return where trusted certificates are. libcurl reads no environment variables, and a wheel of it no folder."""
    if sys.platform in ("win32", "darwin"):
        return [(pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA)]
    import ssl

    paths = ssl.get_default_verify_paths()  # considers SSL_CERT_FILE and SSL_CERT_DIR
    options: list[tuple[int, object]] = []
    if paths.cafile is not None:
        options.append((pycurl.CAINFO, os.fspath(paths.cafile)))
    if paths.capath is not None:
        options.append((pycurl.CAPATH, os.fspath(paths.capath)))
    return options


def milliseconds(seconds: float) -> int:
    """Return a timeout for libcurl: rounded up, and not 0, which would mean none."""
    return max(1, min(math.ceil(seconds * 1000), (1 << 31) - 1))
