# ruff: noqa: INP001 - a script beside the targets, not a package
"""Writes first inputs for the targets into `corpus`, out of the project's test vectors."""

import hashlib
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent.parent / "tests" / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file of vectors."""
    found: list[dict[str, Any]] = json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
    return found


def write(target: str, name: str, data: bytes) -> None:
    """Puts one input into a target's corpus."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def main() -> None:
    """Writes the inputs of `proofs`, `json` and `car`; empty folders for the others."""
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
    # The empty map: its block is 00, and its root's name the codec 0x303110 and that byte's SHA-256.
    root = bytes.fromhex("0190e2c0011220") + hashlib.sha256(b"\0").digest()
    header = b"\xa2eroots\x81\xd8\x2a\x58\x28\0" + root + b"gversion\x01"
    write("car", "empty-map", b"\x10" + bytes([len(header)]) + header + bytes([len(root) + 1]) + root + b"\0")
    for target in ("pages", "changes"):
        (HERE / "corpus" / target).mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()
