"""Range and If-None-Match, compared with a model that lists every byte."""

from __future__ import annotations

import pytest

from coregw.gateway.http.conditions import ByteRange, Unsatisfiable, is_listed, parse_range, range_applies


@pytest.mark.parametrize("size", range(5))
def test_ranges_agree_with_a_model_of_single_bytes(size: int) -> None:
    for first in range(7):
        for last in range(first, 7):
            wanted = [i for i in range(size) if first <= i <= last]
            found = parse_range(f"bytes={first}-{last}", size)
            assert found == (ByteRange(wanted[0], wanted[-1] + 1) if wanted else Unsatisfiable(size))
        rest = list(range(first, size))
        assert parse_range(f"bytes={first}-", size) == (ByteRange(first, size) if rest else Unsatisfiable(size))
        suffix = list(range(size))[-first:] if first else []
        assert parse_range(f"bytes=-{first}", size) == (ByteRange(suffix[0], size) if suffix else Unsatisfiable(size))


@pytest.mark.parametrize("header", ["", "bytes", "bytes=", "bytes=,", "bytes=0-1,1-2", "bytes=٣-", "bytes=1-0", "x=0-"])
def test_malformed_ranges_request_the_whole(header: str) -> None:
    assert parse_range(header, 10) is None


def test_entity_tags_are_compared_as_a_whole() -> None:
    assert is_listed('"b"', '"a", W/"b"')
    assert not is_listed('"b"', '"a b"')
    assert not is_listed('"b"', "")
    assert not is_listed('"b"', '"ab"')
    assert is_listed('"b"', "*")


def test_if_range_is_compared_strongly() -> None:
    assert range_applies(None, '"a"')
    assert range_applies('"a"', '"a"')
    assert not range_applies('W/"a"', '"a"')
