"""The integers that `check_json` accepts: those of the protocol, or any int64 for the plant store's ids."""

from __future__ import annotations

import pytest

from coregw._core import check_json
from coregw.errors import InvalidInput
from tables import rows


@pytest.mark.parametrize("text", [b"0", b"1", b"9007199254740991"])
def test_integers_below_2_to_the_53_are_always_accepted(text: bytes) -> None:
    check_json(text)
    check_json(b'{"id": [%s]}' % text, True)


@rows("text", [b"9007199254740992", b"9223372036854775807", b"-1", b"-9007199254740993", b"-9223372036854775808"])
def test_other_integers_of_64_bits_are_accepted_on_request_only(text: bytes) -> None:
    check_json(b'{"id": [%s]}' % text, True)
    with pytest.raises(InvalidInput):
        check_json(b'{"id": [%s]}' % text)


@rows("text", [b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1.0", b"1e2", b"-0", b"01"])
@rows("int64", [False, True])
def test_other_numbers_are_refused(text: bytes, int64: bool) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        check_json(b'{"id": [%s]}' % text, int64)


@rows("text", [b'{"a":1,"\\u0061":1}', b"[" * 33 + b"]" * 33, b'"\\ud800"', b'"\xff"', b"1 2"])
def test_int64_relaxes_nothing_but_the_range_of_integers(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        check_json(text, True)
