"""What the sync and the async client share of HTTP: how a connection is set up, when to try again, what failures mean.

Leaves out the protocol (``operations``) and the moving of bytes (``sync``, ``aio``).
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import httpx2
import tenacity

from coregw.client.settings import ClientSettings
from coregw.client.wire import Call, printable, worth_retrying
from coregw.errors import InvalidInput, ProofError, Unavailable

__all__ = ["HttpOptions", "Retries", "http_options", "retries", "transport_errors"]

# Below the 30 s of the gateway, so that a kept connection is seldom closed by the gateway just as it is used again.
_KEEPALIVE_SECONDS = 20.0

_WORDS: dict[type[httpx2.TransportError], str] = {
    httpx2.ConnectTimeout: "no connection in time",
    httpx2.ReadTimeout: "no answer in time",
    httpx2.WriteTimeout: "it stopped taking the request",
    httpx2.PoolTimeout: "no connection is free",
    httpx2.ReadError: "the connection broke off",
    httpx2.WriteError: "the connection broke off",
}


class HttpOptions(TypedDict):
    """The keyword arguments of both of httpx2's clients."""

    base_url: httpx2.URL
    verify: ssl.SSLContext | bool
    timeout: httpx2.Timeout
    limits: httpx2.Limits
    trust_env: bool
    follow_redirects: bool


class Retries(TypedDict):
    """The keyword arguments of both of tenacity's controllers."""

    stop: tenacity.stop_after_attempt
    wait: tenacity.wait_exponential_jitter
    retry: tenacity.retry_if_exception
    reraise: bool


def http_options(base_url: str, settings: ClientSettings) -> HttpOptions:
    """How to talk to the gateway at `base_url`. Proxies of the environment are not asked for loopback addresses.

    Raises:
        InvalidInput: `base_url` is no ``http`` or ``https`` address, or has a query or a fragment.
    """
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"gateway address {printable(base_url)!r}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InvalidInput(f"gateway address {printable(base_url)!r}: not an address such as http://127.0.0.1:8080")
    direct = _is_loopback(url.host)
    # Without TLS and without a proxy nothing is ever verified, and loading the system's certificates takes 20 ms.
    needs_no_tls = url.scheme == "http" and direct
    return HttpOptions(
        base_url=url,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if needs_no_tls else True,
        timeout=httpx2.Timeout(settings.idle_seconds, connect=settings.connect_seconds),
        limits=httpx2.Limits(
            max_connections=settings.connections,
            max_keepalive_connections=settings.connections,
            keepalive_expiry=_KEEPALIVE_SECONDS,
        ),
        trust_env=not direct,
        follow_redirects=False,
    )


def retries(settings: ClientSettings) -> Retries:
    """When to try again: only what may pass by itself, at most ``attempts`` times, with jittered backoff."""
    wait = tenacity.wait_exponential_jitter(
        multiplier=settings.backoff_seconds, max=settings.backoff_max_seconds, jitter=settings.backoff_seconds
    )
    return Retries(
        stop=tenacity.stop_after_attempt(settings.attempts),
        wait=wait,
        retry=tenacity.retry_if_exception(worth_retrying),
        reraise=True,
    )


@contextmanager
def transport_errors(call: Call, base_url: httpx2.URL) -> Iterator[None]:
    """Turns httpx2's failures into this package's: what breaks on the way is `Unavailable`."""
    try:
        yield
    except httpx2.TransportError as error:
        why = _WORDS.get(type(error)) or printable(str(error)) or type(error).__name__
        raise Unavailable(f"{call.what}: gateway {base_url}: {why}") from error
    except httpx2.RequestError as error:
        raise ProofError(f"{call.what}: gateway {base_url}: {printable(str(error))}", check="answer") from error
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"{call.what}: {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
