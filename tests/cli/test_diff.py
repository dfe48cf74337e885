"""``coregw diff``: differences as lines, none of them unproven."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import Result

from coregw import Map, payload_cid
from coregw.client import Client
from gateways import Reply, lying_gateway

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]

MEMORY = Path("/dev/shm")  # noqa: S108 - the file system, not a place for secrets
LATE = 16_725_225_600
"""A time in the year 2500, which no root records."""

OLD, NEW = payload_cid(b"old"), payload_cid(b"new")
BEFORE = {"docs/a": OLD, "docs/b": OLD, "docs/same": OLD, "src/gone": OLD}
AFTER = {"docs/a": NEW, "docs/b/below": NEW, "docs/b": OLD, "docs/same": OLD, "src/odd\n\\\x1b[31m": NEW}


@pytest.fixture
def roots(gateway: str) -> tuple[str, str]:
    with Client(gateway) as client:
        return client.create_root(BEFORE), client.create_root(AFTER)


def test_each_line_is_a_sign_and_a_path(coregw: Start, roots: tuple[str, str]) -> None:
    shown = coregw("diff", *roots)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.decode() == "~ docs/a\n+ docs/b/below\n- src/gone\n+ src/odd\\n\\\\\\x1b[31m\n"


def test_only_differences_at_and_below_the_prefix_are_shown(run: Run, roots: tuple[str, str]) -> None:
    assert run("diff", *roots, "docs").stdout == "~ docs/a\n+ docs/b/below\n"
    assert run("diff", *reversed(roots), "src/gone").stdout == "+ src/gone\n"


@pytest.mark.parametrize("prefix", ["docs/same", "nowhere"])
def test_no_differences_are_no_lines_and_exit_code_0(run: Run, roots: tuple[str, str], prefix: str) -> None:
    shown = run("diff", *roots, prefix)
    assert (shown.exit_code, shown.output) == (0, "")


def test_json_lines_contain_the_targets(run: Run, roots: tuple[str, str]) -> None:
    shown = run("diff", *roots, "--json")
    assert shown.exit_code == 0
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [
        {"segments": ["docs", "a"], "before": OLD, "after": NEW},
        {"segments": ["docs", "b", "below"], "after": NEW},
        {"segments": ["src", "gone"], "before": OLD},
        {"segments": ["src", "odd\n\\\x1b[31m"], "after": NEW},
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tampered_page_is_not_shown(run: Run, gateway: str, roots: tuple[str, str], options: list[str]) -> None:
    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        if document["entries"]:
            document["entries"].pop()
        return reply.with_body(json.dumps(document).encode())

    with lying_gateway(lie, gateway) as url:
        refused = run("diff", *roots, *options, gateway=url)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr.startswith(f"coregw: not proven: compare {roots[0]} with {roots[1]}: ")
    assert len(refused.stderr.splitlines()) == 1


def test_pages_before_a_tampered_one_are_shown(run: Run, gateway: str) -> None:
    with Client(gateway) as client:
        many = client.create_root({f"{number:04}": NEW for number in range(1500)})
        none = client.create_root({})
    assert len(run("diff", none, many).stdout.splitlines()) == 1500
    with lying_gateway(lambda reply: reply.with_body(b"{}") if "after=" in reply.path else reply, gateway) as url:
        refused = run("diff", none, many, gateway=url)
    assert refused.exit_code == 3
    assert refused.stdout == "".join(f"+ {number:04}\n" for number in range(1000))


def test_invalid_arguments_are_one_line_and_a_failure(run: Run, roots: tuple[str, str]) -> None:
    never = Map({"never": OLD, "stored": OLD}).root
    for b in ("no cid", OLD, Map({}, suite="blake3").root, never):
        failed = run("diff", roots[0], b)
        assert (failed.exit_code, failed.stdout) == (1, "")
        assert len(failed.stderr.splitlines()) == 1
    assert run("diff", *roots, "docs//a").exit_code == 1
    assert run("diff", roots[0]).exit_code == 2


def make_folder(folder: Path) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name, content in (("docs/a", b"old"), ("docs/run", b"#!"), ("gone", b"x"), ("same", b"y")):
        (folder / name).write_bytes(content)
    (folder / "now").symlink_to("docs")
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, ns=(0, 10**18), follow_symlinks=False)
    return folder


def change_folder(folder: Path) -> None:
    (folder / "docs" / "a").write_bytes(b"new")
    (folder / "docs" / "run").chmod(0o755)
    (folder / "gone").unlink()
    (folder / "same").unlink()
    (folder / "same").symlink_to("docs/a")
    (folder / "empty").rmdir()
    (folder / "now").unlink()
    (folder / "now").symlink_to("docs/run")
    (folder / "odd\n").write_bytes(b"z")
    os.utime(folder / "docs/a", ns=(0, 10**18 + 1))
    os.utime(folder / "docs", ns=(0, 10**18))
    for name in ("now", "same", "odd\n"):
        os.utime(folder / name, ns=(0, 10**18), follow_symlinks=False)


SHOWN = {
    "all": "~ docs/a  (content, mtime 2001-09-09 01:46:40.000000000 → 2001-09-09 01:46:40.000000001)\n"
    "~ docs/run  (mode 0644 → 0755)\n- empty/\n- gone\n~ now  (link docs → docs/run)\n+ odd\\n\n"
    "~ same  (file → link)\n",
    "no-times": "~ docs/a\n~ docs/run  (mode 0644 → 0755)\n- empty/\n- gone\n~ now  (link docs → docs/run)\n"
    "+ odd\\n\n~ same  (file → link)\n",
    "exec": "~ docs/a\n~ docs/run  (mode - → 0755)\n- gone\n~ now  (link docs → docs/run)\n+ odd\\n\n"
    "~ same  (file → link)\n",
    "none": "~ docs/a\n- gone\n+ odd\\n\n- same\n",
}


@pytest.mark.parametrize("level", SHOWN)
def test_a_folder_is_compared_as_far_as_the_root_records_it(run: Run, tmp_path: Path, level: str) -> None:
    folder = make_folder(tmp_path / "folder")
    root = run("add", folder, "--attributes", level).stdout.strip()
    unchanged = run("diff", root, folder, "--as-added")
    assert (unchanged.exit_code, unchanged.stdout) == (0, "")
    others = {"exec": "+ empty/\n", "none": "+ empty/\n+ now\n"}.get(level, "")
    assert run("diff", root, folder).stdout == others
    change_folder(folder)
    shown = run("diff", root, folder, "--as-added")
    assert (shown.exit_code, shown.stdout) == (0, SHOWN[level])
    assert run("diff", root, folder, "docs").stdout == "".join(
        SHOWN[level].splitlines(keepends=True)[: 1 + (level != "none")]
    )
    after = run("add", folder, "--attributes", level).stdout.strip()
    assert run("diff", root, after).output == SHOWN[level]
    assert run("diff", root, folder, "--as-added", "--json").stdout == run("diff", root, after, "--json").stdout


def test_changed_ranges_of_large_files_are_shown(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    data = os.urandom(3_000_000)
    (folder / "big").write_bytes(data)
    before = run("add", folder, "--attributes", "none").stdout.strip()
    (folder / "big").write_bytes(data[:1_000_000] + b"inserted" + data[1_000_000:])
    after = run("add", folder, "--attributes", "none").stdout.strip()
    (line,) = (json.loads(text) for text in run("diff", before, folder, "--json").stdout.splitlines())
    assert [line] == [json.loads(text) for text in run("diff", before, after, "--json").stdout.splitlines()]
    (((old_start, old_end), (new_start, new_end)),) = line["ranges"]
    assert old_start == new_start <= 1_000_000 < old_end <= 1_000_000 + 600_000
    assert new_end - old_end == 8
    text = f"~ big\n    bytes {old_start}-{old_end} → {new_start}-{new_end}\n"
    assert run("diff", before, folder).stdout == run("diff", before, after).stdout == text


def test_a_folder_that_is_not_there_and_options_that_do_not_fit_are_refused(
    run: Run, roots: tuple[str, str], tmp_path: Path
) -> None:
    missing = run("diff", roots[0], tmp_path / "missing")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "is neither a CID, nor a trusted name, nor a folder or file" in missing.stderr
    assert run("diff", *roots, "--gitignore").exit_code == 2
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    skipped = run("diff", roots[0], tmp_path, "--exclude", "file")
    assert skipped.stdout.splitlines() == ["- docs/a", "- docs/b", "- docs/same", "+ pipe", "- src/gone"]
    assert f"skipped {tmp_path}/pipe" in skipped.stderr


@pytest.mark.parametrize("level", ["all", "none"])
def test_what_cannot_be_read_is_not_absent(
    run: Run, coregw: Start, as_a_user: list[str], tmp_path: Path, level: str
) -> None:
    folder = tmp_path / "folder"
    (folder / "locked/below").mkdir(parents=True)
    (folder / "open").mkdir()
    for name in ("locked/below/file", "open/file", "secret", "was a file", "was a folder/x"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"bytes")
    root = run("add", folder, "--attributes", level).stdout.strip()
    (folder / "was a file").unlink()
    os.mkfifo(folder / "was a file")
    shutil.rmtree(folder / "was a folder")
    (folder / "was a folder").symlink_to("open")
    (folder / "new").mkdir()
    (folder / "new/secret").write_bytes(b"new")
    kept = [folder / name for name in ("locked", "secret", "new/secret")]
    for each in kept:
        each.chmod(0)
    try:
        shown = coregw("diff", root, folder, "--exit-code", under=as_a_user)
        inside = [
            coregw("diff", root, folder, at, "--exit-code", under=as_a_user).returncode
            for at in ("locked/below", "open")
        ]
    finally:
        for each in kept:
            each.chmod(0o700)
    assert shown.stderr.decode().count("permission denied") == len(kept)
    replaced = ["~ was a folder  (folder → link)"] if level == "all" else ["+ was a folder"]
    assert [line for line in shown.stdout.decode().splitlines() if not line.endswith("new/")] == [
        "~ locked  (folder → other)",
        "+ new/secret",
        "~ secret  (file → other)",
        "~ was a file  (file → other)",
        *replaced,
        "- was a folder/x",
    ]
    assert (shown.returncode, inside) == (6, [6, 0])


@pytest.mark.skipif(not MEMORY.is_dir(), reason="needs a file system with times after 2446")
@pytest.mark.parametrize("level", ["all", "none"])
def test_a_folder_of_which_not_everything_could_be_read_is_compared(run: Run, level: str) -> None:
    with TemporaryDirectory(dir=MEMORY) as name:
        folder, late = Path(name), Path(name, "late")
        late.mkdir()
        (late / "file").write_bytes(b"bytes")
        (late / "gone").write_bytes(b"bytes")
        os.utime(late, (LATE, LATE))
        root = run("add", folder, "--attributes", level).stdout.strip()
        shown = run("diff", root, folder)
        assert (f"skipped {late}" in shown.stderr, shown.stdout) == (True, "")
        (late / "gone").unlink()
        os.utime(late, (LATE, LATE))
        assert run("diff", root, folder).stdout == "- late/gone\n"
        inside = run("diff", root, folder, "late/file", "--exit-code")
        assert (inside.exit_code, inside.stdout) == (0, "")


def test_a_folder_that_cannot_be_entered_has_not_lost_everything(
    run: Run, coregw: Start, as_a_user: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"bytes")
    root = run("add", folder).stdout.strip()
    folder.chmod(0o400)
    try:
        shown = coregw("diff", root, folder, "--exit-code", under=as_a_user)
    finally:
        folder.chmod(0o700)
    assert (shown.returncode, shown.stdout.decode()) == (6, "~ .  (folder → other)\n"), shown.stderr


def test_names_that_are_not_utf8_are_not_those_that_look_alike(coregw: Start, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / r"odd\xff").write_bytes(b"bytes")
    root = run("add", folder, "--attributes", "none").stdout.strip()
    (folder / os.fsdecode(b"odd\xff")).write_bytes(b"bytes")
    assert coregw("diff", root, folder).stdout == b"+ odd\\xff\n"
    (line,) = coregw("diff", root, folder, "--json").stdout.splitlines()
    assert json.loads(line) == {"segments": [r"odd\xff"], "kinds": [None, "other"]}
    (folder / r"odd\xff").rename(folder / "even")
    shown = coregw("diff", root, folder).stdout.decode()
    assert shown.splitlines() == ["+ even", r"- odd\\xff", r"+ odd\xff"]


@pytest.mark.parametrize("options", [[], ["--as-added"]])
def test_a_path_that_is_too_long_for_any_root_is_a_difference(run: Run, tmp_path: Path, options: list[str]) -> None:
    folder, name = tmp_path / "folder", "n" * 250
    folder.mkdir()
    (folder / "a").write_bytes(b"a")
    root = run("add", folder, "--attributes", "none").stdout.strip()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(17):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    shown = run("diff", root, folder, "--exit-code", *options)
    assert shown.exit_code == 6, shown.stderr
    assert f"+ {'/'.join([name] * 17)}" in shown.stdout.splitlines()
    assert "the path is longer than 4096 bytes" in shown.stderr
    assert run("verify", root, folder, *options).exit_code == 3
