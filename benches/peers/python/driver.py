"""Driver for peers used from Python, and for coregw itself: ``driver.py NAME KEYS LOOKUPS PASSES``.

``coregw-map`` and ``coregw-list`` prove that a path, or an index, has a content identifier as its target;
``prollytree`` that a key has a value; ``pymerkle`` that a leaf of a log has an index, given the leaf's digest.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROW_LENGTH = 200
"""How many keys are looked up repeatedly before the next ones."""


class Peer(NamedTuple):
    """A tree of keys. Its functions take the number of a key; proofs are bytes to send."""

    prove: Callable[[int], bytes]
    verify: Callable[[int, bytes], bool]


def value(key: str) -> bytes:
    """Return the value of a key: the digest of the key's digest."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest()).digest()


def coregw_map(keys: list[str]) -> Peer:
    coregw: Any = importlib.import_module("coregw")
    targets = [coregw.payload_cid(value(key)) for key in keys]
    tree = coregw.Map(zip(keys, targets, strict=True))
    root, verify_key = tree.root, coregw.verify_key
    return Peer(lambda i: tree.prove(keys[i]), lambda i, proof: verify_key(root, keys[i], proof) == targets[i])


def coregw_list(keys: list[str]) -> Peer:
    coregw: Any = importlib.import_module("coregw")
    targets = [coregw.payload_cid(value(key)) for key in keys]
    tree = coregw.List(targets)
    root, verify_index = tree.root, coregw.verify_index
    return Peer(tree.prove, lambda i, proof: verify_index(root, i, proof).target == targets[i])


def prollytree(keys: list[str]) -> Peer:
    module: Any = importlib.import_module("prollytree")
    tree = module.ProllyTree()
    entries = [(key.encode(), value(key)) for key in keys]
    tree.insert_batch(entries)
    return Peer(
        lambda i: bytes(tree.generate_proof(entries[i][0])),
        lambda i, proof: bool(tree.verify_proof(proof, *entries[i])),
    )


def pymerkle(keys: list[str]) -> Peer:
    module: Any = importlib.import_module("pymerkle")
    tree = module.InmemoryTree(algorithm="sha256")
    tree.append_entries([value(key) for key in keys])
    root, leaves = tree.get_root(), [tree.get_leaf(i + 1) for i in range(min(len(keys), 10_000))]

    def verify(i: int, proof: bytes) -> bool:
        module.verify_inclusion(leaves[i], root, module.InclusionProof.deserialize(json.loads(proof)), index=i + 1)
        return True

    return Peer(lambda i: json.dumps(tree.prove_inclusion(i + 1).serialize()).encode(), verify)


PEERS: dict[str, Callable[[list[str]], Peer]] = {
    "coregw-map": coregw_map,
    "coregw-list": coregw_list,
    "prollytree": prollytree,
    "pymerkle": pymerkle,
}


def measure(peer: Peer, proofs: list[bytes], passes: int) -> dict[str, float]:
    """Measure one round and return its times per lookup."""
    times = {"spread": 0.0, "prove": 0.0, "verify": 0.0}
    gc.collect()
    gc.disable()
    start = time.process_time()
    for i in range(len(proofs)):
        peer.prove(i)
    times["spread"] = time.process_time() - start
    for row in (range(at, min(at + ROW_LENGTH, len(proofs))) for at in range(0, len(proofs), ROW_LENGTH)):
        for i in row:
            peer.prove(i)
        start = time.process_time()
        for _ in range(passes):
            for i in row:
                peer.prove(i)
        times["prove"] += (time.process_time() - start) / passes
        start = time.process_time()
        good = [peer.verify(i, proofs[i]) for _ in range(passes) for i in row]
        times["verify"] += (time.process_time() - start) / passes
        if not all(good):
            raise SystemExit("a proof was rejected")
    gc.enable()
    return {name: spent / len(proofs) for name, spent in times.items()}


def main(name: str, path: str, lookups: str, passes: str) -> None:
    """Build the tree, and measure one round for each line on stdin."""
    keys = Path(path).read_text().split()
    start = time.process_time()
    peer = PEERS[name](keys)
    built = time.process_time() - start
    proofs = [peer.prove(i) for i in range(int(lookups))]
    print(json.dumps({"build": built, "proof_bytes": sum(map(len, proofs)) / len(proofs)}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure(peer, proofs, int(passes))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
