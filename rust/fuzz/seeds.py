# ruff: noqa: INP001 - a script, not a package
"""Seed corpora of the fuzz targets, made from the test vectors."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent.parent / "tests" / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of one vector file."""
    found: list[dict[str, Any]] = json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
    return found


def write(target: str, name: str, data: bytes) -> None:
    """Write one input to the corpus of a target."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def lines() -> None:
    """Write lines of arcs in both formats, short ones and very long ones."""
    cid = "bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi"
    kinds = (f'["a/b","{cid}"]\r\n', f"a/b\t{cid}\n", f' [ "\\u00e9" , "{cid}" ]\n\n', f"x\ty\t{cid}")
    for i, line in enumerate(kinds):
        for longer in (0, 2):
            write("lines", f"{i}-{longer}", bytes([i % 2 | longer, 7]) + (line * 3).encode())


def front() -> None:
    """Write connections of HTTP/1, paths and fields, each after the byte that says what it is."""
    head = b"POST /v1/resolve HTTP/1.1\r\nHost: a\r\n"
    fields = (b"Content-Length: 2\r\n\r\n{}", b'Transfer-Encoding: chunked\r\n\r\n2;x="y"\r\n{}\r\n0\r\nT: x\r\n\r\n')
    inputs = [(0, head + each + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") for each in fields]
    inputs += [(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (1, b'"tag", W/"b"'), (1, b"bytes=0-1"), (1, b"-5:*")]
    inputs += [(2, b'application/json; charset="utf-8"text/*;q=0.5, */*'), (3, b"localhost:80https://app.example.org")]
    inputs += [(4, b"path=a%2Fb&index=12"), (5, b"/v1//%72esolve/x"), (5, b"/v1/cas/car"), (5, b"/v1/pages/00")]
    for i, (kind, data) in enumerate(inputs):
        for at in (0, 8, 34):
            write("front", f"{i}-{at}", bytes([kind, 7, at]) + data)


def main() -> None:
    """Write the corpora of all targets."""
    for name in ("proofs.json", "scans.json", "transitions.json", "hostile.json"):
        for i, case in enumerate(cases(name)):
            proof = bytes.fromhex(case["proof"]) if "proof" in case else b""
            if proof:
                how = (case.get("suite") == "blake3") | (2 if proof[0] >= 0x10 else 0)
                write("proofs", f"{name}-{i}", bytes([how, 0, 1, 2, 3, 0, 1, 2, 3]) + proof)
    for i, case in enumerate(cases("operations.json")[::5]):
        request, result = (json.dumps(case[member], ensure_ascii=False).encode() for member in ("request", "result"))
        write("json", f"operation-{i}", request + b"\xff" + result)
        write("json", f"request-{i}", request)
    # The empty map: its block is the byte 00; its root CID has the codec 0x303110 and the SHA-256 of that byte.
    root = bytes.fromhex("0190e2c0011220") + hashlib.sha256(b"\0").digest()
    header = b"\xa2eroots\x81\xd8\x2a\x58\x28\0" + root + b"gversion\x01"
    write("car", "empty-map", b"\x10" + bytes([len(header)]) + header + bytes([len(root) + 1]) + root + b"\0")
    for name in ("keys.json", "payloads.json"):
        for i, case in enumerate(cases(name)):
            write("identifiers", f"{name}-{i}", "/".join(case.get("segments", [case.get("cid", "")])).encode())
    for i, case in enumerate(cases("folders.json")):
        if "record" in case:
            write("identifiers", f"record-{i}", bytes.fromhex(case["record"]))
    lines()
    front()
    # The longest key, with a node at every bit of it: its proof is the longest there is.
    write("long", "longest", bytes([0, 0, 1, 0, 1, 0, 0, 36]))
    # The other targets make trees and requests of their input; random bytes make small ones of every kind.
    dice = random.Random(1)  # noqa: S311 - seeded on purpose
    for target in ("cars", "changes", "forged", "long", "mutations", "pages", "payloads", "results", "stored"):
        for i in range(40):
            write(target, f"random-{i}", dice.randbytes(dice.choice((20, 60, 200, 600))))


if __name__ == "__main__":
    main()
