"""Sorting arcs in bounded memory: the same root as a map in memory, and errors that name line or path."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coregw import InvalidInput, Map, payload_cid
from coregw._core import ArcSorter

SMALL_RUN = 2000
TARGETS = [payload_cid(bytes([i])) for i in range(50)]


def arcs_of(count: int) -> dict[str, str]:
    chance = random.Random(7)
    names = ['"', "\\", "é", "\t", "a b", "\u0001", "x" * 300]
    return {
        f"{chance.choice(names)}{i % 17}/{chance.getrandbits(40):x}": TARGETS[i % len(TARGETS)] for i in range(count)
    }


def sorted_of(arcs: dict[str, str], **options: object) -> ArcSorter:
    sorter = ArcSorter(**options)  # type: ignore[arg-type]
    sorter.add(arcs)
    sorter.end()
    return sorter


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
@pytest.mark.parametrize("run_bytes", [SMALL_RUN, 1 << 25])
def test_root_is_that_of_the_map_in_memory_whether_arcs_are_spilled_or_not(
    tmp_path: Path, suite: str, run_bytes: int
) -> None:
    arcs = arcs_of(5000)
    sorter = sorted_of(arcs, folder=tmp_path, run_bytes=run_bytes)
    expected = Map(arcs, suite)
    assert sorter.arcs == 5000
    assert (sorter.spooled_bytes > 0) is (run_bytes == SMALL_RUN)
    assert sorter.root(suite) == expected.root == sorter.root(suite)
    lines = b"".join(sorter.lines(4096))
    again = ArcSorter(run_bytes=run_bytes)
    for at in range(0, len(lines), 977):  # lines are cut anywhere
        again.feed(lines[at : at + 977])
    again.end()
    assert again.root(suite) == expected.root
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_tab_separated_lines_and_pairs_are_read() -> None:
    sorter = ArcSorter(None, "tsv", SMALL_RUN)
    arcs = {path.replace("\t", " "): target for path, target in arcs_of(300).items()}
    sorter.feed("\r\n".join(f"{path}\t{target}" for path, target in arcs.items()).encode())
    sorter.add([(["b", "c"], TARGETS[0])])
    sorter.end()
    assert sorter.root() == Map(arcs | {"b/c": TARGETS[0]}).root
    assert sorted_of({}).root() == Map({}).root
    assert list(sorted_of({}).lines(100)) == []


@pytest.mark.parametrize("run_bytes", [SMALL_RUN, 1 << 25])
def test_a_path_that_occurs_twice_is_named(run_bytes: int) -> None:
    arcs = [*arcs_of(2000).items(), ("m/twice", TARGETS[0])]
    sorter = ArcSorter(run_bytes=run_bytes)
    with pytest.raises(InvalidInput, match='the path "m/twice" occurs twice') as refused:
        sorter.add([("m/twice", TARGETS[0]), *arcs])
        sorter.end()
        sorter.root()
    assert refused.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b'["a"]', "invalid_request", "line 2: expected"),
        (b'["a","x"]', "invalid_cid", 'line 2: arc "a": CID "x"'),
        (b'["a//b","%s"]' % TARGETS[0].encode(), "invalid_path", 'line 2: path "a//b": empty segment'),
    ],
)
def test_a_malformed_line_is_named(line: bytes, code: str, message: str) -> None:
    sorter = ArcSorter()
    with pytest.raises(InvalidInput) as refused:
        sorter.feed(b'["ok","bafkqaaa"]\n' + line + b"\n")
    assert (refused.value.code, refused.value.message[: len(message)]) == (code, message)
    with pytest.raises(InvalidInput, match='arc "b"'):
        ArcSorter().add([("a", TARGETS[0]), ("b", "x")])


def test_order_of_calls_is_checked() -> None:
    sorter = ArcSorter()
    with pytest.raises(InvalidInput, match="not ended"):
        sorter.root()
    sorter.end()
    for call in (sorter.end, lambda: sorter.feed(b""), lambda: sorter.add({})):
        with pytest.raises(InvalidInput, match="have ended"):
            call()
    with pytest.raises(InvalidInput, match="suite"):
        sorter.root("md5")
    with pytest.raises(InvalidInput, match="format"):
        ArcSorter(None, "csv")


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError, match="temporary file of sorted arcs"):
        sorted_of(arcs_of(100), folder=missing, run_bytes=SMALL_RUN)


def test_a_full_disk_is_an_os_error_with_its_number() -> None:
    code = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from coregw._core import ArcSorter
try:
    sorter = ArcSorter(run_bytes=2000)
    sorter.add((f"{i:06}", "bafkqaaa") for i in range(100_000))
    sorter.end()
except OSError as error:
    sys.exit(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 27  # EFBIG


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_number_of_arcs() -> None:
    code = """
import resource, sys
from coregw._core import ArcSorter
def chunks(count):
    for at in range(0, count, 1000):
        yield b"".join(b'["%032x/a","bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi"]\\n'
                       % (i * 0x9e3779b97f4a7c15f39cc0605cedc835 % 2**128) for i in range(at, at + 1000))
sorter = ArcSorter(run_bytes=4 << 20)
for chunk in chunks(int(sys.argv[1])):
    sorter.feed(chunk)
sorter.end()
sorter.root()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""

    def peak(count: int) -> int:
        done = subprocess.run([sys.executable, "-c", code, str(count)], capture_output=True, check=True, timeout=120)
        return int(done.stdout)

    # 300,000 arcs take 32 MiB of lines, 31 MiB in memory before sorting and as much after, and 40 MiB as a tree.
    assert peak(300_000) - peak(50_000) < 24 << 10


def test_what_the_iterable_raises_passes_through() -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield "a", TARGETS[0]
        raise OSError(os.strerror(5))

    with pytest.raises(OSError, match=os.strerror(5)):
        ArcSorter().add(broken())
