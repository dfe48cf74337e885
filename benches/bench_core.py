"""The core alone: proving, verifying, building, changing and listing maps and lists, from Rust and from Python.

The Rust part is ``rust/ops/benches/core/``, which prints its figures as JSON. The Python part does the same work
through the extension. Ratios compare it with bare work, such as hashing the same bytes, measured in the same run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import random
import subprocess
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import coregw
import report

QUICK, FULL, HUGE = (100_000,), (1_000, 100_000, 1_000_000), (10_000_000,)
GUARDED_FROM = 100_000
"""Verifying in a smaller tree takes about a microsecond, little of which is hashing."""
LOOKUPS = 2_000
PICTURED = "random hex"
"""The keys whose times the picture shows. Times are those of the recording machine."""

Measured = dict[str, Any]


class Answer(NamedTuple):
    """One key and its proof, also as request and result of a resolve in JSON."""

    key: str
    proof: bytes
    request: bytes
    result: bytes


def rust(sizes: tuple[int, ...]) -> list[Measured]:
    """Run the Rust bench and return its figures."""
    command = ["cargo", "bench", "--quiet", "--package", "coregw-ops", "--bench", "core", "--", "--json"]
    done = subprocess.run(
        [*command, *map(str, sizes)], cwd=report.REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def add(figures: report.Report, measured: list[Measured]) -> None:
    """Add the figures of the Rust bench to the report. Times are shown, but not recorded."""
    for one in measured:
        is_time, is_ratio = one["unit"] == "us", one["unit"] == "x"
        # The cost of the first access depends on what else uses the CPU caches.
        is_steady = is_ratio and "first access" not in one["what"] and one["arcs"] >= GUARDED_FROM
        figures.add(
            f"{one['what']}, {one['arcs']:,} arcs",
            one["value"],
            one["unit"].replace("us", "µs"),
            series=one["keys"],
            better="lower",
            bar=one["bar"],
            guarded=is_steady or one["unit"] in ("bytes", "KiB", "pages"),
            recorded=not is_time,
            note=one["note"],
        )


def draw(figures: report.Report, measured: list[Measured]) -> None:
    """Plot the times for one key against the number of keys, and name the figures that the README shows."""
    one = {(each["what"], each["arcs"]): each["value"] for each in measured if each["keys"] == PICTURED}
    sizes = sorted({arcs for _, arcs in one})

    def floor(arcs: int) -> float:
        value: float = one["verify one key", arcs] / one["verify one key / hash the same strings", arcs]
        return value

    title = f"Time for one key ({PICTURED})"
    figures.panel(title, "keys in the map", "µs", logarithmic=True)
    xs = [float(arcs) for arcs in sizes]
    figures.line(title, "verify its proof", xs, [one["verify one key", arcs] for arcs in sizes])
    figures.line(title, "hash the same bytes", xs, [floor(arcs) for arcs in sizes])
    figures.line(title, "prove it", xs, [one["prove one key", arcs] for arcs in sizes])
    arcs = FULL[-1]
    of = f"key of a map of {arcs:,}, one thread"
    figures.headline(f"Rust: prove a {of}", one["prove one key", arcs], "µs")
    figures.headline(f"Rust: verify a {of}", one["verify one key", arcs], "µs", "hashing the same bytes", floor(arcs))
    figures.headline(f"Rust: build a map of {arcs:,} keys, one thread, per key", one["build, per arc", arcs], "µs")


def best(work: Callable[[], object], rounds: int = 15) -> float:
    """Return the seconds of the fastest round, since any disturbance only makes a round slower."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def answers(tree: coregw.Map, keys: list[str]) -> list[Answer]:
    """Return answers for some keys, in the form that a gateway sends."""
    profile, root = "core.resolve/v0alpha1", tree.root
    found = []
    for key in random.Random(1).sample(keys, LOOKUPS):
        proof, target = tree.prove(key), tree[key]
        evidence = {"evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": base64.b64encode(proof).decode()}
        step = {"kind": "map_step", "from": {"/": root}, "target": {"/": target}, "path": key} | evidence
        prooflist = {"root": {"/": root}, "query": key, "steps": [step]}
        request = {"profile": profile, "root": root, "segments": key.split("/")}
        result = {"profile": profile, "target": target, "prooflist": prooflist}
        found.append(Answer(key, proof, json.dumps(request).encode(), json.dumps(result).encode()))
    return found


def from_python(figures: report.Report, arcs: int, one_thread: float) -> None:
    """Measure the same work through the extension. `one_thread` is the time to verify a key in Rust, in µs."""
    keys = [hashlib.sha256(i.to_bytes(8)).hexdigest()[:32] for i in range(arcs)]
    tree = coregw.Map(dict.fromkeys(keys, coregw.payload_cid(b"")))
    root, asked = tree.root, answers(tree, keys)
    pairs = [(answer.key, tree.prove(answer.key)) for answer in asked]  # adjacent in memory, as in Rust

    def each(work: Callable[[Answer], object]) -> float:
        return best(lambda: [work(answer) for answer in asked]) * 1e6 / LOOKUPS

    verifying = each(lambda answer: coregw.verify_key(root, answer.key, answer.proof))
    proving = each(lambda answer: tree.prove(answer.key))
    resolving = each(lambda answer: coregw.verify_resolve(answer.request, answer.result))
    many = (
        best(lambda: coregw.verify_key_many(root, pairs), rounds=60) * 1e6 / LOOKUPS
    )  # all cores have to be idle in one round
    rows: tuple[tuple[str, float, report.Better, float | None, str], ...] = (
        ("verify_key_many: rate / that of one Rust thread", one_thread / many, "higher", 1.5, "needs idle cores"),
        ("verify_resolve on JSON / verify_key", resolving / verifying, "lower", 3.0, ""),
        ("verify_key / the same in Rust", verifying / one_thread, "lower", None, ""),
        ("prove / verify_key", proving / verifying, "lower", None, ""),
    )
    for name, value, better, bar, note in rows:
        # Parallel speed depends on what else runs on the cores; the other rows compare one thread with itself.
        is_guarded = bar is not None and better == "lower"
        figures.add(f"{name}, {arcs:,} arcs", value, series="Python, random hex", better=better, bar=bar,
                    guarded=is_guarded, note=note)  # fmt: skip
    for name, value in (("verify_key", verifying), ("prove", proving), ("verify_resolve", resolving)):
        figures.add(name, value, "µs", series="Python, random hex", recorded=False)


def main() -> None:
    """Measure, print and record."""
    parser = report.parser(__doc__)
    parser.add_argument("--huge", action="store_true", help=f"also {HUGE[0]:,} arcs; takes some six minutes and 10 GiB")
    args: argparse.Namespace = parser.parse_args()
    sizes = QUICK if args.quick else FULL + (HUGE if args.huge else ())
    notes = (
        "One thread, SHA-256, the best time of each side.",
        "The hashes of a proof form a chain. Independently: as if no string contained the digest of another.",
    )
    figures = report.Report("core", "The core compared with bare hashing and sorting", args, notes)
    measured = rust(sizes)
    add(figures, measured)
    arcs = min(sizes[-1], FULL[-1])
    one_thread = next(
        one["value"]
        for one in measured
        if (one["keys"], one["what"], one["arcs"]) == ("random hex", "verify one key", arcs)
    )
    from_python(figures, arcs, one_thread)
    if not args.quick:
        draw(figures, measured)
    figures.finish()


if __name__ == "__main__":
    main()
