"""The extension under pytest-benchmark: ``pytest benches/`` prints the table that its users know.

The times are those of this machine, now. `bench_core.py` compares them with bare hashing, and is what is recorded.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from coregw import Change, Map, payload_cid, verify_key, verify_keys
from coregw.bench import ProofSample, generated_keys, target

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

KEYS_AT_ONCE = 100


@pytest.mark.benchmark(group="prove a key")
def test_prove(benchmark: BenchmarkFixture, tree: Map, some: ProofSample) -> None:
    keys = cycle(some.keys)
    assert benchmark(lambda: tree.prove(next(keys)))


@pytest.mark.benchmark(group="verify a key")
def test_verify(benchmark: BenchmarkFixture, some: ProofSample) -> None:
    items = cycle(zip(some.keys, some.proofs, strict=True))
    assert benchmark(lambda: verify_key(some.root, *next(items))) == target()


@pytest.mark.benchmark(group="prove 100 keys at once")
def test_prove_keys(benchmark: BenchmarkFixture, tree: Map, some: ProofSample) -> None:
    assert benchmark(tree.prove_keys, some.keys[:KEYS_AT_ONCE])


@pytest.mark.benchmark(group="verify 100 keys at once")
def test_verify_keys(benchmark: BenchmarkFixture, tree: Map, some: ProofSample) -> None:
    keys = some.keys[:KEYS_AT_ONCE]
    proof = tree.prove_keys(keys)
    assert benchmark(verify_keys, some.root, keys, proof) == [target()] * KEYS_AT_ONCE


@pytest.mark.benchmark(group="bind one key of a map")
def test_change(benchmark: BenchmarkFixture, tree: Map, some: ProofSample) -> None:
    keys = cycle(some.keys)
    other = payload_cid(b"another target")
    assert benchmark(lambda: tree.apply([Change(next(keys), target(), other)])).tree != tree


@pytest.mark.benchmark(group="build a map of 1,000 arcs")
def test_build(benchmark: BenchmarkFixture, suite: str) -> None:
    arcs = dict.fromkeys(generated_keys(1_000), target())
    assert len(benchmark(Map, arcs, suite)) == len(arcs)


@pytest.mark.benchmark(group="hash a payload")
@pytest.mark.parametrize("size", [100, 1 << 20], ids="{:,} bytes".format)
def test_payload_cid(benchmark: BenchmarkFixture, size: int, suite: str) -> None:
    assert benchmark(payload_cid, bytes(size), hash=suite)
