"""Maps of several sizes for the suite of pytest-benchmark in this folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from coregw import Map
from coregw.bench import ProofSample, generated_keys, sample, target

# The search for doctests would import the programs beside the suite; some need libraries of the group "bench".
collect_ignore = [path.name for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]


@cache
def tree_of(count: int, suite: str) -> tuple[Map, ProofSample]:
    """A map of generated keys, and some of its keys with their proofs."""
    keys = generated_keys(count)
    tree = Map(dict.fromkeys(keys, target()), suite)
    return tree, sample(tree, keys)


@pytest.fixture(params=[1_000, 100_000], ids="{:,} arcs".format)
def count(request: pytest.FixtureRequest) -> int:
    """How many arcs the map has."""
    return int(request.param)


@pytest.fixture(params=["sha2-256", "blake3"])
def suite(request: pytest.FixtureRequest) -> str:
    """The hash function of the map."""
    return str(request.param)


@pytest.fixture
def tree(count: int, suite: str) -> Map:
    """A map of that many arcs."""
    return tree_of(count, suite)[0]


@pytest.fixture
def some(count: int, suite: str) -> ProofSample:
    """Some of its keys, with their proofs."""
    return tree_of(count, suite)[1]
