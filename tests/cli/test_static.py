"""``coregw export --static``, and commands that read a static tree: what they print is what they print of a gateway."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import Result

from coregw.client import Client
from gateways import names
from static_trees import Sample, python_server, sample

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def held(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    with Client(gateway) as client:
        return sample(client, tmp_path_factory.mktemp("source"))


def test_a_static_tree_may_have_the_explorer(run: Run, held: Sample, tmp_path: Path) -> None:
    page = files("coregw") / "gateway" / "explorer"
    expected = {each.name: each.read_bytes() for each in page.iterdir()}
    assert run("export", held.root, "--static", tmp_path / "tree").exit_code == 0
    assert names(tmp_path / "tree") == ["v1"]
    for _ in range(2):
        assert run("export", held.root, "--static", tmp_path / "tree", "--explorer").exit_code == 0
        assert {each.name: each.read_bytes() for each in (tmp_path / "tree").iterdir() if each.is_file()} == expected
        (tmp_path / "tree" / "index.html").write_text("of an older version")
    assert run("export", "--static", tmp_path / "tree", "--check").exit_code == 0
    assert run("export", held.root, tmp_path / "root.car", "--explorer").exit_code == 2


def test_commands_print_the_same_of_a_static_tree(run: Run, held: Sample, tmp_path: Path) -> None:
    top = tmp_path / "tree"
    for root in (held.root, held.changed, held.folder, held.changed_folder):
        assert run("export", root, "--static", top).exit_code == 0
    proofs = [tmp_path / each for each in ("gateway.json", "static.json")]
    with python_server(top) as static:
        for command in (
            ["ls", held.root],
            ["ls", held.root, "directory 3"],
            ["ls", "-l", held.folder],
            ["ls", held.root, "none"],
            ["cat", held.root, "large"],
            ["cat", held.root, "file"],
            ["cat", held.root, "none"],
            ["resolve", held.root, "nested/b/7"],
            ["resolve", held.root, "nested/b/7", "--json"],
            ["resolve", held.root, "none"],
            ["diff", held.root, held.changed],
            ["diff", held.folder, held.changed_folder],
        ):
            of_gateway, of_static = run(*command), run(*command, gateway=static)
            assert of_static.stdout_bytes == of_gateway.stdout_bytes, command
            assert (of_static.exit_code, of_static.stderr) == (of_gateway.exit_code, of_gateway.stderr), command
        for proof, source in zip(proofs, ({}, {"gateway": static}), strict=True):
            proof.write_bytes(run("resolve", held.root, "nested/b/7", "--json", **source).stdout_bytes)
            assert run("verify", proof).exit_code == 0
            dest = tmp_path / proof.stem
            assert run("get", held.folder, dest, **source).exit_code == 0
            assert run("diff", held.folder, dest, **source).exit_code == 0
            assert run("verify", held.folder, dest).exit_code == 0
        assert names(tmp_path / "gateway") == names(tmp_path / "static")
        assert run("export", held.folder, tmp_path / "a.car", gateway=static).exit_code == 0
        refused = run("add", top / "v1" / "roots", "--no-cache", gateway=static)
        assert refused.exit_code == 1
        assert "is a static tree, which is only read" in refused.stderr
        large = top / "v1" / "cas" / held.large
        large.write_bytes(large.read_bytes()[:-1])
        lied_to = run("cat", held.root, "large", gateway=static)
        assert (lied_to.exit_code, lied_to.stdout) == (3, "")
        assert f"{static.removeprefix('static+')}/v1/cas/{held.large}: the bytes do not have" in lied_to.stderr
        checked = run("export", "--static", top, "--check")
        assert checked.exit_code == 4
        assert checked.stdout == f"v1/cas/{held.large}: the bytes do not have the hash of this CID\n"


def test_an_export_says_what_it_wrote(run: Run, held: Sample, tmp_path: Path) -> None:
    done = run("export", held.blake3, "--static", tmp_path, "--publish", "docs/main")
    assert (done.exit_code, done.stdout) == (0, "")
    pages = len(names(tmp_path / "v1" / "pages"))
    size = sum(each.stat().st_size for each in tmp_path.glob("v1/*/*"))
    assert done.stderr == (
        f"coregw: wrote 1 root, {pages} pages, 300 payloads, {size:,} bytes\n"
        f"coregw: docs/main is at revision 1: {held.blake3}\n"
    )
    again = run("export", held.blake3, "--static", tmp_path, "--publish", "docs/main")
    assert again.stderr.startswith(
        "coregw: wrote 0 roots, 0 pages, 0 payloads, 0 bytes\ncoregw: docs/main is at revision 1"
    )
    checked = run("export", "--static", tmp_path, "--check")
    assert (checked.exit_code, checked.stdout) == (0, "")
    assert checked.stderr == f"coregw: checked 1 root, {pages} pages, 300 payloads, 1 published name; 0 findings\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a ROOT and a FILE"),
        (["root"], "give a ROOT and a FILE"),
        (["root", "file", "--check"], "need --static"),
        (["root", "file", "--no-payloads"], "need --static"),
        (["root", "file", "--static", "dir"], "there is no FILE"),
        (["root", "--payloads", "--static", "dir"], "payloads are written unless"),
        (["--static", "dir"], "give a ROOT, or --check"),
        (["root", "--static", "dir", "--check"], "takes only"),
        (["root", "--static", "dir", "--publish", "name"], "expected SCOPE/NAME"),
    ],
)
def test_wrong_usage_is_refused(run: Run, arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run("export", *[str(tmp_path) if each == "dir" else each for each in arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert names(tmp_path) == []
