"""The core by itself: proving, verifying, building, changing and listing maps and lists, from Rust and from Python.

The Rust part is ``rust/ops/benches/core/``; its figures come as JSON. The Python part asks for the same work through
the extension. The ratios' other sides are bare work, such as hashing the same bytes, measured in the same run.
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
"""Smaller trees are verified in a microsecond, of which little is hashing."""
LOOKUPS = 2_000
PANELS = {
    "verify one key / hash the same strings": "ratio",
    "verify one key": "µs",
    "prove one key": "µs",
    "proof of one key": "bytes",
    "build, an arc": "µs an arc",
    "memory an arc": "bytes an arc",
    "stored bytes an arc": "bytes an arc",
}
"""What the picture shows over the number of arcs. Times are of the machine that the picture was made on."""
LIST = {"key": "element", "an arc": "an element"}
"""What a list says for what a map says; both are one line of the picture."""

Measured = dict[str, Any]


class Answer(NamedTuple):
    """One key, its proof, and the same as the JSON of a resolve."""

    key: str
    proof: bytes
    request: bytes
    result: bytes


def rust(sizes: tuple[int, ...]) -> list[Measured]:
    """The figures of the Rust bench, as it says them."""
    command = ["cargo", "bench", "--quiet", "--package", "coregw-ops", "--bench", "core", "--", "--json"]
    done = subprocess.run([*command, *map(str, sizes)], cwd=report.HOUSE, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def add(figures: report.Report, measured: list[Measured]) -> None:
    """Takes the figures of the Rust bench into the report: ratios and sizes are kept, times shown."""
    for one in measured:
        is_time, is_ratio = one["unit"] == "us", one["unit"] == "x"
        # What a row costs when its pages come from memory varies with what else the machine's caches hold.
        is_steady = is_ratio and "first time" not in one["what"] and one["arcs"] >= GUARDED_FROM
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
    """How the figures grow with the number of arcs."""
    for what, unit in PANELS.items():
        figures.panel(what, "arcs or elements", unit, logarithmic=True)
        names = {what, *(what.replace(ours, theirs) for ours, theirs in LIST.items())}
        for keys in dict.fromkeys(one["keys"] for one in measured):
            points = [(one["arcs"], one["value"]) for one in measured if one["keys"] == keys and one["what"] in names]
            figures.line(what, keys, [float(x) for x, _ in points], [y for _, y in points])


def best(work: Callable[[], object], rounds: int = 15) -> float:
    """Seconds of the fastest of some rounds, as all that disturbs one makes it longer."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def answers(tree: coregw.Map, keys: list[str]) -> list[Answer]:
    """Answers for some keys, as a gateway sends them."""
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
    """The same work through the extension. `one_thread` is what verifying a key takes in Rust, in microseconds."""
    keys = [hashlib.sha256(i.to_bytes(8)).hexdigest()[:32] for i in range(arcs)]
    tree = coregw.Map(dict.fromkeys(keys, coregw.payload_cid(b"")))
    root, asked = tree.root, answers(tree, keys)
    pairs = [(answer.key, tree.prove(answer.key)) for answer in asked]  # one behind the other in memory, as in Rust

    def each(work: Callable[[Answer], object]) -> float:
        return best(lambda: [work(answer) for answer in asked]) * 1e6 / LOOKUPS

    verifying = each(lambda answer: coregw.verify_key(root, answer.key, answer.proof))
    proving = each(lambda answer: tree.prove(answer.key))
    resolving = each(lambda answer: coregw.verify_resolve(answer.request, answer.result))
    many = best(lambda: coregw.verify_key_many(root, pairs), rounds=60) * 1e6 / LOOKUPS  # both cores must be free once
    rows: tuple[tuple[str, float, report.Better, float | None, str], ...] = (
        ("verify_key_many: rate / that of one Rust thread", one_thread / many, "higher", 1.5, "needs idle cores"),
        ("verify_resolve on JSON / verify_key", resolving / verifying, "lower", 3.0, ""),
        ("verify_key / the same in Rust", verifying / one_thread, "lower", None, ""),
        ("prove / verify_key", proving / verifying, "lower", None, ""),
    )
    for name, value, better, bar, note in rows:
        # What two cores do at once depends on what else runs on them; the others compare one thread with itself.
        is_guarded = bar is not None and better == "lower"
        figures.add(f"{name}, {arcs:,} arcs", value, series="Python, random hex", better=better, bar=bar,
                    guarded=is_guarded, note=note)  # fmt: skip
    for name, value in (("verify_key", verifying), ("prove", proving), ("verify_resolve", resolving)):
        figures.add(name, value, "µs", series="Python, random hex", recorded=False)


def main() -> None:
    """Measures, prints and records."""
    parser = report.parser(__doc__)
    parser.add_argument("--huge", action="store_true", help=f"also {HUGE[0]:,} arcs: many minutes and 12 GiB")
    args: argparse.Namespace = parser.parse_args()
    sizes = QUICK if args.quick else FULL + (HUGE if args.huge else ())
    notes = (
        "One thread and SHA-256; the best time of each side counts.",
        "Hashing a proof puts each digest into the next string; side by side: as if no string had another's digest.",
    )
    figures = report.Report("core", "The core beside bare hashing and sorting", args, notes)
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
