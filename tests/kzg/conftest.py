"""Fixtures: a setup with a secret that is known, which the verifier uses in place of the public one."""

from __future__ import annotations

import functools

import pytest

from coregw.kzg import opening
from kzg.make_vectors import cid
from kzg.prover import BucketMap, Known


@functools.cache
def known() -> Known:
    return Known()


@functools.cache
def absent_from_bucket() -> BucketMap:
    return BucketMap(known(), {name: cid(name) for name in ("a", "b", "c")}, "docs")


@pytest.fixture
def bucket() -> BucketMap:
    """A map whose only slot is that of ``docs``, with a bucket of other keys. Its proof of absence is made once."""
    return absent_from_bucket()


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Known:
    monkeypatch.setattr(opening, "TAU_G2", known().tau_g2)
    return known()
