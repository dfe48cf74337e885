"""Storage options and URLs of the file system, and the client that they describe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from coregw._core import Cid
from coregw.client import Client, ClientSettings, ConnectionOptions
from coregw.client.settings import DEFAULT_GATEWAY, ENVIRONMENT, SECRETS
from coregw.client.transport.gateways import Address, addresses_in
from coregw.errors import InvalidInput
from coregw.trust import TrustStore, is_cid

__all__ = ["CONNECTION_OPTIONS", "PROTOCOLS", "SETTINGS", "checked_roots", "client_of", "gateway_of", "stripped"]

PROTOCOLS: Final = ("coregw", "coregw+http", "coregw+https")
CONNECTION_OPTIONS: Final = frozenset(ENVIRONMENT)
_PORTS: Final = {"http": 80, "https": 443}
SETTINGS: Final = frozenset({"cache_bytes", "max_entries", "read_ahead_bytes", "retry_seconds"})


def client_of(gateway: str | Sequence[str] | None, trust: str | None, options: Mapping[str, object]) -> Client:
    """Return the client of storage options; those that are not given are taken from the environment, as by commands.

    The environment's credentials, certificate and headers are for the environment's gateways. They are sent to no other
    gateway, since anybody may have written a URL that names one.

    Args:
        gateway: Addresses; None for those of ``COREGW_GATEWAY``.
        trust: The file of the trust store; None for the user's.
        options: Those of `CONNECTION_OPTIONS` as text, ``headers`` as a mapping, and those of `SETTINGS` as numbers.

    Raises:
        InvalidInput: An option is unknown or malformed.
    """
    unknown = sorted(options.keys() - CONNECTION_OPTIONS - SETTINGS)
    if unknown:
        raise InvalidInput(f"storage option {unknown[0]!r:.200}: unknown")
    own = addresses_in(os.environ.get("COREGW_GATEWAY") or DEFAULT_GATEWAY)
    given = own if gateway is None else gateway
    addresses = addresses_in(given) if isinstance(given, str) else list(given)
    headers = options.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise InvalidInput("storage option 'headers': expected a mapping")
    texts: dict[str, str | None] = {}
    for name in CONNECTION_OPTIONS - {"headers"}:
        value = options.get(name)
        if isinstance(value, tuple | list):  # (user, password)
            value = ":".join(map(str, value))
        texts[name] = None if value is None else str(value)
    lines = [f"{name}: {value}" for name, value in headers.items()]
    connection = ConnectionOptions.from_environment(texts, lines, _environment_for(addresses, own))
    settings = {name: options[name] for name in SETTINGS if options.get(name) is not None}
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(f"storage option {name!r}: expected a number")
    return Client(addresses, ClientSettings(**settings), connection, trust=TrustStore(trust))  # type: ignore[arg-type]


def _environment_for(addresses: Sequence[str], own: Sequence[str]) -> Mapping[str, str]:
    """Return the environment's variables, without secrets if an address is not one of the environment's gateways."""
    origins = {_origin(each) for each in own}
    if all(_origin(each) in origins for each in addresses):
        return os.environ
    secrets = {ENVIRONMENT[name] for name in SECRETS}
    return {name: value for name, value in os.environ.items() if name not in secrets}


def _origin(address: str) -> tuple[str, str | None, int]:
    """Return the scheme, host and port of an address."""
    parts = urlsplit(Address.parse(address).url)
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


def checked_roots(roots: Mapping[str, str] | None) -> dict[str, Cid]:
    """Return names with their roots. Raises `InvalidInput` if a name could be a root, or a root is not one."""
    checked: dict[str, Cid] = {}
    for name, root in (roots or {}).items():
        if not name or "/" in name or is_cid(name):
            raise InvalidInput(
                f"storage option 'roots': {name!r:.200} can't be a name: it is a CID, or not one segment"
            )
        checked[name] = Cid(root)
    return checked


def gateway_of(url: str) -> str | None:
    """Return the gateway's address in a URL ``coregw+https://HOST:PORT/ROOT/path``; None if the URL has none."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in PROTOCOLS[1:]:
        return None
    return f"{scheme.removeprefix('coregw+')}://{rest.partition('/')[0]}"


def stripped(url: str) -> str:
    """Return ``ROOT/path`` of a URL or path."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in PROTOCOLS:
        url = rest if scheme == PROTOCOLS[0] else rest.partition("/")[2]
    return "/".join(segment for segment in url.removeprefix(f"{PROTOCOLS[0]}::").split("/") if segment)
