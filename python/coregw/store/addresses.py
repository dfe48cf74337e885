"""Addresses of databases and buckets: what they may contain, and how they are shown."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from coregw.errors import InvalidInput

__all__ = ["BucketAddress", "check_database_address", "masked"]

_SCHEMES: Final = ("postgresql", "postgres")
_OPTIONS: Final = frozenset({"endpoint", "region", "virtual_hosted"})
_BOOLEANS: Final = ("true", "false")
_SECRET: Final = re.compile(r"(?i)((?:^|[?&])[^=&]*(?:password|secret|token|passfile|key)[^=&]*=)[^&]*")

_USER: Final = re.compile(r"(?i)((?:^|[?&])endpoint=[a-z]+(?:://|%3A%2F%2F)[^&@:%]*(?::|%3A))[^&]*(?:@|%40)")
"""The user and the password in the address of an endpoint."""


def masked(url: str) -> str:
    """Return an address without its password, for messages, logs and listings of settings. Never raises."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    location, question, query = rest.partition("?")
    authority, slash, path = location.partition("/")
    if "@" in location:  # a password may contain any character that its writer forgot to escape
        authority, _, path = location.rpartition("@")[2].partition("/")
        user = location.rpartition("@")[0].partition(":")
        authority = f"{user[0]}{':***' if user[1] else ''}@{authority}"
    shown = _SECRET.sub(r"\1***", _USER.sub(r"\1***@", query))
    return f"{scheme}://{authority}{slash}{path}{question}{shown}"


def check_database_address(url: str) -> None:
    """Check the form of the address of a database; asyncpg parses it.

    Raises:
        InvalidInput: It is not one of PostgreSQL.
    """
    try:
        scheme = urlsplit(url).scheme  # a port is not looked at: there may be several hosts
    except ValueError:
        scheme = ""
    if scheme not in _SCHEMES:
        raise InvalidInput(f"{masked(url)!r} is not the address of a store: expected postgresql://USER@HOST/DATABASE")


class BucketAddress(NamedTuple):
    """A bucket for chunks: ``s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&virtual_hosted=true]``.

    Credentials are never part of it: they come from ``AWS_ACCESS_KEY_ID`` and the other variables of AWS.

    Attributes:
        bucket: The name of the bucket.
        prefix: What the names of all objects start with, without a slash at its end.
        endpoint: The URL of the server; None for Amazon's.
        region: The region; None to take it from the environment.
        virtual_hosted: Whether the bucket is a part of the server's name.
    """

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    virtual_hosted: bool

    @classmethod
    def parse(cls, url: str) -> BucketAddress:
        """Parse an address.

        Raises:
            InvalidInput: It is not one of a bucket, or has a part that is not known.
        """
        example = "s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"{masked(url)!r} is not the address of a bucket: {error}; expected {example}") from None
        if parts.scheme != "s3" or not parts.hostname:
            raise InvalidInput(f"{masked(url)!r} is not the address of a bucket: expected {example}")
        if parts.username is not None or port is not None:
            reason = "credentials are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise InvalidInput(f"{masked(url)!r} is not the address of a bucket: expected {example}; {reason}")
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(options.keys() - _OPTIONS):
            expected = ", ".join(sorted(_OPTIONS))
            raise InvalidInput(f"the address of the bucket has the option {unknown[0]!r}, expected {expected}")
        virtual_hosted = options.get("virtual_hosted", "false").lower()
        if virtual_hosted not in _BOOLEANS:
            raise InvalidInput(
                f"the address of the bucket has virtual_hosted={virtual_hosted!r}, expected true or false"
            )
        return cls(
            parts.hostname,
            parts.path.strip("/"),
            options.get("endpoint"),
            options.get("region"),
            virtual_hosted == "true",
        )
