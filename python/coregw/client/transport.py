"""HTTP configuration shared by both clients: connections, retries, and the mapping of httpx2's failures."""

from __future__ import annotations

import ipaddress
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypedDict

import httpx2
import tenacity

from coregw.client.exchange import Attempt, Call, is_retryable
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, ProofError, Unavailable
from coregw.text import printable

__all__ = ["HttpOptions", "Retries", "http_options", "retries", "transport_errors"]

# Below the gateway's 30 s, so that it seldom closes a kept-alive connection just as it is reused.
_KEEPALIVE_SECONDS = 20.0

# Whatever may be credentials in a malformed URL: everything before the last "@", and everything after "?" or "#".
_CREDENTIALS = re.compile(r"^([a-z]*://)?.*@|[?#].*$", re.DOTALL | re.IGNORECASE)

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")

_REASONS: dict[type[httpx2.TransportError], str] = {
    httpx2.ConnectTimeout: "connecting timed out",
    httpx2.ReadTimeout: "the answer timed out",
    httpx2.WriteTimeout: "sending the request timed out",
    httpx2.PoolTimeout: "no connection became free in time",
    httpx2.ReadError: "the connection was lost",
    httpx2.WriteError: "the connection was lost",
}


class HttpOptions(TypedDict):
    """Keyword arguments of httpx2's clients."""

    base_url: httpx2.URL
    auth: httpx2.BasicAuth | None
    verify: ssl.SSLContext | bool
    timeout: httpx2.Timeout
    limits: httpx2.Limits
    trust_env: bool
    follow_redirects: bool


class Retries(TypedDict):
    """Keyword arguments of tenacity's controllers."""

    stop: tenacity.stop_after_attempt
    wait: tenacity.wait_exponential_jitter
    retry: tenacity.retry_if_exception
    reraise: bool


def http_options(base_url: str, settings: ClientSettings) -> HttpOptions:
    """Return the options for the gateway at `base_url`. Proxies of the environment do not apply to loopback addresses.

    Credentials in the URL are sent as basic authentication, and kept out of the URL, which messages and httpx2's log
    contain.

    Raises:
        InvalidInput: `base_url` is not an ``http`` or ``https`` URL, or has a query or a fragment.
    """
    url = _parsed(base_url)
    has_credentials = url.username or url.password
    direct = _is_loopback(url.host)
    # Without TLS and without a proxy no certificate is ever verified, and loading the system's takes 20 ms.
    needs_no_tls = url.scheme == "http" and direct
    return HttpOptions(
        base_url=url.copy_with(username="", password=""),
        auth=httpx2.BasicAuth(url.username, url.password) if has_credentials else None,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if needs_no_tls else True,
        timeout=httpx2.Timeout(
            min(settings.idle_seconds, settings.answer_seconds),
            connect=min(settings.connect_seconds, settings.answer_seconds),
        ),
        limits=httpx2.Limits(
            max_connections=settings.connections,
            max_keepalive_connections=settings.connections,
            keepalive_expiry=_KEEPALIVE_SECONDS,
        ),
        trust_env=not direct,
        follow_redirects=False,
    )


def retries(settings: ClientSettings) -> Retries:
    """Return the retry policy: only transient failures, at most ``attempts``, exponential backoff with jitter."""
    wait = tenacity.wait_exponential_jitter(
        multiplier=settings.backoff_seconds, max=settings.backoff_max_seconds, jitter=settings.backoff_seconds
    )
    return Retries(
        stop=tenacity.stop_after_attempt(settings.attempts),
        wait=wait,
        retry=tenacity.retry_if_exception(is_retryable),
        reraise=True,
    )


@contextmanager
def transport_errors(call: Call, attempt: Attempt, base_url: httpx2.URL) -> Iterator[None]:
    """Map httpx2's exceptions to this package's. A transport failure is `Unavailable`, and thereby retried."""
    try:
        yield
    except httpx2.TransportError as error:
        if isinstance(error, httpx2.TimeoutException) and time.monotonic() >= attempt.deadline:
            raise attempt.overdue() from error
        why = _REASONS.get(type(error)) or _ERRNO.sub("", printable(str(error))) or type(error).__name__
        raise Unavailable(f"{call.what}: gateway {base_url}: {why}") from error
    except httpx2.RequestError as error:
        raise ProofError(f"{call.what}: gateway {base_url}: {printable(str(error))}", check="answer") from error
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"{call.what}: {error}") from None


def _parsed(base_url: str) -> httpx2.URL:
    with suppress(httpx2.InvalidURL):
        url = httpx2.URL(base_url)
        if url.scheme in ("http", "https") and url.host and not url.query and not url.fragment:
            return url
    # What the parser says is left out: it may quote a part of a password.
    shown = _CREDENTIALS.sub(r"\1", base_url)
    raise InvalidInput(f"gateway address {shown!r:.500}: expected a URL such as http://127.0.0.1:8080")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
