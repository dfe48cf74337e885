"""Addresses of databases and buckets: malformed ones are refused by name, without their secrets."""

from __future__ import annotations

import pytest

from coregw.errors import InvalidInput
from coregw.store.addresses import BucketAddress, check_database_address, masked
from coregw.store.postgres.checks import split_unsafe
from tables import rows


def test_a_bucket_with_all_options() -> None:
    address = "s3://trees/docs/?endpoint=http://127.0.0.1:8333&region=eu-central-1&virtual_hosted=True"
    assert BucketAddress.parse(address) == ("trees", "docs", "http://127.0.0.1:8333", "eu-central-1", True)
    assert BucketAddress.parse("s3://trees") == ("trees", "", None, None, False)


@rows(
    ("address", "reason"),
    [
        ("trees", "expected s3://BUCKET"),
        ("s3:///docs", "expected s3://BUCKET"),
        ("s3://[", "expected s3://BUCKET"),
        ("s3://trees:port", "expected s3://BUCKET"),
        ("s3://trees:80", "credentials are read from"),
        ("s3://me:pa55word@trees", "credentials are read from"),
        ("s3://trees?zone=a", "has the option 'zone', expected endpoint, region, virtual_hosted"),
        ("s3://trees?virtual_hosted=yes", "virtual_hosted='yes', expected true or false"),
    ],
)
def test_what_is_not_the_address_of_a_bucket(address: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        BucketAddress.parse(address)
    assert reason in refused.value.message
    assert "pa55word" not in refused.value.message


@rows("address", ["host/name", "mysql://host/name", "postgresql://[", ""])
def test_what_is_not_the_address_of_a_database(address: str) -> None:
    with pytest.raises(InvalidInput, match="expected postgresql://USER@HOST/DATABASE"):
        check_database_address(address)


def test_a_database_may_have_several_hosts() -> None:
    check_database_address("postgresql://me@a:5432,b:5433/coregw?sslmode=require")
    check_database_address("postgres:///coregw?host=/run/postgresql")


@rows(
    ("address", "shown"),
    [
        (
            "s3://trees?endpoint=http://me:pa55@word@host:80&region=a",
            "s3://trees?endpoint=http://me:***@host:80&region=a",
        ),
        (
            "s3://trees?region=a&endpoint=http%3A%2F%2Fme%3Apa55%40host",
            "s3://trees?region=a&endpoint=http%3A%2F%2Fme%3A***@host",
        ),
        ("s3://trees?endpoint=http://host:80", "s3://trees?endpoint=http://host:80"),
        ("s3://trees?endpoint=https://host/a@b:c@d", "s3://trees?endpoint=https://host/a@b:c@d"),
        ("http://me:pa55word@host/path", "http://me:***@host/path"),
    ],
)
def test_passwords_of_endpoints_are_not_shown(address: str, shown: str) -> None:
    assert masked(address) == shown


@rows(
    ("query", "rest", "names"),
    [
        ("", "", set()),
        ("?sslmode=disable", "?sslmode=disable", set()),
        ("?unsafe=fsync", "", {"fsync"}),
        ("?a=1&unsafe=fsync,standbys&b=x%20y", "?a=1&b=x%20y", {"fsync", "standbys"}),
        ("?unsafe=fsync&a=1&unsafe=full%5Fpage_writes", "?a=1", {"fsync", "full_page_writes"}),
    ],
)
def test_what_is_allowed_to_be_unsafe_is_not_given_to_the_database(query: str, rest: str, names: set[str]) -> None:
    host = "postgresql://me:se-cret@host/db"
    assert split_unsafe(host + query) == (host + rest, names)


def test_an_unknown_risk_is_named_without_the_address() -> None:
    with pytest.raises(InvalidInput, match="unsafe=speed, expected names of fsync, full_page_writes") as caught:
        split_unsafe("postgresql://me:se-cret@host/db?unsafe=fsync,speed")
    assert "se-cret" not in str(caught.value)
