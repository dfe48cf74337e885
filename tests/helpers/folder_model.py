"""A slow model of protocol section 7, written from that page alone. Run this file to write the vectors.

It has its own CBOR, its own keys and its own trees; nothing of coregw is imported.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors" / "folders.json"
MAP_HEAD = bytes.fromhex("01 90 e2 c0 01 12 20")


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    for info, length in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * length:
            return bytes([major << 5 | info]) + number.to_bytes(length, "big")
    raise ValueError(number)


def cbor(value: Any) -> bytes:  # noqa: ANN401 - any value of a record
    if value is True:
        return b"\xf5"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
    return head(5, len(value)) + b"".join(cbor(name) + cbor(value[name]) for name in names)


def target(record: bytes) -> bytes:
    """The CID of a record."""
    if len(record) <= 128:
        return b"\x01\x71\x00" + varint(len(record)) + record
    return b"\x01\x71\x12\x20" + hashlib.sha256(record).digest()


def payload(data: bytes) -> bytes:
    return b"\x01\x55\x12\x20" + hashlib.sha256(data).digest()


def text(cid: bytes) -> str:
    digits = "abcdefghijklmnopqrstuvwxyz234567"
    bits = "".join(f"{byte:08b}" for byte in cid)
    bits += "0" * (-len(bits) % 5)
    return "b" + "".join(digits[int(bits[at : at + 5], 2)] for at in range(0, len(bits), 5))


def key(path: str) -> bytes:
    return b"\0\1".join(segment.encode().replace(b"\0", b"\0\xff") for segment in path.split("/")) + b"\0\0"


def top(arcs: list[tuple[str, bytes]]) -> tuple[int, bytes]:
    """The count and the digest of the map of these arcs, which are distinct, in key order and at least one."""
    if len(arcs) == 1:
        path, cid = arcs[0]
        leaf = b"\1" + varint(len(key(path))) + key(path) + varint(len(cid)) + cid
        return 1, hashlib.sha256(leaf).digest()
    first, last = ("".join(f"{byte:08b}" for byte in key(path)) for path, _ in (arcs[0], arcs[-1]))
    bit = next(at for at in range(len(first)) if first[at] != last[at])
    prefix = first[:bit] + "0" * (-bit % 8)
    sides: tuple[list[tuple[str, bytes]], ...] = ([], [])
    for path, cid in arcs:
        sides[key(path)[bit // 8] >> (7 - bit % 8) & 1].append((path, cid))
    children = [top(side) for side in sides]
    node = b"\2" + varint(bit) + bytes(int(prefix[at : at + 8], 2) for at in range(0, len(prefix), 8))
    node += b"".join(varint(count) + digest for count, digest in children)
    return len(arcs), hashlib.sha256(node).digest()


def root(arcs: dict[str, bytes]) -> bytes:
    digest = top(sorted(arcs.items(), key=lambda arc: key(arc[0])))[1] if arcs else hashlib.sha256(b"\0").digest()
    return MAP_HEAD + digest


def folder(files: dict[str, bytes], records: dict[str, dict[str, Any]]) -> tuple[bytes, bytes | None]:
    """The root of a folder, and that of its attributes, given the files' targets and the records."""
    attributes = root({path: target(cbor(record)) for path, record in records.items()}) if records else None
    return root(files if attributes is None else {**files, ".coregw/attributes": attributes}), attributes


GEAR = [int.from_bytes(hashlib.md5(bytes([byte]) * 64).digest()[:8], "big") for byte in range(256)]  # noqa: S324


def cut(rest: bytes) -> int:
    """The length of the first chunk of the rest of a file that is longer than 256 KiB."""
    length = min(len(rest), 256 << 10)
    if length <= 16 << 10:
        return length
    value = 0
    usual = min(64 << 10, length) // 2 * 2
    for at in range(16 << 10, length // 2 * 2):
        value = (2 * value + GEAR[rest[at]]) % 2**64
        if value & (0x0000D90703537000 if at < usual else 0x0000D90F03530000) == 0:
            return at
    return length


def chunks(data: bytes) -> list[bytes]:
    """The chunks of a file."""
    if len(data) <= 256 << 10:
        return [data]
    found, start = [], 0
    while start < len(data):
        found.append(data[start : start + cut(data[start : start + (256 << 10)])])
        start += len(found[-1])
    return found


RECORDS: list[dict[str, Any]] = [
    {"mode": 0o644},
    {"mode": 0},
    {"mode": 0o7777, "size": 2**53 - 1, "mtime": 2**63 - 1},
    {"size": 0},
    {"size": 23},
    {"size": 24},
    {"size": 255},
    {"size": 256},
    {"size": 65_535},
    {"size": 65_536},
    {"size": 2**32 - 1},
    {"size": 2**32},
    {"mtime": 0},
    {"mtime": -1},
    {"mtime": -(2**63)},
    {"mtime": 1_700_000_000_123_456_789, "mode": 0o755, "size": 5},
    {"folder": True},
    {"folder": True, "mode": 0o1777, "mtime": 1},
    {"link": b"go"},
    {"link": b"../\xff\xfe", "mtime": 1},
    {"link": b"/etc/passwd"},
    {"link": b"x" * 120},  # 128 bytes: the longest that an identity CID holds
    {"link": b"x" * 121},
    {"link": b"x" * 4095},
    {"uid": 0, "gid": 0},
    {"uid": 2**32 - 1, "gid": 1000, "mode": 0o600},
    {"xattrs": {"user.b": b"", "user.a": b"\0", "user.long": b"y" * 300}},
    {"folder": True, "xattrs": {"é": b"1", "zz": b"2", "a": b"3"}},
]

# Records that a reader refuses, each for one reason.
BAD: list[tuple[str, bytes]] = [
    ("no record at all", b""),
    ("nothing is known", cbor({})),
    ("not a map", cbor(b"")),
    ("an unknown member", cbor({"mode": 1, "colour": 2})),
    ("members in another order", b"\xa2" + cbor("size") + cbor(1) + cbor("mode") + cbor(1)),
    ("a member twice", b"\xa2" + (cbor("mode") + cbor(1)) * 2),
    ("a number not in its shortest form", b"\xa1" + cbor("mode") + b"\x18\x01"),
    ("a length not in its shortest form", b"\xa1\x78\x04mode\x01"),
    ("a count not in its shortest form", b"\xb8\x01" + cbor("mode") + cbor(1)),
    ("an indefinite length", b"\xbf" + cbor("mode") + cbor(1) + b"\xff"),
    ("bytes after the record", cbor({"mode": 1}) + b"\0"),
    ("fewer members than counted", b"\xa2" + cbor("mode") + cbor(1)),
    ("a mode of 13 bits", cbor({"mode": 0o10000})),
    ("a mode past 16 bits", cbor({"mode": 65_536 + 0o644})),
    ("a negative mode", cbor({"mode": -1})),
    ("a mode of a link", cbor({"link": b"go", "mode": 0o777})),
    ("a size of a link", cbor({"link": b"go", "size": 2})),
    ("a size of a folder", cbor({"folder": True, "size": 2})),
    ("a size of 2^53", cbor({"size": 2**53})),
    ("a time of 2^63", cbor({"mtime": 2**63})),
    ("a time of -2^63 - 1", cbor({"mtime": -(2**63) - 1})),
    ("a link as text", cbor({"link": "go"})),
    ("an empty link", cbor({"link": b""})),
    ("a link with a NUL", cbor({"link": b"a\0b"})),
    ("a link of 4,096 bytes", cbor({"link": b"x" * 4096})),
    ("a link that is a folder", cbor({"link": b"go", "folder": True})),
    ("a folder that is false", b"\xa1" + cbor("folder") + b"\xf4"),
    ("a folder that is 1", cbor({"folder": 1})),
    ("a user without a group", cbor({"uid": 0})),
    ("a group without a user", cbor({"gid": 0})),
    ("a user of 2^32", cbor({"uid": 2**32, "gid": 0})),
    ("no extended attributes", cbor({"xattrs": {}})),
    (
        "extended attributes in another order",
        b"\xa1" + cbor("xattrs") + b"\xa2" + cbor("b") + b"\x40" + cbor("a") + b"\x40",
    ),
    ("an extended attribute twice", b"\xa1" + cbor("xattrs") + b"\xa2" + (cbor("a") + b"\x40") * 2),
    ("an extended attribute without a name", cbor({"xattrs": {"": b"1"}})),
    ("an extended attribute with a NUL in its name", cbor({"xattrs": {"a\0": b"1"}})),
    ("the name of an extended attribute of 256 bytes", cbor({"xattrs": {"a" * 256: b"1"}})),
    ("the value of an extended attribute as text", cbor({"xattrs": {"a": "1"}})),
    ("the name of an extended attribute that is not UTF-8", b"\xa1" + cbor("xattrs") + b"\xa1\x61\xff\x40"),
]

FOLDERS: list[tuple[dict[str, bytes], dict[str, dict[str, Any]]]] = [
    ({}, {}),
    ({"a": b"1"}, {}),
    ({}, {"empty": {"folder": True, "mode": 0o755, "mtime": 0}}),
    ({"bin/go": b"hello", "readme": b""}, {"bin/go": {"mode": 0o755}, "bin/now": {"link": b"go"}}),
    (
        {"bin/go": b"hello", "é/x\ty": b"2", "z": b"3"},
        {
            "bin": {"folder": True, "mode": 0o700, "mtime": 5},
            "bin/go": {"mode": 0o755, "size": 5, "mtime": 6},
            "bin/away": {"link": b"/" + b"x" * 300},
            "é/x\ty": {"mode": 0o4600, "size": 1, "mtime": -7},
            "z": {"mode": 0o644, "size": 1, "mtime": 8, "xattrs": {"user.note": b"n" * 200}},
        },
    ),
    ({}, {".coregw": {"folder": True, "mode": 0o700, "mtime": 0}}),
    (
        {"-": b"1", ".coregwignore": b"2", "a": b"3"},
        {
            "-": {"mode": 0o644, "size": 1, "mtime": 1},
            ".coregw": {"folder": True, "mode": 0o1777, "mtime": -1, "xattrs": {"user.note": b"n" * 200}},
            ".coregwignore": {"mode": 0o644, "size": 1, "mtime": 2},
            ".d": {"folder": True, "mode": 0o755, "mtime": 3},
        },
    ),
]


def shown(record: dict[str, Any]) -> dict[str, Any]:
    """A record in JSON: byte strings in base 16, numbers past 2^53 as text."""
    shown: dict[str, Any] = dict(record)
    if "link" in record:
        shown["link"] = record["link"].hex()
    if "mtime" in record:
        shown["mtime"] = str(record["mtime"])
    if "xattrs" in record:
        shown["xattrs"] = {name: value.hex() for name, value in record["xattrs"].items()}
    return shown


def cases() -> list[dict[str, Any]]:
    """All vectors."""
    records = [
        {"kind": "record", "members": shown(each), "record": cbor(each).hex(), "target": text(target(cbor(each)))}
        for each in RECORDS
    ]
    bad = [{"kind": "bad_record", "why": why, "record": record.hex()} for why, record in BAD]
    short, long = cbor({"mode": 1}), cbor({"link": b"x" * 121})
    others = [
        ("a short record that is a payload", short, b"\x01\x71\x12\x20" + hashlib.sha256(short).digest()),
        ("a long record by another hash", long, b"\x01\x71\x16\x20" + hashlib.sha3_256(long).digest()),
        ("another codec", short, b"\x01\x55\x00" + varint(len(short)) + short),
        ("another record's CID", long, target(cbor({"link": b"y" * 121}))),
    ]
    bad += [
        {"kind": "bad_target", "why": why, "record": record.hex(), "target": text(cid)} for why, record, cid in others
    ]
    folders = []
    for files, known in FOLDERS:
        top, attributes = folder({path: payload(data) for path, data in files.items()}, known)
        folders.append(
            {
                "kind": "folder",
                "files": {path: data.hex() for path, data in files.items()},
                "attributes": {path: shown(record) for path, record in known.items()},
                "root": text(top),
                "attributes_root": None if attributes is None else text(attributes),
            }
        )
    return records + bad + folders


def document() -> str:
    """The file of the vectors."""
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    return f'{{"spec":"docs/protocol.md","cases":[\n{lines}\n]}}\n'


if __name__ == "__main__":
    VECTORS.write_text(document(), "utf-8")
