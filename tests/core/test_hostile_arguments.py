"""Arguments that lie, never end, or raise: none crashes the process, and each ends with an ordinary exception.

A panic in Rust would come out as a `BaseException` that `except Exception` lets through; memory that can't be had
aborts the process. So what could do either runs in a process of its own.
"""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import coregw
from coregw import Change, Cid, CoregwError, IndexNotFound, InvalidInput, List, Map, PayloadHasher, TrustStore, _core
from coregw.client import ClientSettings
from coregw.messages.management import PublishedRecord
from coregw.messages.query import PublicationProof
from coregw.tlog.checkpoint import Checkpoint, freeze_entry, publication_entry, verify_publication
from coregw.tlog.note import Signer, load_private_key, new_private_key
from coregw.tlog.tree import leaf_hash, node_hash, verify_consistency, verify_inclusion
from tables import rows

CID, OTHER = coregw.payload_cid(b"one"), coregw.payload_cid(b"other")
MAP = Map({"docs/readme": CID, "docs/guide": OTHER})
LIST = List([CID] * 10)

# ------------------------------------------------------------------- lengths and iterators, in their own processes

SETUP = """
import itertools, json, resource, signal, tempfile
import coregw
from coregw import Change, List, Map, _core

CID = coregw.payload_cid(b"one")
MAP = Map({"a": CID})
RESOLVE = json.dumps({"profile": "core.resolve/v0alpha1", "root": MAP.root, "segments": ["a"]}).encode()
OPERATION = _core.Operation.resolve(_core.PageCache(1 << 20), RESOLVE)

with tempfile.TemporaryDirectory() as folder:
    UPLOAD = _core.FolderUpload(_core.survey(folder))
SORTER = _core.ArcSorter()
SORTER.end()
WRITER = _core.FolderWriter("/")

class LongList(list):
    def __len__(self): return 1 << 60

class LongDict(dict):
    def __len__(self): return 1 << 42

class LongHint:
    def __iter__(self): return self
    def __next__(self): raise StopIteration
    def __length_hint__(self): return 1 << 60

class SelfClearing(list):
    def __iter__(self):
        while True:
            self.clear()
            yield CID

resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))

def on_alarm(*_):
    raise TimeoutError

signal.signal(signal.SIGALRM, on_alarm)
"""


def outcome(expression: str) -> str:
    """The value of `expression` in a process with 512 MiB of memory, or the name of the exception that it raises."""
    code = f"{SETUP}\ntry:\n    print({expression})\nexcept BaseException as error:\n    print(type(error).__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@rows(
    ("expression", "expected"),
    [
        ("List(range(1 << 40))", "TypeError"),
        ("List(range(1 << 60))", "TypeError"),
        ("len(List(LongList([CID])))", "1"),
        ("len(List(LongHint()))", "0"),
        ("UPLOAD.file_lines(None, (1 << 64) - 1)", "InvalidInput"),
        ("UPLOAD.file_lines(None, 1 << 62)", "InvalidInput"),
        ("UPLOAD.record_lines('all', False, 1 << 62)", "InvalidInput"),
        ("UPLOAD.file_lines(None, 0)", "InvalidInput"),
        ("list(UPLOAD.file_lines(None, 1 << 20))", "[]"),
        ("SORTER.lines((1 << 64) - 1)", "InvalidInput"),
        ("SORTER.lines(1 << 46)", "InvalidInput"),
        ("_core.files_match('/', [('f', [(CID, (1 << 64) - 1)] * 2)])", "TooLarge"),
        ("_core.files_match('/', [('f', [(CID, 1 << 62), (CID, 1 << 62), (CID, None)])])", "TooLarge"),
        ("WRITER.supply_list(0, LongList([(CID, 1)]))", "InvalidInput"),
        ("WRITER.supply_list(0, range(1 << 60))", "TypeError"),
        ("List([CID], LongList([5])).total_size", "5"),
        ("Map(range(1 << 60))", "TypeError"),
        ("len(Map(LongList([('a', CID)])))", "1"),
        ("len(Map(LongDict({'a': CID})))", "1"),
        ("len(MAP.prove_many(LongList(['a'])))", "1"),
        ("len(MAP.apply(LongList([Change('b', None, CID)])).tree)", "2"),
        ("coregw.verify_key_many(MAP.root, LongList([('b', MAP.prove('b'))]))", "[None]"),
        ("OPERATION.supply_pages(range(1 << 40))", "TypeError"),
        ("OPERATION.supply_pages(LongList([b'']))", "InvalidInput"),
        ("OPERATION.supply_roots(range(1 << 40))", "TypeError"),
    ],
)
def test_no_memory_is_reserved_by_a_declared_length(expression: str, expected: str) -> None:
    assert outcome(expression) == expected


@pytest.mark.slow
@rows(
    "expression",
    [
        "List(itertools.repeat(CID))",
        "List(SelfClearing([CID]))",
        "Map(itertools.repeat(('a', CID)))",
        "MAP.prove_many(itertools.repeat('a'))",
        "MAP.prove_keys(itertools.repeat('a'))",
        "MAP.apply(itertools.repeat(Change('a', None, CID)))",
        "coregw.verify_key_many(MAP.root, itertools.repeat(('a', b'')))",
        "OPERATION.supply_pages(itertools.repeat(b''))",
    ],
)
def test_an_endless_iterator_ends_with_a_memory_error(expression: str) -> None:
    assert outcome(expression) == "MemoryError"


def test_an_endless_iterator_can_be_interrupted() -> None:
    assert outcome("(signal.setitimer(signal.ITIMER_REAL, 0.02), List(itertools.repeat(CID)))") == "TimeoutError"


class Endless(Sequence[str]):
    def __init__(self, item: str) -> None:
        self.item = item

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat(self.item)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: object) -> str:  # type: ignore[override]
        return self.item


@pytest.mark.parametrize("segment", ["a", ""])
def test_endless_path_is_read_only_up_to_the_maximum_path_length(segment: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        coregw.encode_key(Endless(segment))
    assert caught.value.code == "invalid_path"


def test_endless_sizes_are_read_no_further_than_the_elements() -> None:
    with pytest.raises(InvalidInput, match="more sizes than the 2 elements"):
        List([CID, CID], itertools.repeat(1))


class Repeating(Mapping[str, str]):
    """Has the length and the items of `MAP`, but yields another number of them."""

    def __init__(self, paths: Iterator[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[str]:
        return self.paths

    def __len__(self) -> int:
        return len(MAP)

    def __getitem__(self, path: str) -> str:
        return MAP[path]


@pytest.mark.parametrize("paths", [itertools.repeat("docs/readme"), iter(["docs/readme"])], ids=["more", "fewer"])
def test_a_mapping_with_another_number_of_items_than_its_length_is_not_equal(paths: Iterator[str]) -> None:
    tree = MAP
    assert tree != Repeating(paths)


# ------------------------------------------------------------------------------------- code that arguments run


class Index:
    """An integer whose value can't be had."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __index__(self) -> int:
        raise self.error


def raising(error: type[BaseException]) -> Iterator[str]:
    yield CID
    raise error


@rows("error", [LookupError, KeyboardInterrupt])
@rows(
    "use",
    [
        lambda error: List(raising(error)),
        lambda error: List([CID], [Index(error)]),  # type: ignore[list-item]
        lambda error: LIST[Index(error)],  # type: ignore[call-overload]
        lambda error: LIST[:: Index(error)],  # type: ignore[misc]
        lambda error: LIST.index(CID, Index(error)),  # type: ignore[arg-type]
        lambda error: LIST.prove(Index(error)),  # type: ignore[arg-type]
        lambda error: _core.codec_code(Index(error)),  # type: ignore[arg-type]
        lambda error: coregw.verify_scan(MAP.root, (), None, Index(error), b""),  # type: ignore[arg-type]
    ],
)
def test_exception_raised_by_an_argument_propagates(
    use: Callable[[type[BaseException]], object], error: type[BaseException]
) -> None:
    with pytest.raises(error):
        use(error)


def test_an_iterator_may_use_the_object_that_reads_it() -> None:
    hasher = PayloadHasher()

    def arcs() -> Iterator[tuple[str, str]]:
        for number in range(5):
            hasher.update(bytes([number]))
            yield str(number), Map({str(number): hasher.cid()}).root

    assert len(Map(arcs())) == 5


def test_an_argument_may_grow_while_it_is_read() -> None:
    elements = [CID]

    def sizes() -> Iterator[int]:
        elements.append(CID)
        yield 1

    assert len(List(elements, sizes())) == 1


# ------------------------------------------------------------------------------------------------ integers

HUGE = (1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 100)


@rows("number", [*HUGE, -1, *(-number for number in HUGE)])
def test_an_integer_out_of_range_is_an_ordinary_error(number: int) -> None:
    for use in (
        lambda: LIST.prove(number),
        lambda: LIST.prove_range(0, number),
        lambda: List([CID], [number]),
        lambda: MAP.scan((), None, number),
        lambda: LIST.apply([Change(number, None, CID)]),
        lambda: _core.block_head(CID, number),
    ):
        with pytest.raises(InvalidInput):
            use()
    with pytest.raises(IndexNotFound):
        LIST[number if number > 0 else number - len(LIST)]


@rows("step", [1 << 53, (1 << 63) - 1, 1 << 63, 1 << 100])
def test_a_slice_takes_every_step_that_a_plain_list_takes(step: int) -> None:
    plain = list(LIST)
    for cut in (slice(5, None, step), slice(9, 0, -step), slice(None, None, step), slice(-step, step, 3)):
        assert LIST[cut] == plain[cut]
    assert LIST.index(CID, -step, step) == 0


# ------------------------------------------------------------------------------------ objects in a wrong state

REQUEST = json.dumps({"profile": "core.resolve/v0alpha1", "root": MAP.root, "segments": ["docs", "readme"]}).encode()


@rows(
    "misuse",
    [
        lambda operation: operation.supply_pages([]),
        lambda operation: operation.supply_pages([b"no page"]),
        lambda operation: operation.supply_roots([]),
        lambda operation: operation.supply_roots([True, True]),
        lambda operation: operation.supply_bytes(b""),
    ],
)
@rows("needs", ["nothing", "roots", "pages"])
def test_supply_without_a_matching_need_is_refused(misuse: Callable[[_core.Operation], None], needs: str) -> None:
    operation = _core.Operation.resolve(_core.PageCache(1 << 20), REQUEST)
    if needs != "nothing":
        operation.poll(1000)
    if needs == "pages":
        operation.supply_roots([True])
        operation.poll(1000)
    with pytest.raises(CoregwError) as caught:
        misuse(operation)
    assert isinstance(caught.value, InvalidInput | coregw.StoreDamaged)


def test_more_pages_than_an_operation_needs_are_refused() -> None:
    cache = _core.PageCache(1 << 20)
    making = _core.Operation.create_root(cache, json.dumps({"arcs": dict(MAP)}).encode())
    making.poll(1000)
    making.supply_roots([False])
    made = making.poll(1000)
    assert isinstance(made, _core.Need)
    assert made.store is not None
    [(_, page)], _, _, _ = made.store
    operation = _core.Operation.resolve(cache, REQUEST)
    operation.poll(1000)
    with pytest.raises(InvalidInput, match="2 pages supplied, but the operation needs none"):
        operation.supply_pages([page, page])
    operation.supply_roots([True])
    operation.poll(1000)
    with pytest.raises(InvalidInput, match="2 pages supplied, but the operation needs 1"):
        operation.supply_pages([page, page])
    operation.supply_pages([page])
    assert isinstance(operation.poll(1000), bytes)


@pytest.mark.parametrize("held", [True, False])
def test_an_operation_that_has_ended_is_not_polled_again(held: bool) -> None:
    operation = _core.Operation.resolve(_core.PageCache(1 << 20), REQUEST.replace(b'"docs", "readme"', b""))
    if held:
        assert isinstance(operation.poll(1000), bytes), "no segments: the root itself is the target"
    else:
        operation = _core.Operation.resolve(_core.PageCache(1 << 20), REQUEST)
        operation.poll(1000)
        operation.supply_roots([False])
        with pytest.raises(coregw.RootNotFound):
            operation.poll(1000)
    for _ in range(2):
        with pytest.raises(InvalidInput, match="has ended"):
            operation.poll(1000)


def test_threads_that_share_an_object_get_results_or_ordinary_errors() -> None:
    paths, hasher = iter(Map({f"{number:04}": CID for number in range(2000)})), PayloadHasher()
    start = threading.Barrier(4)

    def work(_: int) -> list[str]:
        start.wait()
        hasher.update(bytes(100_000))
        found = []
        while True:
            try:
                found.append(next(paths))
            except StopIteration:
                return found
            except RuntimeError:  # another thread is in `next`
                continue

    with ThreadPoolExecutor(4) as pool:
        found = list(itertools.chain.from_iterable(pool.map(work, range(4))))
    assert sorted(found) == [f"{number:04}" for number in range(2000)]
    assert hasher.cid() == coregw.payload_cid(bytes(400_000))


# --------------------------------------------------------------------------- copies, subclasses, construction


@rows("made", [PayloadHasher(), _core.PageCache(1 << 20), iter(MAP), iter(LIST)], ids=lambda made: type(made).__name__)
def test_objects_with_hidden_state_can_be_neither_copied_nor_pickled(made: object) -> None:
    for take in (copy.copy, copy.deepcopy, pickle.dumps, lambda value: pickle.dumps(value, 0)):
        with pytest.raises((TypeError, pickle.PicklingError), match=r"(cannot|[Cc]an't) pickle"):
            take(made)


@rows("made", [Map, List, coregw.Cid, PayloadHasher])
def test_a_class_of_the_extension_has_no_subclasses_and_no_empty_instances(made: type) -> None:
    with pytest.raises(TypeError, match="base type"):
        type("Sub", (made,), {})
    with pytest.raises(TypeError, match="not safe"):
        object.__new__(made)


# ------------------------------------------------------------------- numbers that are none


def test_a_bool_or_a_float_is_no_count_index_or_revision(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    store = TrustStore(tmp_path / "trust.json")
    leaf, other = leaf_hash(b"one"), leaf_hash(b"other")
    tree = node_hash(leaf, other)
    record = PublishedRecord(
        scope="s", name="n", root=MAP.root, revision=1, previous_root=None, published_at=now, frozen=False
    )
    head = Checkpoint("example.org", 1, leaf_hash(publication_entry("s", "n", 1, bytes(Cid(MAP.root)), None, now)))
    answer = PublicationProof(record=record, size=1, root_hash="", inclusion=[], consistency=[])
    assert verify_publication("s", "n", answer, head, None, 1) == record
    cosigner = Signer("example.org", load_private_key(new_private_key(), "new"), 4)
    calls: dict[str, Callable[[Any], object]] = {
        "List.prove": LIST.prove,
        "List.prove_range": lambda number: LIST.prove_range(number, 2),
        "List": lambda number: List([CID], sizes=[number]),
        "List.apply": lambda number: LIST.apply([Change(number, CID, OTHER)]),
        "Map.scan": lambda number: MAP.scan(limit=number),
        "verify_index": lambda number: coregw.verify_index(LIST.root, number, LIST.prove(1)),
        "verify_range": lambda number: coregw.verify_range(LIST.root, number, 2, LIST.prove_range(1, 2)),
        "payload_cid": lambda number: coregw.payload_cid(b"", number),
        "size": lambda number: coregw.encode_attributes(size=number),
        "mode": lambda number: coregw.encode_attributes(mode=number),
        "mtime_ns": lambda number: coregw.encode_attributes(mtime_ns=number),
        "owner": lambda number: coregw.encode_attributes(owner=(number, 1)),
        "group": lambda number: coregw.encode_attributes(owner=(1, number)),
        "publication_entry": lambda number: publication_entry("s", "n", number, b"", None, now),
        "freeze_entry": lambda number: freeze_entry("s", "n", number, now),
        "verify_publication": lambda number: verify_publication("s", "n", answer, head, None, number),
        "verify_inclusion": lambda number: verify_inclusion(b"other", number, 2, tree, [leaf]),
        "verify_consistency": lambda number: verify_consistency(number, leaf, 2, tree, [other]),
        "Checkpoint.text": lambda number: Checkpoint("example.org", number, leaf).text(),
        "Signer.sign": lambda number: cosigner.sign("text\n", number),
        "TrustStore.trust": lambda number: store.trust("trusted", MAP.root, revision=number),
        "TrustStore.observe": lambda number: store.observe("https://a", "s", "n", number, MAP.root),
        "ClientSettings.attempts": lambda number: ClientSettings(attempts=number),
        "ClientSettings.connections": lambda number: ClientSettings(connections=number),
    }
    taken = []
    for name, call in calls.items():
        for number in (True, 1.0, 1.5):
            try:
                call(number)
            except TypeError as error:
                if "int" not in str(error):
                    taken.append((name, number, str(error)))
            else:
                taken.append((name, number, "no error"))
        call(1)
    assert taken == []
    with pytest.raises(TypeError, match="float, not bool"):
        ClientSettings(connect_seconds=True)
    store.accept("trusted", LIST.root, revision=2)
    for number in (True, 3.0):
        with pytest.raises(TypeError, match="revision is an int"):
            store.accept("trusted", MAP.root, revision=number)  # type: ignore[arg-type]
    assert store.root("trusted") == LIST.root  # the file can be read
