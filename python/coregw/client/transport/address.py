"""The address of a gateway, with its credentials kept apart from what messages show."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from coregw.errors import InvalidInput

__all__ = ["Address", "addresses_in"]

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
            is_loopback=_is_loopback(host),
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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
