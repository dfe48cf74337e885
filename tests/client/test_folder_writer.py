"""`FolderWriter`: verified payloads to files, in any order, below one folder and nowhere else."""

from __future__ import annotations

import os
import random
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

import coregw
from car_files import block, header
from coregw import _core
from coregw.errors import InvalidInput, ProofError, TooLarge
from gateways import names

MIB = 1 << 20
LIMIT = 64 * MIB
HEAD = header(bytes.fromhex("01550000"))


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(size * 31 + seed).randbytes(size)


def car(*datas: bytes) -> bytes:
    return HEAD + b"".join(block(bytes(coregw.Cid(coregw.payload_cid(data))), data) for data in datas)


def cid(data: bytes) -> str:
    return coregw.payload_cid(data)


class Answers:
    """Answers the requests of a writer from known payloads."""

    def __init__(self, datas: Sequence[bytes]) -> None:
        self.datas = {cid(data): data for data in datas}
        self.requests: list[list[str]] = []

    def serve(self, writer: _core.FolderWriter, max_bytes: int, chunk: int) -> None:
        sinks = []
        while (sink := writer.request(max_bytes, LIMIT)) is not None:
            self.requests.append(sink.cids)
            sinks.append((sink, car(*(self.datas[each] for each in sink.cids))))
        for at in range(0, max(len(answer) for _, answer in sinks), chunk):
            for sink, answer in sinks:  # all at once, turn by turn
                if at < len(answer):  # what libcurl gathers, and what it has at once
                    part = answer[at : at + chunk]
                    sink.writelines([part[start : start + 16_384] for start in range(0, len(part), 16_384)])
        for sink, _ in sinks:
            assert sink.finish() == []


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("chunk", [777, 65_536, 10 * MIB])
def test_files_are_written_from_answers_in_any_order(tmp_path: Path, chunk: int, staged: bool) -> None:
    pieces = [some_bytes(size, seed) for seed, size in enumerate([MIB, MIB, 5, 3 * MIB + 1, 0, 70_000, MIB + 1])]
    files = {
        ("large",): [pieces[0], pieces[1], pieces[2]],
        ("again", "large"): [pieces[1], pieces[0], pieces[0]],
        ("again", "one"): [pieces[3]],
        ("empty",): [pieces[4]],
        ("small",): [pieces[5]],
        ("a", "b", "c", "small"): [pieces[5]],
        ("two",): [pieces[6], pieces[5]],
        ("identity",): [b"in the CID"],
    }
    if chunk == 777:
        files = {path: [piece for piece in parts if len(piece) < MIB + 2] for path, parts in files.items()}
        files.pop(("again", "one"))
    top, incomplete = tmp_path / "top", tmp_path / "incomplete"
    top.mkdir()
    incomplete.mkdir()
    writer = _core.FolderWriter(top, incomplete if staged else None)
    for path, parts in files.items():
        named = [
            (coregw.payload_cid(each, hash="identity" if path == ("identity",) else "sha2-256"), len(each))
            for each in parts
        ]
        named[-1] = (named[-1][0], None)
        writer.add_file(path, named)
    writer.start()
    answers = Answers([piece for parts in files.values() for piece in parts])
    answers.serve(writer, MIB, chunk)
    writer.finish()
    writer.close()
    assert {path.relative_to(top).parts: path.read_bytes() for path in top.rglob("*") if path.is_file()} == {
        path: b"".join(parts) for path, parts in files.items()
    }
    assert names(incomplete) == []
    asked = [each for request in answers.requests for each in request]
    assert len(asked) == len({*asked}) == len({cid(each) for parts in files.values() for each in parts}) - 1
    assert writer.written == sum(len(each) for parts in files.values() for each in parts)


def new_writer(top: Path, files: dict[str, bytes], **options: bool) -> _core.FolderWriter:
    writer = _core.FolderWriter(top)
    for path, data in files.items():
        writer.add_file(path.split("/"), [(cid(data), None)], **options)
    writer.start()
    return writer


A, B, LONG = b"first", b"second", some_bytes(2 * MIB)


@pytest.mark.parametrize(
    "answer",
    [
        car(B, A, LONG),
        car(A, B[:-1]),
        car(A, b"other"),
        car(A, B, LONG)[:-1],
        car(A, B, LONG) + b"\0",
        HEAD + block(bytes(coregw.Cid(cid(A))), B),
        HEAD + block(bytes(coregw.Cid(cid(LONG))), LONG[:-1] + b"?"),
        HEAD[:-1],
        b"",
        b'{"error":"internal"}',
    ],
)
def test_every_answer_but_the_requested_payloads_is_refused(tmp_path: Path, answer: bytes) -> None:
    for chunk in (100_000, 10 * MIB):
        (tmp_path / str(chunk)).mkdir()
        writer = new_writer(tmp_path / str(chunk), {"a": A, "b": B, "long": LONG})
        sink = writer.request(LIMIT, LIMIT)
        assert sink is not None
        assert sink.cids == [cid(A), cid(B), cid(LONG)]

        def take(sink: _core.PayloadSink = sink, chunk: int = chunk) -> None:
            for at in range(0, len(answer), chunk):
                sink.write(answer[at : at + chunk])
            sink.finish()

        with pytest.raises(ProofError) as first:
            take()
        with pytest.raises(ProofError) as again:  # another task may be the one that is heard
            writer.finish()
        assert str(again.value) == str(first.value)
        writer.close()


def test_what_is_left_out_is_named_and_what_is_too_long_refused(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, {"a": A, "b": B, "long": LONG})
    sink = writer.request(LIMIT, MIB)
    assert sink is not None
    sink.write(car(B))
    assert sink.finish() == [cid(A), cid(LONG)]
    assert writer.request(LIMIT, MIB) is None
    sink.restart()
    with pytest.raises(TooLarge, match="2097152 bytes; the limit is 1048576"):
        _all(sink.write, sink.finish)(car(LONG))
    writer.close()


def _all(write: Callable[[bytes], None], finish: Callable[[], object]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        write(data)
        finish()

    return take


def test_what_an_answer_that_was_cut_off_had_is_not_requested_again(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, {"a": A, "long": LONG, "b": B})
    sink = writer.request(LIMIT, LIMIT)
    assert sink is not None
    datas = {cid(each): each for each in (A, LONG, B)}
    asked = []
    for cut in (0, 20, 70, 90, 60_000, MIB, len(car(LONG)) + 3):
        sink.restart()
        asked.append(len(sink.cids))
        sink.write(car(*(datas[each] for each in sink.cids))[:cut])
    assert asked == [3, 3, 3, 2, 2, 2, 2]
    sink.restart()
    assert (sink.received, sink.cids) == (len(A) + len(LONG), [cid(B)])
    sink.write(car(B))
    assert sink.finish() == []
    sink.restart()
    assert (sink.cids, sink.finish()) == ([], [])
    writer.close()
    assert [(tmp_path / name).read_bytes() for name in ("a", "long", "b")] == [A, LONG, B]


def test_a_lie_that_was_cut_off_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    data = LONG[: MIB + 5]
    writer = new_writer(tmp_path, {"long": data})
    sink = writer.request(LIMIT, LIMIT)
    assert sink is not None
    sink.write((HEAD + block(bytes(coregw.Cid(cid(data))), LONG + b"more"))[:-5])
    sink.restart()
    sink.write(car(data))
    assert sink.finish() == []
    writer.close()
    assert (tmp_path / "long").read_bytes() == data


def test_folders_of_any_depth_are_written_to_in_any_order(tmp_path: Path) -> None:
    deep = ["/".join(f"{level}" for level in range(depth)) for depth in (1, 40, 2, 17, 16, 39, 18, 40, 3)]
    files = {f"{folder}/{name}": f"{folder} {name}".encode() for name in "abc" for folder in deep}
    writer = new_writer(tmp_path, files)
    Answers([*files.values()]).serve(writer, LIMIT, MIB)
    for depth in range(40, 0, -1):
        writer.add_folder([f"{level}" for level in range(depth)], mode=0o700 + depth)
    writer.finish()
    writer.close()
    assert {path: (tmp_path / path).read_bytes() for path in files} == files
    for depth in range(1, 41):
        folder = tmp_path.joinpath(*(f"{level}" for level in range(depth)))
        assert folder.stat().st_mode & 0o777 == 0o700 + depth


def test_a_payload_of_another_size_than_its_file_says_is_refused(tmp_path: Path) -> None:
    writer = _core.FolderWriter(tmp_path)
    writer.add_file(["d", "f"], [(cid(A), 5), (cid(B), 7), (cid(A), None)])
    writer.start()
    sink = writer.request(LIMIT, LIMIT)
    assert sink is not None
    with pytest.raises(InvalidInput, match=r"^d/f: at byte 5 are 7 bytes, but the payload \w+ has 6$"):
        _all(sink.write, sink.finish)(car(A, B))
    writer.close()


@pytest.mark.parametrize("segment", ["", ".", "..", "a/b", "a\0b", "/", "../x"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, segment: str) -> None:
    writer = _core.FolderWriter(tmp_path)
    for path in ([segment], [segment, "x"], ["x", segment]):
        with pytest.raises(InvalidInput, match="can't be a file name"):
            writer.add_file(path, [(cid(A), None)])
        with pytest.raises(InvalidInput, match="can't be a file name"):
            writer.add_folder(path)
        with pytest.raises(InvalidInput, match="can't be a file name"):
            writer.add_link(path, b"x")
    with pytest.raises(InvalidInput, match="needs a name"):
        writer.add_file([], [(cid(A), None)])
    with pytest.raises(InvalidInput, match="consists of payloads"):
        writer.add_file(["x"], [(cid(A), None), (cid(B), None)])
    assert names(tmp_path) == []


def test_no_link_is_followed_and_nothing_that_exists_is_written_to(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")

    def attempt(path: str, **options: bool) -> None:
        for left in incomplete.iterdir() if incomplete is not None else ():
            left.unlink()
        writer = _core.FolderWriter(top, incomplete)
        if options.pop("folder", False):
            writer.add_folder(path.split("/")[:-1], exists=True)
        writer.add_file(path.split("/"), [(cid(A), None)], **options)
        try:
            writer.start()
            sink = writer.request(LIMIT, LIMIT)
            assert sink is not None
            _all(sink.write, sink.finish)(car(A))
        finally:
            writer.close()

    for incomplete in (None, tmp_path / "incomplete"):
        if incomplete is not None:
            incomplete.mkdir()
        for target in ("../outside/file", "../outside/new", "nowhere"):
            top.mkdir()
            (top / "f").symlink_to(target)
            with pytest.raises(InvalidInput, match="f: something of this name exists"):
                attempt("f")
            assert (top / "f").is_symlink()
            (top / "f").unlink()
            (top / "d").symlink_to("../outside")
            with pytest.raises(InvalidInput, match="d: something of this name exists"):
                attempt("d/file")
            with pytest.raises(InvalidInput, match="d: is not a folder"):
                attempt("d/file", folder=True)
            (top / "d").unlink()
            if incomplete is not None:
                (top / "f").symlink_to(target)
                attempt("f", replaces=True)
                assert (top / "f").read_bytes() == A
                assert not (top / "f").is_symlink()
                (top / "f").unlink()
            top.rmdir()
    assert names(outside) == ["file"]
    assert (outside / "file").read_bytes() == b"mine"


def test_attributes_are_set_and_of_special_bits_the_sticky_one_of_folders(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "kept").write_bytes(A)
    writer = _core.FolderWriter(top)
    modes = {"read": 0o400, "run": 0o755, "setuid": 0o6711, "none": 0o000}
    for seconds, (name, mode) in enumerate(modes.items()):
        writer.add_file(["d", name], [(cid(A), None)], mode, seconds * 1_000_000_000 + 7)
    writer.add_folder(["d"], 0o555, -1)
    writer.add_folder(["d", "empty"], 0o1777, 2**62)
    writer.keep_file(["kept"], 0o640, 5)
    writer.add_link(["d", "link"], b"../kept", 12)
    writer.start()
    sink = writer.request(LIMIT, LIMIT)
    assert sink is not None
    _all(sink.write, sink.finish)(car(A))
    writer.finish()
    writer.close()

    def seen(*path: str) -> tuple[int, int]:
        status = top.joinpath(*path).lstat()
        return stat.S_IMODE(status.st_mode), status.st_mtime_ns

    assert [seen("d", name) for name in modes] == [
        (mode & 0o777, seconds * 1_000_000_000 + 7) for seconds, mode in enumerate(modes.values())
    ]
    assert seen("d") == (0o555, -1)
    assert seen("d", "empty")[0] == 0o1777
    assert seen("kept") == (0o640, 5)
    assert seen("d", "link")[1] == 12
    assert (top / "d" / "link").readlink() == Path("../kept")
    top.joinpath("d").chmod(0o700)


@pytest.mark.parametrize("end", [_core.FolderWriter.close, _core.FolderWriter.stop])
@pytest.mark.parametrize("hash_name", ["sha2-256", "identity"])
def test_a_writer_ends_while_one_payload_is_written_to_all_its_places(
    tmp_path: Path, end: Callable[[_core.FolderWriter], None], hash_name: str
) -> None:
    places, data = 1_000_000, b"x" * 100
    name = coregw.payload_cid(data, hash=hash_name)
    writer = _core.FolderWriter(tmp_path)
    writer.add_file(["f"], [(name, len(data))] * places)

    def write() -> None:
        with suppress(InvalidInput):  # the writer has been stopped
            writer.start()
            sink = writer.request(1 << 30, LIMIT)
            assert sink is not None
            sink.write(car(data))
            sink.finish()

    thread = threading.Thread(target=write)
    thread.start()
    while writer.written == 0:
        time.sleep(0.001)
    end(writer)
    thread.join()
    assert 0 < writer.written < places * len(data)
    assert writer.written == (tmp_path / "f").stat().st_size
    writer.close()


def test_a_writer_that_is_stopped_makes_no_links_and_folders(tmp_path: Path) -> None:
    writer = _core.FolderWriter(tmp_path)
    writer.start()
    writer.add_folder(["folder"])
    writer.add_link(["link"], b"target")
    writer.stop()
    for call in (writer.finish, lambda: writer.request(1 << 30, LIMIT)):
        with pytest.raises(InvalidInput, match="stopped"):
            call()
    writer.close()
    assert names(tmp_path) == []


def test_folders_are_never_more_open_than_before_and_afterwards(tmp_path: Path) -> None:
    """Others who may enter a folder could read what is written before it gets its mode."""
    (tmp_path / "closes").mkdir(mode=0o755)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2777)
    modes = {"new": 0o750, "new/secret": 0o700, "read-only": 0o555, "closes": 0o710, "shared": 0o1777}
    writer = _core.FolderWriter(tmp_path)
    for path, mode in modes.items():
        writer.add_folder(path.split("/"), mode, exists=(tmp_path / path).exists())
        writer.add_file([*path.split("/"), "file"], [(cid(A), None)], 0o644)
    writer.start()

    def found() -> dict[str, int]:
        return {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in modes}

    answers = Answers([A])
    (sink,) = [writer.request(LIMIT, LIMIT)]
    assert sink is not None
    meanwhile = {"new": 0o750, "new/secret": 0o700, "read-only": 0o755, "closes": 0o710, "shared": 0o3777}
    assert found() == meanwhile
    sink.write(car(*(answers.datas[each] for each in sink.cids)))
    assert sink.finish() == []
    writer.finish()
    writer.close()
    assert found() == {**modes, "shared": 0o3777}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("swapped", ["hard link", "fifo", "read fifo", "other file"])
def test_a_file_that_is_swapped_while_it_is_written_is_not_written_to(
    tmp_path: Path, swapped: str, staged: bool
) -> None:
    top, incomplete = tmp_path / "top", tmp_path / "incomplete"
    top.mkdir()
    incomplete.mkdir()
    (tmp_path / "victim").write_bytes(b"mine")
    data = some_bytes(3 * MIB)
    with closing(_core.FolderWriter(top, incomplete if staged else None)) as writer:
        writer.add_file(["f"], [(cid(data), len(data))])
        writer.start()
        sink = writer.request(LIMIT, LIMIT)
        assert sink is not None
        answer = car(data)
        sink.write(answer[: 2 * MIB])
        assert sink.received == 0  # no payload is complete; waits for the threads
        (written,) = (incomplete if staged else top).iterdir()
        written.unlink()
        reader = None
        if swapped == "hard link":
            written.hardlink_to(tmp_path / "victim")
        elif swapped == "other file":
            written.write_bytes(b"mine")
        else:
            os.mkfifo(written)
            reader = os.open(written, os.O_RDONLY | os.O_NONBLOCK) if swapped == "read fifo" else None
        with pytest.raises(InvalidInput, match=r"^f: was replaced by something else while it was written"):
            _all(sink.write, sink.finish)(answer[2 * MIB :])
        if reader is not None:
            os.close(reader)
        assert swapped in {"fifo", "read fifo"} or written.read_bytes() == b"mine"
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_a_file_that_gets_another_name_while_it_is_written_is_not_written_to(tmp_path: Path) -> None:
    data = some_bytes(3 * MIB)
    with closing(_core.FolderWriter(tmp_path)) as writer:
        writer.add_file(["f"], [(cid(data), len(data))])
        writer.start()
        sink = writer.request(LIMIT, LIMIT)
        assert sink is not None
        sink.write(car(data)[: 2 * MIB])
        assert sink.received == 0
        (tmp_path / "other").hardlink_to(tmp_path / "f")
        with pytest.raises(InvalidInput, match=r"^f: was replaced by something else while it was written"):
            _all(sink.write, sink.finish)(car(data)[2 * MIB :])


def test_attributes_are_not_set_of_what_has_taken_the_place_of_a_kept_file(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "kept").write_bytes(A)
    (tmp_path / "victim").write_bytes(A)
    (tmp_path / "victim").chmod(0o600)
    seen = (top / "kept").stat()
    for swap in (lambda: (top / "kept").hardlink_to(tmp_path / "victim"), lambda: os.mkfifo(top / "kept")):
        (top / "kept").unlink()
        swap()
        with closing(_core.FolderWriter(top)) as writer:
            writer.keep_file(["kept"], 0o644, 5, file=(seen.st_dev, seen.st_ino))
            writer.start()
            with pytest.raises(InvalidInput, match="kept: was replaced by something else"):
                writer.finish()
    assert stat.S_IMODE((tmp_path / "victim").stat().st_mode) == 0o600
