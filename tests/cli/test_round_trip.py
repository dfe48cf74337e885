"""``add``, ``ls``, ``cat`` and ``get``: a folder to a gateway and back."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from coregw import Cid, Map, _core, payload_cid
from coregw.client import AsyncClient, Client
from coregw.client.folders.restore import restore_folder
from gateways import names

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]

FILES = {
    "readme": b"read me\n",
    "empty": b"",
    "docs/guide": b"guide",
    "docs/deep/er/still": b"still",
    "@payload": b"an ordinary name",
    "ü 😀/ñ\n\x1b[31m": b"a name that tries to paint",
    "large": os.urandom(3 << 20) + b"end",
    "exactly": os.urandom(1 << 20),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    for path, data in FILES.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)
    return top


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_folder_is_restored_as_it_was(coregw: Start, run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("readme")
    added = coregw("add", folder)
    assert added.returncode == 0, added.stderr
    root = added.stdout.decode().strip()
    assert added.stdout.decode() == f"{root}\n"
    assert Cid(root).kind == "map"
    assert b"added 8 files, " in added.stderr

    listed = coregw("ls", root)
    assert listed.stdout.decode().splitlines() == [
        "          16  @payload",
        "           -  docs/",
        "           0  empty",
        "     1048576  exactly",
        f"{len(FILES['large']):>12}  large",
        "           -  link",
        "           8  readme",
        "           -  ü 😀/",
    ]
    shown = coregw("cat", root, "large")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, FILES["large"], b"")
    for path, data in FILES.items():
        shown = run("cat", root, path)
        assert (shown.exit_code, shown.stdout_bytes, shown.stderr) == (0, data, "")

    got = coregw("get", root, tmp_path / "out")
    assert got.returncode == 0, got.stderr
    assert got.stdout == b""
    assert tree(tmp_path / "out") == FILES
    assert names(tmp_path) == ["out", "source"]


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_modes_links_times_and_empty_folders_come_back(run: Run, folder: Path, tmp_path: Path, suite: str) -> None:
    (folder / "readme").chmod(0o600)
    (folder / "large").chmod(0o751)
    (folder / "none" / "deeper").mkdir(parents=True)
    links = {"inside": "readme", "docs/up": "../none/deeper", "docs/dangling": "not/there"}
    outside = {"out": "../elsewhere", "docs/deep/out": "/etc/passwd"}
    for path, target in {**links, **outside}.items():
        (folder / path).symlink_to(target)
    (folder / "docs" / "deep").chmod(0o700)
    for number, path in enumerate(sorted(folder.rglob("*"))):
        os.utime(path, ns=(0, 1_600_000_000_123_456_789 + number), follow_symlinks=False)
    with_outside = run("add", "--suite", suite, folder).stdout.strip()
    for path in outside:
        above = (folder / path).parent
        time = above.stat().st_mtime_ns
        (folder / path).unlink()
        os.utime(above, ns=(0, time))
    root = run("add", "--suite", suite, folder).stdout.strip()
    assert Cid(root).suite == suite
    for name, given in (("out", root), ("skipped", with_outside)):
        got = run("get", given, tmp_path / name)
        assert got.exit_code == 0, got.stderr
        skipped = [line for line in got.stderr.splitlines() if line.startswith("coregw: skipped ")]
        assert len(skipped) == (0 if given == root else len(outside))
        assert described(tmp_path / name) == described(folder)
        assert run("hash", "--suite", suite, tmp_path / name).stdout.strip() == root
    assert tree(tmp_path / "out") == FILES
    assert {path: os.fspath((tmp_path / "out" / path).readlink()) for path in links} == links
    assert run("verify", root, tmp_path / "out").exit_code == 0


def make_protected(folder: Path) -> None:
    """A folder with what only some options restore, and with times that are not those of its creation."""
    for name in ("shared", "private", "group", "empty", "read-only"):
        (folder / name).mkdir(parents=True)
        if name != "empty":
            (folder / name / "x").write_text(name)
    for name, mode in (
        ("run", 0o755),
        ("plain", 0o640),
        ("suid", 0o4755),
        ("private/secret", 0o644),
        ("sticky", 0o1600),
    ):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    (folder / "link").symlink_to("plain")
    os.setxattr(folder / "plain", "user.kept", b"new")
    os.setxattr(folder, "user.kept", b"n" * 300)
    for name, mode in (("shared", 0o1777), ("private", 0o700), ("group", 0o2775), ("read-only", 0o555)):
        (folder / name).chmod(mode)
    for number, path in enumerate([*folder.rglob("*"), folder]):
        os.utime(path, ns=(0, 1_500_000_000_000_000_001 + number), follow_symlinks=False)


def change_destination(dest: Path) -> None:
    """Change everything that a restore can set, and add what it has to delete."""
    for name, mode in (("plain", 0o777), ("run", 0o600), ("shared", 0o777), ("private", 0o1755), ("group", 0o777)):
        (dest / name).chmod(mode)
    for name in ("plain", "run", "shared"):
        os.setxattr(dest / name, "user.stale", b"x")
        os.setxattr(os.fsencode(dest / name), b"user.\xff", b"x")
    os.setxattr(dest / "plain", "user.kept", b"old")
    os.setxattr(dest, "user.stale", b"x")
    dest.chmod(0o1777)
    if (dest / "link").is_symlink():
        os.utime(dest / "link", ns=(0, 5), follow_symlinks=False)
    for name in (".git/hooks/x", "more/x", ".coregw/x"):
        (dest / name).parent.mkdir(parents=True)
        (dest / name).write_text("x")
    (dest / ".coregwignore").write_text("more\n.coregwignore\n")
    (dest / "plain2").symlink_to("plain")
    os.mkfifo(dest / "pipe")
    if (dest / "empty").exists():
        (dest / "empty").rmdir()


OPTIONS: list[list[str]] = [[], ["--xattrs"], *([["--owner"], ["--owner", "--xattrs"]] if os.geteuid() == 0 else [])]


@pytest.mark.parametrize("level", ["all", "whole", "no-times", "exec", "none"])
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_verify_accepts_what_get_has_restored_with_the_same_options(
    run: Run, tmp_path: Path, level: str, options: list[str]
) -> None:
    if options and level in ("exec", "none"):
        pytest.skip("records neither owners nor extended attributes")
    source = tmp_path / "source"
    make_protected(source)
    root = run("add", source, "--attributes", level, *options).stdout.strip()
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "changed"):
        got = run("get", root, tmp_path / name, *options)
        assert got.exit_code == 0, got.stderr
        verified = run("verify", root, tmp_path / name, *options, "--attributes", level)
        assert verified.exit_code == 0, verified.stderr
    change_destination(tmp_path / "changed")
    assert run("verify", root, tmp_path / "changed", *options).exit_code == 3
    got = run("get", root, tmp_path / "changed", "--delete-excluded", *options)
    assert got.exit_code == 0, got.stderr
    verified = run("verify", root, tmp_path / "changed", *options, "--attributes", level)
    assert verified.exit_code == 0, verified.stderr
    if level in ("all", "whole", "no-times"):
        assert stat.S_IMODE((tmp_path / "changed" / "shared").stat().st_mode) == 0o1777
        assert stat.S_IMODE((tmp_path / "new" / "suid").stat().st_mode) == (0o4755 if "--owner" in options else 0o755)
    if "--xattrs" in options:
        assert os.listxattr(tmp_path / "changed" / "plain") == ["user.kept"]
        assert os.listxattr(tmp_path / "changed" / "shared") == []
        assert os.listxattr(tmp_path / "changed") == (["user.kept"] if level == "whole" else ["user.stale"])


def test_the_folder_itself_is_restored_as_it_was(run: Run, tmp_path: Path) -> None:
    wrong: list[str] = []
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_text("x")
    for mode, mtime, umask in itertools.product((0o700, 0o1777, 0o500, 0o755), (1, -(10**18)), (0o077, 0o000)):
        source.chmod(mode)
        os.utime(source, ns=(0, mtime))
        root = run("add", source, "--attributes", "whole").stdout.strip()
        case = tmp_path / f"{mode:o} {mtime} {umask:o}"
        (case / "empty").mkdir(parents=True)
        (case / "changed").mkdir()
        (case / "changed" / "file").write_text("stays not")
        before = os.umask(umask)
        try:
            for name, options in (("new", ()), ("empty", ()), ("changed", ("--delete",)), ("placed", ("--in-place",))):
                for _ in range(2):
                    got = run("get", root, case / name, *options)
                    status = (case / name).stat()
                    verified = run("verify", root, case / name, "--attributes", "whole")
                    if (
                        got.exit_code
                        or verified.exit_code
                        or (status.st_mode & 0o7777, status.st_mtime_ns) != (mode, mtime)
                    ):
                        wrong.append(f"{case.name}, {name}: {got.stderr} {verified.stderr} {status}")
        finally:
            os.umask(before)
    assert not wrong, "\n".join(wrong)
    assert run("verify", root, source).stdout.endswith("and mode and time of the folder itself)\n")


def test_the_folder_itself_is_shown_and_compared_and_is_no_entry(run: Run, tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_text("a")
    source.chmod(0o700)
    os.utime(source, ns=(0, 5))
    root = run("add", source, "--attributes", "whole").stdout.strip()
    assert "mode         0700 (drwx------)" in run("stat", root).stdout
    assert run("ls", "-R", root).stdout.split() == ["1", "a", "-", "sub/"]
    assert [line for command in ("ls", "tree") if ".coregw" in (line := run(command, root, "--json").stdout)] == []
    assert run("stat", root, ".coregw").stdout.splitlines()[1] == "kind  folder"  # has the map of attributes
    assert run("get", root, dest).exit_code == 0
    assert run("diff", root, dest).stdout == ""
    dest.chmod(0o755)
    assert run("diff", root, dest).stdout == "~ ./  (mode 0700 → 0755)\n"
    assert run("diff", root, dest, "a").stdout == ""
    assert run("diff", root, dest, "--attributes", "all").stdout == ""
    assert run("verify", root, dest).exit_code == 3
    other = run("add", dest, "--attributes", "whole").stdout.strip()
    assert run("add", dest, "--attributes", "whole", "--no-cache").stdout.strip() == other
    assert run("diff", root, other).stdout == "~ ./  (mode 0700 → 0755)\n"
    assert run("diff", root, other, "a").stdout == ""
    lines = run("diff", run("add", source).stdout.strip(), root, "--json").stdout.splitlines()
    assert [json.loads(line)["segments"] for line in lines] == [[]]
    put = run("put", other, source, "copy", "--attributes", "whole").stdout.strip()
    assert "drwx------             -  1970-01-01 00:00:00  copy/" in run("ls", "-l", put).stdout
    assert "0755 (drwxr-xr-x)" in run("stat", put).stdout
    for changed in (("rm", put, "copy", "-r"), ("mv", put, "a", "b"), ("update", put, "--remove", "a")):
        assert "0755 (drwxr-xr-x)" in run("stat", run(*changed).stdout.strip()).stdout
    nested = run("update", run("add", source).stdout.strip(), "--set", "n", root).stdout.strip()
    for name in ("nested", "nested"):
        assert run("get", nested, tmp_path / name).exit_code == 0
        assert run("verify", root, tmp_path / name / "n", "--attributes", "whole").exit_code == 0
    assert run("diff", nested, tmp_path / "nested").stdout == ""
    assert "0700 (drwx------)" in run("stat", nested, "n").stdout


def test_a_record_of_the_folder_itself_that_is_none_is_refused(run: Run, gateway: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    for number, (kind, link) in enumerate((("file", None), ("link", b"x"))):
        target, _ = _core.encode_attributes(kind, mtime_ns=1, link=link)
        with Client(gateway) as client:
            attributes = client.create_root({".coregw": target})
            root = client.create_root({"a": client.put_payload(b"a"), ".coregw/attributes": attributes})
            plain = client.create_root({"a": payload_cid(b"a")})
        dest = tmp_path / str(number)
        for command in (
            ("get", root, dest),
            ("get", root, tmp_path),
            ("ls", root),
            ("ls", "-R", root),
            ("tree", root),
            ("stat", root),
            ("diff", root, plain),
            ("diff", root, tmp_path),
        ):
            done = run(*command)
            if done.exit_code != 1 or ".coregw: it is reserved for the record of the folder itself" not in done.stderr:
                wrong.append(f"{kind}: {command[0]}: {done.exit_code} {done.stderr}")
        assert not dest.exists()
    assert not wrong, "\n".join(wrong)


def test_a_folder_that_is_updated_is_protected_before_anything_is_written(
    run: Run, gateway: str, tmp_path: Path
) -> None:
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    (source / "secret").write_text("x")
    source.chmod(0o700)
    root = run("add", source, "--attributes", "whole").stdout.strip()
    dest.mkdir(mode=0o755)
    (dest / "other").touch()
    modes: list[int] = []

    def see(_: int) -> None:
        if (dest / "secret").exists():
            modes.append(stat.S_IMODE(dest.stat().st_mode))

    async def restore() -> None:
        async with AsyncClient(gateway) as client:
            await restore_folder(client, root, dest, progress=see)

    asyncio.run(restore())
    assert set(modes) == {0o700}
    assert stat.S_IMODE(dest.stat().st_mode) == 0o700


def test_get_keeps_the_set_gid_bit_of_folders_that_exist(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source" / "d").mkdir(parents=True)
    (tmp_path / "source" / "d").chmod(0o755)
    root = run("add", tmp_path / "source").stdout.strip()
    (tmp_path / "dest" / "d").mkdir(parents=True)
    (tmp_path / "dest" / "d").chmod(0o2700)
    assert run("get", root, tmp_path / "dest").exit_code == 0
    assert stat.S_IMODE((tmp_path / "dest" / "d").stat().st_mode) == 0o2755
    assert run("verify", root, tmp_path / "dest").exit_code == 0


def test_a_time_that_no_root_can_have_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    late = tmp_path / "source" / "late"
    late.touch()
    os.utime(late, (0, 10_413_792_000))  # 2300
    if late.stat().st_mtime != 10_413_792_000:
        pytest.skip("the file system has no such times")
    for path in (tmp_path / "source", late):
        added = run("add", path)
        assert added.exit_code == 0
        assert "late: its time is not between 1677 and 2262: the nearest is recorded" in added.stderr
        assert run("get", added.stdout.strip(), tmp_path / f"out of {path.name}").exit_code == 0
        assert run("verify", added.stdout.strip(), tmp_path / f"out of {path.name}").exit_code == 0
        assert run("verify", added.stdout.strip(), path).exit_code == 3


def described(folder: Path) -> dict[str, tuple[int, int]]:
    """The type with the mode, and the time of modification, of everything in a folder."""
    states = {str(path.relative_to(folder)): path.lstat() for path in folder.rglob("*")}
    return {path: (state.st_mode, state.st_mtime_ns) for path, state in states.items()}


def test_ls_lists_files_folders_and_whole_trees(run: Run, folder: Path) -> None:
    (folder / "docs" / "link").symlink_to("x" * 200)
    (folder / "docs" / "none" / "deeper").mkdir(parents=True)
    (folder / "docs" / "guide").chmod(0o4751)
    for path in ("docs/guide", "docs/deep", "docs/none", "docs/link"):
        os.utime(folder / path, ns=(0, 1_700_000_000_999_999_999), follow_symlinks=False)
    (folder / "docs" / "none").chmod(0o1700)
    (folder / "docs" / "deep").chmod(0o755)
    root = run("add", folder, "--owner").stdout.strip()
    moment = "2023-11-14 22:13:20"
    assert run("ls", root, "docs").stdout.splitlines() == [
        "           -  deep/",
        "           5  guide",
        "           -  link",
        "           -  none/",
    ]
    assert run("ls", "-l", root, "docs").stdout.splitlines() == [
        f"drwxr-xr-x             -  {moment}  deep/",
        f"-rwsr-x--x             5  {moment}  guide",
        f"lrwxrwxrwx             -  {moment}  link -> {'x' * 200}",
        f"drwx-----T             -  {moment}  none/",
    ]
    assert run("ls", root, "docs/guide").stdout.split() == ["5", "guide"]
    assert run("ls", "-l", root, "docs/link").stdout.split()[-3:] == ["link", "->", "x" * 200]
    assert run("ls", root, "docs/none").stdout.split() == ["-", "deeper/"]
    assert run("ls", root, "docs/none/deeper").stdout == ""
    assert run("ls", root, "docs", "-R").stdout.splitlines() == [
        "           -  deep/",
        "           -  deep/er/",
        "           5  deep/er/still",
        "           5  guide",
        "           -  link",
        "           -  none/",
        "           -  none/deeper/",
    ]
    assert len(run("ls", "-R", root).stdout.splitlines()) == len(FILES) + 7
    assert run("ls", root, "ü 😀").stdout == "          26  ñ\\n\\x1b[31m\n"
    assert run("ls", "--cid", root, "readme").stdout.split() == ["8", payload_cid(FILES["readme"]), "readme"]
    plain = run("add", "--attributes", "none", folder).stdout.strip()
    assert run("ls", "-l", plain, "docs").stdout.splitlines() == [
        "d?????????             -  -                    deep/",
        "-?????????             -  -                    guide",
    ]


def test_a_single_file_becomes_a_map_with_its_name(run: Run, folder: Path) -> None:
    added = run("add", "--attributes", "none", folder / "readme")
    assert added.exit_code == 0
    assert added.stdout.strip() == Map({"readme": payload_cid(FILES["readme"])}).root


def test_an_empty_folder_becomes_the_empty_map(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    added = run("add", tmp_path / "empty")
    assert added.stdout.strip() == Map({}).root
    assert run("ls", Map({}).root).stdout == ""
    assert run("get", Map({}).root, tmp_path / "out").exit_code == 0
    assert names(tmp_path / "out") == []


def test_the_suite_can_be_chosen(run: Run, folder: Path) -> None:
    assert Cid(run("add", "--suite", "blake3", folder).stdout.strip()).suite == "blake3"


def test_nested_maps_are_shown_and_restored_as_folders(run: Run, gateway: str, tmp_path: Path) -> None:
    with Client(gateway) as client:
        file = client.put_payload(b"deep")
        root = client.create_root({"sub": client.create_root({"in/file": file}), "top": file})
    assert run("ls", root).stdout.split() == ["-", "sub/", "-", "top"]
    assert run("ls", root, "sub/in").stdout.split() == ["-", "file"]
    assert run("cat", root, "sub/in/file").stdout == "deep"
    assert run("get", root, tmp_path / "out").exit_code == 0
    assert tree(tmp_path / "out") == {"sub/in/file": b"deep", "top": b"deep"}


def test_ls_and_cat_accept_a_list_root(run: Run, gateway: str) -> None:
    with Client(gateway) as client:
        root = client.create_list([client.put_payload(b"ab"), client.put_payload(b"c")], [2, 1])
    assert run("cat", root, "").stdout == "abc"
    assert run("ls", root).stdout.split() == ["3", root]


def test_hostile_names_are_refused_and_nothing_is_written(run: Run, gateway: str, tmp_path: Path) -> None:
    with Client(gateway) as client:
        file = client.put_payload(b"x")
        for path in ("../evil", "a/../../evil", ".", "a\0b"):
            root = client.create_root({path: file, "fine": file})
            got = run("get", root, tmp_path / "out")
            assert got.exit_code == 1
            assert "can't be a file name" in got.stderr
            assert len(got.stderr.splitlines()) == 1
            assert names(tmp_path) == []
        root = client.create_root({"a": file, "a/b": file})
    got = run("get", root, tmp_path / "out")
    assert (got.exit_code, got.stderr) == (1, "coregw: a: it is both a file and a folder\n")
    assert names(tmp_path) == []


def test_a_name_that_is_not_utf_8_is_an_error_that_names_the_file(run: Run, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9", "wb"):  # noqa: PTH123 - pathlib has no such names
        pass
    added = run("add", tmp_path)
    assert added.exit_code == 1
    assert added.stdout == ""
    assert added.stderr == f"coregw: {tmp_path}/caf\\xe9: the name is not UTF-8\n"


def test_an_unreadable_single_file_is_an_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("x")

    def survey(path: Path, *options: object) -> _core.Survey:
        found = _core.survey(path)
        path.unlink()  # root may read everything, whatever the modes are
        return found

    monkeypatch.setattr("coregw.client.folders.add.survey", survey)
    added = run("add", tmp_path / "secret")
    assert (added.exit_code, added.stdout) == (1, "")
    assert "secret: no such file or directory" in added.stderr


def test_an_unavailable_gateway_is_reported_with_how_to_continue(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"some")
    root = run("add", folder).stdout.strip()

    def said(*arguments: object) -> str:
        failed = run(*arguments, gateway="http://127.0.0.1:1")
        assert failed.exit_code == 1
        return failed.stderr

    continued = "; the same command continues: what the gateway has acknowledged is not sent again; coregw doctor says"
    assert continued in said("add", folder)
    assert "; with --in-place, the next attempt would continue; coregw doctor" in said("get", root, tmp_path / "new")
    assert "; the same command continues; coregw doctor" in said("get", "--in-place", root, tmp_path / "new")
    assert "; the same command continues; coregw doctor" in said("get", root, folder)
    assert "continue" not in said("cat", root, "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set trusted attributes")
@pytest.mark.parametrize("is_new", [True, False])
def test_root_is_told_which_attributes_are_not_restored_and_verifies_those_that_are(
    run: Run, tmp_path: Path, is_new: bool
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "d").mkdir(parents=True)
    for path in ("a", "b", "d/c"):
        (source / path).write_bytes(b"x")
        os.setxattr(source / path, "user.a", b"1")
    for path in ("b", "d"):
        os.setxattr(source / path, "trusted.t", b"2")
    if not is_new:
        out.mkdir()
        (out / "b").write_bytes(b"x")
        os.setxattr(out / "b", "user.old", b"3")
    root = run("add", "--xattrs", source).stdout.strip()
    got = run("get", root, out, "--xattrs", "--json")
    assert got.exit_code == 0, got.stderr
    told = json.loads(got.stdout)["skipped"]
    assert list(told) == [str(out / "b")]
    assert "trusted.t, and those of 1 more, is restored to root only by name, with --xattr" in told[str(out / "b")]
    assert run("verify", root, out, "--xattrs").exit_code == 3
    got = run("get", root, out, "--xattrs", "--xattr", "trusted.t", "--json")
    assert json.loads(got.stdout)["skipped"] == {}
    assert run("verify", root, out, "--xattrs").exit_code == 0
    os.setxattr(source, "trusted.own", b"4")
    whole = run("add", "--xattrs", "--attributes", "whole", source).stdout.strip()
    got = run("get", whole, out, "--xattrs", "--json")
    assert [*json.loads(got.stdout)["skipped"]] == [str(out), str(out / "b")], got.stderr


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_exec_bits_are_restored_as_the_umask_lets_them(run: Run, tmp_path: Path, umask: int) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, size in (("run", 5), ("large", 1 << 19)):
        (source / name).write_bytes(bytes(size))
        (source / name).chmod(0o750)
    (source / "plain").write_bytes(b"plain")
    root = run("add", "--attributes", "exec", source).stdout.strip()
    out, kept = tmp_path / "out", tmp_path / "kept"
    kept.mkdir()
    for name, mode in (("run", 0o640), ("large", 0o711), ("plain", 0o755)):
        (kept / name).write_bytes((source / name).read_bytes())
        (kept / name).chmod(mode)
    (tmp_path / "owned").mkdir()
    (tmp_path / "owned" / "mine").write_bytes(b"mine")
    before = os.umask(umask)
    try:
        for dest in (out, kept, tmp_path / "owned"):
            assert run("get", root, dest, "--delete").exit_code == 0
            assert run("verify", root, dest, "--attributes", "exec").exit_code == 0
    finally:
        os.umask(before)
    new = {"run": 0o777 & ~umask, "large": 0o777 & ~umask, "plain": 0o666 & ~umask}
    for dest, modes in ((out, new), (tmp_path / "owned", new), (kept, {"run": 0o750, "large": 0o711, "plain": 0o644})):
        assert {name: stat.S_IMODE((dest / name).stat().st_mode) for name in modes} == modes
