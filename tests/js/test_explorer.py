"""The explorer in headless Chromium, at a gateway and at static trees. `make test-clients ARGS=explorer` runs it."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.note import Note, Signer, load_private_key
from coregw.tlog.tree import leaf_hash
from static_trees import python_server

HOME = Path(__file__).parents[2]
CHROMIUM = os.environ.get("COREGW_TEST_BROWSER", "")
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}
SECONDS = 300

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="run by `make test-clients ARGS=explorer`")


def png(width: int, height: int) -> bytes:
    """An image of some colours."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (4 * x, 4 * y, 128)) for y in range(height))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows))]
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in [*parts, (b"IEND", b"")])


def write_folder(folder: Path) -> None:
    """A folder whose pages would notice if they were run, with a long file and a long directory."""
    files = {
        "readme.md": b"# Hello\n",
        "docs/page.html": b'<script>document.title = "run"</script>',
        "img/logo.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "run"</script></svg>',
        "img/colours.png": png(60, 40),
        "img/photographs.of.colours.txt": b"one line of a telephone's screen",
        "big.bin": random.Random(1).randbytes(700_000),
    }
    files |= {f"src/deep/{number:04}.txt": b"%d\n" % number for number in range(450)}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "link").symlink_to("readme.md")
    (folder / "hollow").mkdir()
    (folder / "links").mkdir()
    (folder / "links" / "out").symlink_to("../../out")
    (folder / "links" / "docs").symlink_to("../docs")
    (folder / "links" / "again").symlink_to("docs/.")
    (folder / "links" / "long").symlink_to(f"../{'x' * 200}")


def write_hostile_folder(folder: Path) -> None:
    """A folder whose names try to be more than names, with more files than one page of the listing shows."""
    names = ["<img src=x onerror=alert(1)>", "exe\u202etxt.doc", *(f"many {number:04}" for number in range(1700))]
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"x")
    (folder / "zzz").symlink_to("nowhere")


def create(gateway: str, paths: list[str]) -> str:
    """A map of empty payloads."""
    answer = httpx2.post(f"{gateway}/v1/roots", json={"arcs": dict.fromkeys(paths, "bafkqaaa")})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["root"])


def last_names() -> list[str]:
    """Paths below `d` with names that are the last ones that paths have room for, and a file with another below it."""
    last = "\U0010ffff"
    names = [f"{last}{number:04}" for number in range(1700)]
    longest = last * 1023 + "\u07ff"  # 4,096 bytes with `d/`
    return [*(f"d/{name}" for name in (*names, longest)), "e", "e/x", f"{last}/{last}"]


def coregw(*arguments: object) -> str:
    command = [sys.executable, "-m", "coregw", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving.process(tmp_path_factory.mktemp("explorer") / "data", serving.ADMIN) as process:
        yield process.url


def publish(gateway: str, root: str, name: str = "latest") -> None:
    body = {"name": name, "root": root}
    url = f"{gateway}/admin/v1/scopes/docs/roots"
    assert httpx2.post(url, json=body, headers=AUTHORIZATION).status_code == 200


def sign(gateway: str, folder: Path) -> tuple[str, str]:
    """Sign docs/signed. Gives the key, and a note by it for a history of the same length with other entries."""
    key = folder / "log.pem"
    vkey = coregw("key", key, "--name", "example.org/docs/signed")
    options = ("--key", key, "--origin", "example.org", "--gateway", gateway, "--token", serving.ADMIN_TOKEN)
    coregw("sign", "docs/signed", *options)
    signer = Signer("example.org/docs/signed", load_private_key(key.read_bytes(), "the key"))
    other = Checkpoint(signer.key.name, 2, leaf_hash(b"another history")).text()
    return vkey, Note(other, (signer.sign(other),)).encode()


def spoil(tree: Path) -> None:
    """Flip a bit in every page and payload."""
    for file in tree.glob("v1/*/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


def test_the_explorer_verifies_in_chromium(gateway: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "folder")
    root = coregw("add", tmp_path / "folder", "--gateway", gateway)
    (tmp_path / "folder" / "readme.md").write_bytes(b"# Before\n")
    (tmp_path / "folder" / "docs" / "page.html").unlink()
    before = coregw("add", tmp_path / "folder", "--gateway", gateway)
    write_hostile_folder(tmp_path / "hostile")
    hostile = coregw("add", tmp_path / "hostile", "--attributes", "whole", "--gateway", gateway)  # shown as any other
    hostile = coregw("update", hostile, "--set", "nested", root, "--gateway", gateway)
    large = create(gateway, [f"f{number:04}" for number in range(5000)])
    publish(gateway, before)
    publish(gateway, root)
    for each in (before, root):
        publish(gateway, each, "signed")
    key, fork = sign(gateway, tmp_path)
    tree = tmp_path / "tree"
    for each in (before, root):
        coregw("export", each, "--static", tree, "--explorer", "--gateway", gateway)
    record = httpx2.get(f"{gateway}/admin/v1/scopes/docs/roots/latest", headers=AUTHORIZATION).content
    (tree / "admin/v1/scopes/docs/roots").mkdir(parents=True, exist_ok=True)
    (tree / "admin/v1/scopes/docs/roots/latest").write_bytes(record)
    shutil.copytree(tree, tmp_path / "spoilt")
    spoil(tmp_path / "spoilt")
    shots = HOME / "target" / "explorer"
    shots.mkdir(parents=True, exist_ok=True)
    with python_server(tree) as static, python_server(tmp_path / "spoilt") as spoilt:
        given = {"gateway": f"{gateway}/", "root": root, "before": before, "name": "docs/latest"}
        given |= {"static": f"{static.removeprefix('static+')}/", "spoilt": f"{spoilt.removeprefix('static+')}/"}
        given |= {"large": large, "last": create(gateway, last_names())}
        given |= {"hostile": hostile, "signed": "docs/signed", "key": key, "fork": fork}
        given |= {"token": serving.ADMIN_TOKEN, "chromium": CHROMIUM}
        command = ["node", HOME / "js/build/explorer.js", json.dumps(given), shots]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
