"""IPFS clients of others read from a gateway: ipfsspec, boxo's remote backends, and Helia's verified-fetch.

`make test-clients ARGS=ipfs` installs them; without them, these tests are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving
from car_files import TYPE, block, cid, header, varint

FOLDER = Path(__file__).parent
TOOLS = os.environ.get("COREGW_TEST_IPFS", "")
"""A folder with the npm packages of `fetch/package.json`."""

pytestmark = pytest.mark.skipif(not TOOLS, reason="run by `make test-clients ARGS=ipfs`")

LEAF = b"the bytes of a leaf\n" * 50
FILE = b"a file in one block"
UNIXFS = b"\x08\x02\x12" + bytes([len(FILE)]) + FILE + b"\x18" + bytes([len(FILE)])
NODE = b"\x0a" + bytes([len(UNIXFS)]) + UNIXFS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving.process(tmp_path_factory.mktemp("ipfs") / "data", allow_origin="*") as running:
        yield running.url


@pytest.fixture(scope="module")
def contents(url: str) -> dict[str, bytes]:
    """CIDs, and the bytes of the files that they name: a raw leaf, and a UnixFS file that a CAR of others has."""
    leaf = httpx2.post(f"{url}/v1/cas", content=LEAF).json()["cid"]
    name = cid(0x70, NODE)
    car = header(name) + block(name, NODE)
    answer = httpx2.post(f"{url}/v1/car", content=car, headers=TYPE)
    return {leaf: LEAF, answer.json()["roots"][0]: FILE}


def run(*command: object, folder: Path) -> list[str]:
    """Run a command in a folder. Returns the lines that it prints, sorted."""
    done = subprocess.run(
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def required(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def test_ipfsspec_reads_files_and_their_sizes(url: str, contents: dict[str, bytes]) -> None:
    ipfsspec = pytest.importorskip("ipfsspec")
    filesystem = ipfsspec.AsyncIPFSFileSystem(gateway_addr=url)
    leaf, file = contents
    assert filesystem.info(leaf) | {"name": ""} == {"name": "", "CID": leaf, "type": "file", "size": len(LEAF)}
    assert filesystem.cat_file(leaf, 3, 20) == LEAF[3:20]
    with filesystem.open(leaf) as opened:
        assert hashlib.sha256(opened.read()).digest() == hashlib.sha256(LEAF).digest()
    assert (filesystem.info(file)["type"], filesystem.info(file)["size"]) == ("file", len(FILE))
    with pytest.raises(FileNotFoundError):
        filesystem.info("bafkreifbsvjq6fxk7zqbmzspcvtttrrattst7drz3va3ug74de3qziszsu")


def test_boxo_reads_cars_and_blocks(url: str, contents: dict[str, bytes], tmp_path: Path) -> None:
    program = tmp_path / "read"
    run(required("go"), "build", "-mod=readonly", "-o", program, ".", folder=FOLDER / "go")
    blocks = {name: NODE if data == FILE else data for name, data in contents.items()}
    assert run(program, url, *contents, folder=tmp_path) == sorted(
        f"{backend}-{what} {name} {shown[name].hex()}"
        for backend in ("cars", "blocks")
        for what, shown in (("all", contents), ("block", blocks))
        for name in contents
    )


def node() -> str:
    """Node.js from its npm package: Helia needs a newer one than Debian has."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    packaged = Path(TOOLS) / "node_modules" / f"node-{sys.platform}-{machine}" / "bin" / "node"
    return str(packaged) if packaged.is_file() else required("node")


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field of Protocol Buffers."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def chunked_file(*chunks: bytes) -> bytes:
    """The dag-pb node of a UnixFS file of raw leaves."""
    sizes = b"".join(b"\x20" + varint(len(each)) for each in chunks)
    about = b"\x08\x02\x18" + varint(sum(map(len, chunks))) + sizes
    links = (field(1, cid(0x55, each)) + field(2, b"") + b"\x18" + varint(len(each)) for each in chunks)
    return b"".join(field(2, link) for link in links) + field(1, about)


def test_verified_fetch_reads_files_blocks_and_cars(url: str, contents: dict[str, bytes], tmp_path: Path) -> None:
    second = b"the second leaf"
    root = chunked_file(LEAF, second)
    uploaded = header(cid(0x70, root)) + block(cid(0x70, root), root) + block(cid(0x55, second), second)
    [chunked] = httpx2.post(f"{url}/v1/car", content=uploaded, headers=TYPE).json()["roots"]
    leaf, single = contents
    text, octets, raw = "text/plain; charset=utf-8", "application/octet-stream", "application/vnd.ipld.raw"
    car = "application/vnd.ipld.car"
    of_leaf = header(cid(0x55, LEAF)) + block(cid(0x55, LEAF), LEAF)
    over_the_border = slice(len(LEAF) - 2, len(LEAF) + 3)
    expected: list[tuple[str, dict[str, str], int, str, bytes]] = [
        (leaf, {}, 200, text, LEAF),
        (leaf, {"range": "bytes=3-19"}, 206, octets, LEAF[3:20]),
        (leaf, {"accept": raw}, 200, raw, LEAF),
        (leaf, {"accept": car}, 200, f"{car}; version=1; order=unk; dups=y", of_leaf),
        (single, {}, 200, text, FILE),
        (single, {"accept": raw}, 200, raw, NODE),
        (chunked, {}, 200, text, LEAF + second),
        (chunked, {"range": f"bytes={len(LEAF) - 2}-{len(LEAF) + 2}"}, 206, octets, (LEAF + second)[over_the_border]),
    ]
    shutil.copy(FOLDER / "fetch" / "read.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (tmp_path / "node_modules").symlink_to(Path(TOOLS) / "node_modules")
    requests = [json.dumps([f"ipfs://{name}", headers]) for name, headers, *_ in expected]
    shown = [json.loads(line) for line in run(node(), "read.js", url, *requests, folder=tmp_path)]
    assert sorted(shown) == sorted([f"ipfs://{name}", *answer, body.hex()] for name, _, *answer, body in expected)
