"""IPFS clients of others read from a gateway: ipfsspec, and boxo's remote backends.

`make test-ipfs` installs them; without them, these tests are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import serving
from car_files import block, cid, header

FOLDER = Path(__file__).parent

pytestmark = pytest.mark.skipif(not os.environ.get("COREGW_TEST_IPFS"), reason="run by `make test-ipfs`")

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
    answer = httpx2.post(f"{url}/v1/car", content=car, headers={"content-type": "application/vnd.ipld.car; version=1"})
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
