"""What docs/versioning.md promises to keep forever: roots, proofs and files that were made by version 0.1.0.

The values here are never changed. A test that fails means that roots or proofs of users would not be found again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

import coregw
from coregw.client.static.export import export_static
from gateways import honest_gateway
from tables import rows
from vector_cases import load

# Number and digest of the first cases of each vector file. Cases are appended, and never changed or removed.
VECTORS = {
    "cids": (323, "ec9064da8be6ede50844c8c7cfcae43adc69e5cdf04bbfb296822ad90d6ed5f8"),
    "folders": (76, "bf93706b1d1cfdac438e064746a309501cf670fd75626f1a16991812fdf667c0"),
    "hostile": (288, "97a4d16083aba6602bb822c0e6fc5645a5b7b92d3650fd7c67a492d4b174af62"),
    "keys": (55, "de517d103be8aa6d56eecb2f492571e4b0807bb4783694ac0914f83b343de7d1"),
    "multiproofs": (473, "5bb3cb26232d7aff0ed4080c0f5f959f518b310413151cd483365f899775907a"),
    "notes": (713, "808301a5ae797fc89844426ee9679c93c9720d371dc097b4a07f4b33d89c2b0e"),
    "operations": (1250, "b575d312194553f6ce5f9f16c332f7d37608174daf50d8bda9636e72f1bf7a72"),
    "pages": (30, "f988de5a4987caeaaca324685d56239896b993ba7822c173c322a04c221085ed"),
    "payloads": (32, "27230750f3042b18adbe6301db0f4886be49210975c0c56d7348ce4dc02ce620"),
    "proofs": (960, "89b9f78c77554999a0933d615a193213ff34e536d6ce8014eb1f5f36a715148d"),
    "publications": (53, "06d3d9921aa24f32d20bafd72ab853c14cc76849490fde133b5ebd8993d7fa3d"),
    "roots": (50, "10b269e0c3c830dde5b7466ef734cb3718fa5ae88d4f055c6b7a0b81decf6d76"),
    "scans": (42, "a86200069506c58566bd05ded19cf90fa0eb1c7ddaa70958efa41c91e5cb6b76"),
    "transitions": (182, "8083481e48e2157fb14c9e794c1f857fea1ca15e61b64607e0cebb04fd239ca8"),
}


def digest(cases: object) -> str:
    text = json.dumps(cases, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@rows("name", VECTORS)
def test_vectors_are_only_added_to(name: str) -> None:
    count, expected = VECTORS[name]
    assert digest(load(name)[:count]) == expected


def folder(place: Path) -> Path:
    """A folder with a large file, which is cut into chunks, an empty one, a link and an empty folder."""
    made = place / "folder"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "empty").mkdir()
    stream = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(20_000))
    for name, data in {"large": stream, "deep/er/small": b"small", "nothing": b""}.items():
        (made / name).write_bytes(data)
    (made / "link").symlink_to("deep/er/small")
    for path in sorted(made.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o640)
        os.utime(path, ns=(1_700_000_000_123_456_789,) * 2, follow_symlinks=False)
    return made


FOLDERS = {
    "sha2-256, all": "bagiofqabciqcocjognj25bfbgvivn5cdmsmqudyvvppacazu6cljkjf2srhjjni",
    "sha2-256, none": "bagiofqabciqkjtbgjpyjnl4uomwtu42y6tkyj74gohtncslfn2ci7yv2meshs4q",
    "blake3, all": "bagi6fqabdyqis4nim5ps3hbdfybxzsxxoiou6gtgswot46unxjyz5kalnhcwxuy",
    "blake3, none": "bagi6fqabdyqhzhx4euwmx5yzx6ijlra3bzojms5cgz4vj37gewbeyiapb4afmja",
}


@pytest.mark.parametrize("options", FOLDERS)
def test_a_folder_keeps_its_root(options: str, tmp_path: Path) -> None:
    suite, attributes = options.split(", ")
    assert coregw.hash_tree(folder(tmp_path), suite=suite, attributes=attributes) == FOLDERS[options]


FILES = {
    "folder.car": "7cde16adc3b9c70b6d320d56bd0d23d7ee7d697db9163ee63f34c7a22f137c07",
    "static": "e24f8bde805ee38fbf7e76fdb78def8a4d1a206b8b8a039f8a547181a5bc52a1",
}
"""Digests of a CAR file and of a static tree: of the names and digests of its files, in order."""


def test_a_car_and_a_static_tree_keep_their_bytes(tmp_path: Path) -> None:
    made, car, static = folder(tmp_path), tmp_path / "folder.car", tmp_path / "static"
    with honest_gateway(tmp_path / "data") as address, coregw.Client(address) as client:
        root = client.add(made, use_cache=False).root
        client.export_car(root, car, payloads=True)
        asyncio.run(export_static(address, root, static))
    files = sorted(path for path in static.rglob("*") if path.is_file())
    listed = [[path.relative_to(static).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
    assert {car.name: hashlib.sha256(car.read_bytes()).hexdigest(), static.name: digest(listed)} == FILES
