"""Trees and proofs in this process: building a map, proving, and verifying."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final

from coregw import Map, payload_cid, verify_key, verify_key_many, verify_keys
from coregw.bench.figures import Figure, measured, percentiles, timed

__all__ = ["BATCH", "Sample", "build", "generated_keys", "local_figures", "sample", "target"]

BATCH: Final = 1_000
"""Keys of one multiproof."""

_SAMPLE: Final = 5_000
_MESSAGE: Final = bytes(100)
_GROUP: Final = "core"


def generated_keys(count: int) -> list[str]:
    """Return keys as a folder of many files has them; always the same ones."""
    rng = random.Random(1)  # noqa: S311 - no secrets
    return [f"data/{i % 997:03d}/{rng.getrandbits(64):016x}.bin" for i in range(count)]


class Sample:
    """Some keys of a map with their proofs, in random order.

    Attributes:
        root: The root CID of the map.
        keys: The keys.
        proofs: The proof of each.
    """

    def __init__(self, root: str, keys: list[str], proofs: list[bytes]) -> None:
        self.root, self.keys, self.proofs = root, keys, proofs


def sample(tree: Map, keys: Sequence[str]) -> Sample:
    """Return a random sample of at most 5,000 keys of a map, with their proofs."""
    chosen = random.Random(2).sample(  # noqa: S311 - no secrets
        keys, min(len(keys), _SAMPLE)
    )
    return Sample(tree.root, chosen, tree.prove_many(chosen))


def target() -> str:
    """Return the CID that all keys are bound to."""
    return payload_cid(b"benchmark")


def build(keys: Sequence[str]) -> tuple[Map, Figure]:
    """Build a map that binds each key to a CID; the time of computing the CIDs does not count.

    Raises:
        InvalidInput: A key is not a path.
    """
    arcs = dict.fromkeys(keys, target())
    start = perf_counter()
    tree = Map(arcs)
    seconds = perf_counter() - start
    return tree, Figure(name="build a map", group=_GROUP, rate=len(arcs) / seconds, unit="arcs")


def local_figures(tree: Map, keys: Sequence[str], seconds: float) -> Iterator[Figure]:
    """Measure proving and verifying; each figure takes about twice `seconds`."""
    some = sample(tree, keys)
    root, names, proofs = some.root, some.keys, some.proofs
    count = len(names)
    size = sum(map(len, proofs)) / count
    yield _of_calls("hashlib.sha256 of 100 bytes", "calls", lambda _: hashlib.sha256(_MESSAGE).digest(), seconds)
    yield _of_calls("prove a key", "proofs", lambda i: tree.prove(names[i % count]), seconds, size)
    yield _of_calls(
        "verify a key", "proofs", lambda i: verify_key(root, names[i % count], proofs[i % count]), seconds, size
    )
    items = [*zip(names, proofs, strict=True)]
    yield _of_batches(
        "verify proofs, all cores", "proofs", count, lambda _: verify_key_many(root, items), seconds, size
    )
    batch = names[:BATCH]
    proof = tree.prove_keys(batch)
    many, share = f"{len(batch):,} {'key' if len(batch) == 1 else 'keys'} at once", len(proof) / len(batch)
    yield _of_batches(f"prove {many}", "keys", len(batch), lambda _: tree.prove_keys(batch), seconds, share)
    yield _of_batches(f"verify {many}", "keys", len(batch), lambda _: verify_keys(root, batch, proof), seconds, share)


def _of_calls(
    name: str, unit: str, work: Callable[[int], object], seconds: float, proof_bytes: float | None = None
) -> Figure:
    """Measure the rate in one pass, and single calls in a second one, since timing each slows them down."""
    rate = measured(work, seconds)
    latency = percentiles(timed(work, seconds))
    return Figure(name=name, group=_GROUP, rate=rate, unit=unit, latency_us=latency, proof_bytes=proof_bytes)


def _of_batches(
    name: str, unit: str, count: int, work: Callable[[int], object], seconds: float, proof_bytes: float
) -> Figure:
    """Measure work that does `count` things in one call."""
    times = timed(work, seconds)
    rate = count * len(times) / (sum(times) / 1e9)
    return Figure(name=name, group=_GROUP, rate=rate, unit=unit, proof_bytes=proof_bytes)
