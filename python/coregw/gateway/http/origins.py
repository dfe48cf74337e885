"""Checks of Host and Origin: protection against DNS rebinding, and against writes of other origins' web pages.

A page can make its visitor's browser send requests to any address, also to loopback. If its name then resolves to that
address, the browser takes the gateway for the page's own origin, and lets it read (DNS rebinding); but the Host that it
sends is the page's name. Without that, a page cannot read, but may still write; then the browser names its Origin.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from coregw.errors import InvalidInput

__all__ = ["ANY", "AUTOMATIC", "BROWSER_HEADERS", "Fault", "Origins", "check_hosts"]

ANY: Final = "*"
AUTOMATIC: Final = "auto"
BROWSER_HEADERS: Final = frozenset([b"origin", b"sec-fetch-site"])
"""The headers that `Origins.fault` takes besides Host. Only browsers send them."""

_SAFE_METHODS: Final = (b"GET", b"HEAD", b"OPTIONS")
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PORT: Final = re.compile(r":[0-9]*$")
_LOCAL: Final = "localhost"
_MAX_KNOWN: Final = 64
"""Hosts that are remembered as allowed. Others are checked each time."""


class Fault(NamedTuple):
    """Why a request is refused: a key of `coregw.errors.ERROR_CODES`, and a sentence."""

    code: str
    message: str


class Origins:
    """The policy of one server."""

    def __init__(self, hosts: str, allowed_origin: str, listens_on: str) -> None:
        """Args: the settings ``hosts``, ``allow_origin`` and ``host``."""
        self._allowed_origin = allowed_origin.encode()
        self._names = frozenset(check_hosts(hosts))
        self._accepts_local_names = hosts == AUTOMATIC
        self.checks_hosts: Final = hosts != ANY and (hosts != AUTOMATIC or _is_loopback(listens_on))
        self.known_hosts: Final[set[bytes]] = set()
        """Some values of Host that are allowed, so that most requests need no further check."""

    def fault(self, method: bytes, host: bytes | None, browser: dict[bytes, bytes]) -> Fault | None:
        """Return why a request is refused; None if it is not.

        Args:
            method: The method.
            host: The Host header; None if there is none, which no browser sends.
            browser: Those of `BROWSER_HEADERS` that the request has.
        """
        if self.checks_hosts and host is not None and host not in self.known_hosts:
            if not self._is_allowed(host):
                shown = host.decode("latin-1")
                message = f"{shown!r:.200} is not a host of this gateway; if it should be, add it to COREGW_HOSTS"
                return Fault("misdirected_request", message)
            if len(self.known_hosts) < _MAX_KNOWN:
                self.known_hosts.add(host)
        if browser and method not in _SAFE_METHODS:
            return self._fault_of_page(host, browser.get(b"origin"), browser.get(b"sec-fetch-site"))
        return None

    def _is_allowed(self, host: bytes) -> bool:
        """Whether no page of a stranger can have this host: an address, a name of this machine, or a configured one."""
        name = _PORT.sub("", host.decode("latin-1")).lower().removesuffix(".")
        if name in self._names or name == _LOCAL or name.endswith("." + _LOCAL):
            return True
        if self._accepts_local_names and name and "." not in name and ":" not in name:
            return True
        try:
            ipaddress.ip_address(name[1:-1] if name[:1] == "[" and name[-1:] == "]" else name)
        except ValueError:
            return False
        return True

    def _fault_of_page(self, host: bytes | None, origin: bytes | None, site: bytes | None) -> Fault | None:
        """Return why a page may not write; None if it may: it is of an allowed origin, or of the gateway's own."""
        if origin is not None and self._allowed_origin in (ANY.encode(), origin):
            return None
        if site is not None:
            if site in (b"same-origin", b"none"):
                return None
        elif origin is None or (host is not None and origin.partition(b"://")[2].lower() == host.lower()):
            return None
        shown = (origin or b"another origin").decode("latin-1")
        return Fault("forbidden_origin", f"web pages of {shown!r:.200} may not write here; see COREGW_ALLOW_ORIGIN")


def check_hosts(text: str) -> list[str]:
    """Return the names in the setting ``hosts``, in lower case.

    Raises:
        InvalidInput: If one of them is not a host name; the message names the setting.
    """
    if text in (ANY, AUTOMATIC):
        return []
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if _NAME.fullmatch(name) is None:
            expected = "names such as gateway.example.org, separated by commas, * or auto"
            raise InvalidInput(f"setting hosts has {name!r:.100}, expected {expected}")
    return names


def _is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == _LOCAL
