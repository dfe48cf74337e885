"""Installs the newest wheel of dist/ into a clean environment, and uses its client against its gateway.

With ``--verify``, installs nothing but the wheel, and verifies proofs: on platforms where there is no gateway.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
PLACE = TOP / "target" / "wheel"

USE = """
import sys
from pathlib import Path
import coregw
from coregw.filesystem import CoregwFileSystem
address, place, folder = sys.argv[1:]
assert Path(coregw.__file__).is_relative_to(place), coregw.__file__
from coregw.client import ClientSettings
with coregw.Client(address, ClientSettings(retry_seconds=60)) as client:  # the gateway may still be starting
    root = client.add(Path(folder), use_cache=False).root
    with client.open(root, "file") as file:
        assert file.read() == b"verified"
assert coregw.hash_tree(folder) == root
assert CoregwFileSystem(address).cat(f"{root}/file") == b"verified"
print(f"{Path(coregw._core.__file__).name}: the client of the wheel added, verified and read {root}")
"""

VERIFY = """
import importlib.metadata
import threading
import coregw
shipped = {file.name: file for file in importlib.metadata.files("coregw")}
assert "pyo3" in shipped["licenses.txt"].read_text()
assert "MIT" in shipped["LICENSE"].read_text()
cid = coregw.payload_cid(b"hello")
paths = [f"folder/{number}" for number in range(1000)]
tree = coregw.Map({path: cid for path in paths})
assert tree.root == "bagiofqabciqgmy6zr2zboqpxe5bxddxe4y6hlkvxxujzcvuejavfikxmntn2jhi", tree.root
def verify():
    assert set(coregw.verify_keys(tree.root, paths, tree.prove_keys(paths))) == {cid}
    assert coregw.verify_key(tree.root, "folder/x", tree.prove("folder/x")) is None
    try:
        coregw.verify_key(tree.root, paths[0], tree.prove(paths[1]))
    except coregw.ProofError:
        done.append(True)
done = []
threads = [threading.Thread(target=verify) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert len(done) == 8
print(f"{coregw._core.__file__}: built a tree, and verified and refused its proofs")
"""


def main() -> None:
    """Exits with an error if the wheel does not work."""
    wheels = sorted((TOP / "dist").glob("coregw-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit("dist/ has no wheel: make dist")
    shutil.rmtree(PLACE, ignore_errors=True)
    venv.create(PLACE, with_pip=True)
    python = PLACE / ("Scripts" if os.name == "nt" else "bin") / "python"
    if "--verify" in sys.argv:
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheels[-1]], check=True)
        subprocess.run([python, "-I", "-c", VERIFY], check=True)
        return
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheels[-1]}[cli,fsspec,server]"], check=True)
    subprocess.run([PLACE / "bin" / "coregw", "--version"], check=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "folder"
        folder.mkdir()
        (folder / "file").write_bytes(b"verified")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        serve = [PLACE / "bin" / "coregw", "serve", "--data", Path(temporary) / "data", "--port", port]
        with subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as gateway:
            try:
                subprocess.run([python, "-I", "-c", USE, f"http://127.0.0.1:{port}", PLACE, folder], check=True)
            finally:
                gateway.terminate()


if __name__ == "__main__":
    main()
