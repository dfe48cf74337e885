"""Differential fuzzing of the verifier in TypeScript against the one in Rust.

Honest proofs, edited proofs, and proofs of trees that no honest writer makes go to both. They must accept the same, and
give the same answers. ``make fuzz ARGS=js`` runs it for a while; ``test_differential.py`` for a fixed number of cases.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

import hostile_trees

import coregw
import diff_model

ANSWERS = Path(__file__).parents[2] / "js" / "build" / "answers.js"
SEGMENTS = ["a", "b", "aa", "ab", "docs", "x\0y", "\0", "é", "日本", "\x7f", "0", "1", "10", "@payload", "."]
TARGETS = [coregw.payload_cid(b"%d" % number) for number in range(4)] + ["bafkqaaa", coregw.Map({}).root]


class Question(NamedTuple):
    """A question for both verifiers: as JSON for Node, and as a call of the extension, which is told Node's answer."""

    kind: str
    sent: dict[str, Any]
    call: Callable[[Any], object]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def path(rng: random.Random) -> list[str]:
    return [rng.choice(SEGMENTS) for _ in range(rng.choice([1, 1, 2, 2, 3]))]


def edited(rng: random.Random, proof: bytes) -> bytes:
    """A proof as it is, or with some random edits."""
    data = bytearray(proof)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                data.insert(at, rng.choice([0, 1, 2, 3, 0x12, rng.randrange(256)]))
            case 3:
                del data[at : at + rng.choice([1, 1, 33])]
            case 4:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case _:
                data = data[:at]
    return bytes(data)


class Generator:
    """Random questions from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def questions(self) -> Iterator[Question]:
        makers = [self.map_key, self.map_keys, self.map_scan, self.map_changes, self.element, self.range]
        makers += [self.list_changes, self.diff, self.hostile_map, self.hostile_map, self.hostile_list, self.cid]
        makers += [self.operation, self.operation]
        while True:
            yield self.rng.choice(makers)()

    def arcs(self) -> dict[str, str]:
        count = self.rng.choice([0, 1, 2, 3, 8, 30])
        return {"/".join(path(self.rng)): self.rng.choice(TARGETS) for _ in range(count)}

    def suite(self) -> Any:  # noqa: ANN401 - a literal
        return self.rng.choice(["sha2-256", "blake3"])

    def some_path(self, arcs: dict[str, str]) -> list[str]:
        return self.rng.choice([*arcs]).split("/") if arcs and self.rng.random() < 0.6 else path(self.rng)

    def window(self, arcs: dict[str, str]) -> tuple[list[str], list[str] | None, int]:
        rng = self.rng
        prefix = self.some_path(arcs)[: rng.randrange(3)]
        after = self.some_path(arcs) if rng.random() < 0.4 else None
        if after is not None and rng.random() < 0.8:
            after = [*prefix, *after]
        return prefix, after, rng.choice([1, 2, 3, 10, 1000])

    def about(self, kind: str, root: str, proof: bytes, **members: Any) -> Question:  # noqa: ANN401
        """A question about one proof of a map or list; `members` are the query's."""
        sent = {"kind": kind, "root": root, "proof": b64(proof), **members}
        calls: dict[str, Callable[[], object]] = {
            "key": lambda: coregw.verify_key(root, members["path"], proof),
            "keys": lambda: coregw.verify_keys(root, members["paths"], proof),
            "index": lambda: [*coregw.verify_index(root, members["index"], proof)],
            "range": lambda: coregw.verify_range(root, members["start"], members["end"], proof)._asdict(),
            "scan": lambda: shown(
                coregw.verify_scan(root, members["prefix"], members["after"], members["limit"], proof)
            ),
            "changes": lambda: coregw.verify_changes(root, changes(members["changes"]), proof),
        }
        return Question(kind, sent, lambda _: calls[kind]())

    def map_key(self) -> Question:
        arcs = self.arcs()
        tree = coregw.Map(arcs, suite=self.suite())
        asked = self.some_path(arcs)
        proof = tree.prove(asked if self.rng.random() < 0.9 else path(self.rng))
        return self.about("key", tree.root, edited(self.rng, proof), path=asked)

    def map_keys(self) -> Question:
        arcs = self.arcs()
        tree = coregw.Map(arcs, suite=self.suite())
        asked = [self.some_path(arcs) for _ in range(self.rng.randrange(1, 6))]
        distinct = [list(each) for each in {tuple(each) for each in asked}]
        return self.about("keys", tree.root, edited(self.rng, tree.prove_keys(distinct)), paths=asked)

    def map_scan(self) -> Question:
        arcs = self.arcs()
        tree = coregw.Map(arcs, suite=self.suite())
        prefix, after, limit = self.window(arcs)
        try:
            proof = tree.scan(prefix, after, limit).proof
        except coregw.CoregwError:
            proof = b"\0"
        return self.about("scan", tree.root, edited(self.rng, proof), prefix=prefix, after=after, limit=limit)

    def map_changes(self) -> Question:
        arcs, rng = self.arcs(), self.rng
        tree = coregw.Map(arcs, suite=self.suite())
        made = []
        for each in {"/".join(self.some_path(arcs)) for _ in range(rng.randrange(1, 6))}:
            before = arcs.get(each) if rng.random() < 0.95 else rng.choice(TARGETS)
            made.append({"path": each, "before": before, "after": rng.choice([None, *TARGETS])})
        try:
            proof = tree.apply(changes(made)).proof
        except coregw.CoregwError:
            proof = tree.prove_keys([each["path"] for each in made])
        return self.about("changes", tree.root, edited(rng, proof), changes=made)

    def elements(self) -> coregw.List:
        count = self.rng.choice([0, 1, 2, 3, 5, 8, 13, 40])
        sizes = [self.rng.choice([1, 1, 2, 1000, 2**40]) for _ in range(count)]
        return coregw.List([self.rng.choice(TARGETS) for _ in range(count)], sizes, suite=self.suite())

    def element(self) -> Question:
        tree = self.elements()
        index = self.rng.randrange(len(tree) + 2)
        return self.about("index", tree.root, edited(self.rng, tree.prove(index)), index=index)

    def range(self) -> Question:
        tree = self.elements()
        start = self.rng.randrange(tree.total_size + 3)
        end = self.rng.choice([None, start, start + 1, start + self.rng.randrange(5000), self.rng.randrange(2**42)])
        return self.about("range", tree.root, edited(self.rng, tree.prove_range(start, end)), start=start, end=end)

    def list_changes(self) -> Question:
        rng, tree = self.rng, self.elements()
        length = len(tree)
        indices = {rng.randrange(length) for _ in range(rng.randrange(3))} if length else set()
        made: list[dict[str, Any]] = [
            {"index": i, "before": tree[i], "after": rng.choice(TARGETS), "size": rng.choice([1, 7])} for i in indices
        ]
        if rng.random() < 0.5:
            for i in range(length, length + rng.randrange(4)):
                made.append({"index": i, "before": None, "after": rng.choice(TARGETS), "size": rng.choice([1, 9])})
        else:
            for i in range(length - min(length, rng.randrange(4)), length):
                made = [each for each in made if each["index"] != i]
                made.append({"index": i, "before": tree[i], "after": None, "size": 1})
        if made and rng.random() < 0.1:
            made[rng.randrange(len(made))]["before"] = rng.choice([None, *TARGETS])
        try:
            proof = tree.apply(changes(made)).proof
        except coregw.CoregwError:
            proof = tree.prove(0)
        rng.shuffle(made)
        return self.about("changes", tree.root, edited(rng, proof), changes=made)

    def diff(self) -> Question:
        rng, a = self.rng, self.arcs()
        b = {key: value for key, value in a.items() if rng.random() < 0.8} | (self.arcs() if rng.random() < 0.6 else {})
        prefix, after, limit = self.window(a | b)
        honest: Any = {"entries": [], "more": False, "proofs": {"a": "AA==", "b": "AA=="}}
        if after is None or after[: len(prefix)] == prefix:
            honest = diff_model.answer(a, b, prefix, after, limit)
        proofs = tuple(edited(rng, base64.b64decode(honest["proofs"][side])) for side in "ab")
        return self.about_diff((coregw.Map(a).root, coregw.Map(b).root), proofs, (prefix, after, limit), honest)

    def about_diff(
        self,
        roots: tuple[str, str],
        proofs: tuple[bytes, ...],
        window: tuple[list[str], list[str] | None, int],
        honest: dict[str, Any],
    ) -> Question:
        """A question about a diff. The extension checks a whole response: Node's answer, or the honest one."""
        prefix, after, limit = window
        shown = [b64(each) for each in proofs]
        sent = {"kind": "diff", "a": roots[0], "b": roots[1], "prefix": prefix, "after": after, "limit": limit}

        def call(theirs: dict[str, Any] | None) -> object:
            response = json.dumps((theirs or honest) | {"proofs": dict(zip("ab", shown, strict=True))})
            coregw.verify_diff(*roots, response, prefix, after, limit)
            return theirs

        return Question("diff", sent | {"proofs": shown}, call)

    def hostile_map(self) -> Question:
        """A question about a tree that no honest writer makes: the root is that of whatever the proof shows."""
        rng = self.rng
        trees = [hostile_trees.a_map(rng) for _ in range(2)]
        root, proof = trees[0]
        asked = hostile_trees.a_path(rng)
        match rng.randrange(5):
            case 0 | 1:
                return self.about("key", root, proof, path=asked)
            case 2:
                return self.about("keys", root, proof, paths=[hostile_trees.a_path(rng) for _ in range(3)])
            case 3:
                prefix = asked[: rng.randrange(2)]
                return self.about("scan", root, proof, prefix=prefix, after=None, limit=rng.choice([1, 2, 100]))
            case _:
                both = (root, trees[1][0]), (proof, trees[1][1])
                return self.about_diff(
                    *both, (asked[: rng.randrange(2)], None, rng.choice([1, 2, 100])), {"entries": [], "more": False}
                )

    def hostile_list(self) -> Question:
        rng = self.rng
        root, proof = hostile_trees.a_list(rng)
        if rng.random() < 0.5:
            return self.about("index", root, proof, index=rng.randrange(6))
        return self.about("range", root, proof, start=rng.randrange(9), end=rng.choice([None, 3, 100, 2**52]))

    def cid(self) -> Question:
        rng = self.rng
        made = coregw.Cid(rng.choice(TARGETS))
        data = bytearray(bytes(made))
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] = rng.randrange(256)
        text = rng.choice(["f", "b", "k", "z", "m", "u", "F", "B", "Q"])
        text += data.hex() if text == "f" else base64.b32encode(data).decode().rstrip("=").lower()
        if rng.random() < 0.3:
            text = "m" + b64(bytes(data)).rstrip("=")
        return Question("cid", {"kind": "cid", "cid": text}, lambda _: coregw.Cid(text).text)

    def operation(self) -> Question:
        """A scan's or a map proof's result as text, with random edits of the text."""
        rng, arcs = self.rng, self.arcs()
        tree = coregw.Map(arcs)
        asked = self.some_path(arcs)
        target = arcs.get("/".join(asked))
        root = {"/": tree.root}
        joined = "/".join(asked)
        kind = "map_absence" if target is None else "payload_binding" if joined == "@payload" else "map_step"
        step = {"kind": kind, "from": root, "target": target and {"/": target}, "path": joined}
        step |= {"evidence_kind": "tree", "evidence_backend": "sha2-256", "proof": b64(tree.prove(asked))}
        profile = "core.map-proof/v0alpha1"
        request = json.dumps({"profile": profile, "root": tree.root, "key": asked})
        result: dict[str, Any] = {"profile": profile, "present": target is not None}
        if target is not None:
            result["target"] = target
        result["prooflist"] = {"root": root, "query": joined, "steps": [step]}
        text = json.dumps(result, ensure_ascii=rng.random() < 0.5)
        for _ in range(rng.choice([0, 0, 1])):
            at = rng.randrange(len(text))
            new = rng.choice(["", " ", '"', ",", "{", "}", "0", "\\u0061", "null", "1.0", "\n", text[at] * 2, "=", "A"])
            text = text[:at] + new + text[at + rng.choice([0, 1]) :]
        sent = {"kind": "map_proof", "request": request, "result": text}
        return Question("map_proof", sent, lambda _: coregw.verify_map_proof(request, text))


def changes(made: list[dict[str, Any]]) -> list[coregw.Change]:
    return [
        coregw.Change(each.get("path", each.get("index")), each["before"], each["after"], each.get("size"))
        for each in made
    ]


def shown(scan: coregw.Scan) -> dict[str, Any]:
    return {"entries": [[list(key), target] for key, target in scan.entries], "more": scan.more}


def ours(question: Question, theirs: dict[str, Any]) -> dict[str, object]:
    """The answer of the verifier in Rust; which class of error it raises is not compared."""
    try:
        return {"answer": json.loads(json.dumps(question.call(theirs.get("answer"))))}
    except coregw.CoregwError:
        return {"refused": True}


class Disagreement(AssertionError):
    """The two verifiers answer differently."""


def run(seed: int, count: int | None, seconds: float | None = None) -> Counter[str]:
    """Put questions to both verifiers. Returns how many of each kind were accepted and refused.

    Raises:
        Disagreement: If they answer one of them differently; the message has the question.
    """
    outcomes: Counter[str] = Counter()
    end = None if seconds is None else time.monotonic() + seconds
    questions = Generator(seed).questions()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(["node", ANSWERS], **pipes) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        done = 0
        while (count is None or done < count) and (end is None or time.monotonic() < end):
            batch = [next(questions) for _ in range(50)]
            node.stdin.write("".join(json.dumps(each.sent) + "\n" for each in batch))
            node.stdin.flush()
            for each in batch:
                theirs = json.loads(node.stdout.readline())
                expected = ours(each, theirs)
                if {name: value for name, value in theirs.items() if name != "error"} != expected:
                    raise Disagreement(f"seed {seed}: {json.dumps(each.sent)}\nRust: {expected}\nTypeScript: {theirs}")
                outcomes[f"{each.kind} {'accepted' if 'answer' in expected else 'refused'}"] += 1
            done += len(batch)
        node.stdin.close()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    for outcome, number in sorted(run(arguments.seed, None, arguments.seconds).items()):
        print(f"{outcome:24}{number:8}")


if __name__ == "__main__":
    main()
