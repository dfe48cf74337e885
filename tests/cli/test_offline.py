"""``coregw hash`` and ``coregw verify ROOT DIR``: the root of a folder without a gateway."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]

NOWHERE = "http://127.0.0.1:9"


def make_folder(folder: Path) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "readme").write_text("hello")
    (folder / "long").write_bytes(bytes(range(256)) * 10_000)
    (folder / "link").symlink_to("long")
    os.mkfifo(folder / "pipe")
    return folder


def test_hash_prints_the_root_that_add_gives(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    for suite in ("sha2-256", "blake3"):
        added = run("add", folder, "--suite", suite)
        hashed = run("hash", folder, "--suite", suite, gateway=NOWHERE)
        assert (hashed.exit_code, hashed.stdout) == (0, added.stdout)
        assert f"skipped {folder}/pipe: not a regular file" in hashed.stderr
        assert "hashed 2 files, 2,560,005 bytes" in hashed.stderr
    assert run("hash", folder / "long").stdout == run("add", folder / "long").stdout


def test_verify_compares_a_folder_with_its_root(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "pipe").unlink()
    root = run("hash", folder).stdout.strip()
    verified = run("verify", root, folder, gateway=NOWHERE)
    assert (verified.exit_code, verified.stdout) == (0, f"verified: {folder} (names, bytes, links, modes, times)\n")
    (folder / "docs" / "readme").write_text("hullo")
    refused = run("verify", root, folder)
    assert refused.exit_code == 3
    assert f"not {root}" in refused.stderr
    assert "; coregw diff says what differs" in refused.stderr


def test_verify_compares_owners_and_extended_attributes_on_request(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "pipe").unlink()
    said = "names, bytes, links, modes, times"
    for options, also in {("--owner",): ", owners", ("--owner", "--xattrs"): ", owners, extended attributes"}.items():
        root = run("add", folder, *options).stdout.strip()
        verified = run("verify", root, folder, *options, gateway=NOWHERE)
        assert (verified.exit_code, verified.stdout) == (0, f"verified: {folder} ({said}{also})\n")
        # The folder is the same: nothing differs but what is compared.
        refused = run("verify", root, folder)
        assert refused.exit_code == 3
        assert refused.stderr.endswith("; if it lists nothing, add --owner or --xattrs, which the root was made with\n")
        assert run("diff", root, folder).stdout == ""


def test_verify_says_what_it_leaves_out_and_when_that_would_explain_a_difference(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "pipe").unlink()
    (folder / ".coregwignore").write_text("site/\n")
    root = run("add", folder).stdout.strip()
    modified = folder.stat().st_mtime_ns
    (folder / "site").mkdir()
    (folder / "site" / "evil.py").write_text("import os")
    os.utime(folder, ns=(modified, modified))
    refused, different = run("verify", root, folder), run("diff", root, folder, "--exit-code")
    assert refused.exit_code == 3
    assert f"; --as-added would verify it, without {folder}/site (.coregwignore, line 1);" in refused.stderr
    assert (different.exit_code, different.stdout) == (6, "+ site/\n+ site/evil.py\n")
    assert "with --as-added there is no difference: it leaves out 1 item\n" in different.stderr
    verified = run("verify", "--as-added", root, folder, "--json")
    assert json.loads(verified.stdout)["left_out"] == {f"{folder}/site": ".coregwignore, line 1"}
    unchanged = run("diff", "--as-added", root, folder, "--exit-code")
    assert (unchanged.exit_code, unchanged.stdout) == (0, "")
    assert unchanged.stderr == f"coregw: left out {folder}/site: .coregwignore, line 1\n"
    # Other patterns than those that the root names do not count.
    (folder / ".coregwignore").write_text("site/\n*.txt\n")
    (folder / "more.txt").write_text("x")
    shown = run("diff", "--as-added", root, folder, "--exit-code")
    assert shown.exit_code == 6
    assert [line.split("  ")[0] for line in shown.stdout.splitlines()] == [
        "~ .coregwignore",
        "+ more.txt",
        "+ site/",
        "+ site/evil.py",
    ]
    assert run("verify", root, folder, "--as-added").exit_code == 3
    for command in ("verify", "diff"):
        assert run(command, root, folder, "--gitignore").exit_code == 2


def test_what_cannot_be_compared_is_a_difference(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    root = run("add", folder).stdout.strip()
    for name in (".git/hooks/x", ".coregw/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("x")
    os.close(os.open(os.fsencode(folder) + b"/caf\xe9", os.O_CREAT))
    shown = run("diff", root, folder, "--exit-code")
    assert (shown.exit_code, shown.stdout.splitlines()) == (
        6,
        ["+ .coregw", "+ .git/", "+ .git/hooks/", "+ .git/hooks/x", "+ caf\\xe9", "+ pipe"],
    )
    assert f"skipped {folder}/caf\\xe9: the name is not UTF-8\n" in shown.stderr
    lines = [json.loads(line) for line in run("diff", root, folder, "--json").stdout.splitlines()]
    assert lines[0] == {"segments": [".coregw"], "kinds": [None, "other"]}
    os.unlink(os.fsencode(folder) + b"/caf\xe9")  # noqa: PTH108 - pathlib has no such names
    assert run("diff", root, folder, "--as-added", "--exit-code").exit_code == 0
    assert run("verify", root, folder, "--as-added").exit_code == 0


def test_a_root_records_what_the_options_say(run: Run, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder")
    (folder / "scratch.o").write_text("x")
    (folder / "secret").write_text("x")
    (folder / ".coregwignore").write_text("secret\n")
    compared = {"no-times": "links, modes", "exec": "links, exec bits", "none": "names and bytes"}
    for level, words in compared.items():
        options = ("--attributes", level, "--exclude", "*.o", "--exclude", "/docs")
        root = run("hash", folder, *options, gateway=NOWHERE).stdout
        assert root == run("add", folder, *options).stdout
        verified = run("verify", root.strip(), folder, "--as-added", "--exclude", "*.o", "--exclude", "/docs")
        assert (verified.exit_code, words in verified.stdout) == (0, True)
        assert f"left out {folder}/secret: .coregwignore, line 1\n" in verified.stderr
    refused = run("hash", folder, "--attributes", "exec", "--owner")
    assert refused.exit_code == 1
    assert "records neither owners nor extended attributes" in refused.stderr


def test_wrong_arguments_are_explained(run: Run, tmp_path: Path) -> None:
    for arguments in ([], ["a", "b", "c"]):
        assert run("verify", *arguments).exit_code == 2
    refused = run("verify", "hello", tmp_path)
    assert refused.exit_code == 1
    assert refused.stderr.endswith(", and not a root (a CID); coregw root list shows the names\n")
    missing = run("hash", tmp_path / "missing")
    assert missing.exit_code == 1
    assert "missing" in missing.stderr
