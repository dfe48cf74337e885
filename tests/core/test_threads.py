"""Objects of the extension that threads share, which run at the same time on free-threaded Python."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from coregw import Change, Cid, List, Map, PayloadHasher, ProofError, payload_cid, verify_index, verify_key, verify_keys

T = TypeVar("T")
THREADS = 8
CID = payload_cid(b"hello")
PATHS = [f"folder/{number}" for number in range(500)]


def at_once(work: Callable[[int], T]) -> list[T]:
    """What `work` returns in each of several threads that begin together."""
    barrier = Barrier(THREADS)

    def begin(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def test_the_extension_does_not_enable_the_gil() -> None:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled()  # type: ignore[attr-defined]


def test_threads_build_change_and_verify_shared_trees() -> None:
    tree = Map(dict.fromkeys(PATHS, CID))
    elements = List([CID] * 500)

    def work(number: int) -> tuple[str, str, list[str]]:
        proof = tree.prove_keys(PATHS)
        assert set(verify_keys(tree.root, PATHS, proof)) == {CID}
        for path in PATHS[number::THREADS]:
            assert verify_key(tree.root, path, tree.prove(path)) == CID
            try:
                verify_key(tree.root, path, tree.prove(path)[:-1])
            except ProofError:
                continue
            raise AssertionError(path)
        assert verify_index(elements.root, number, elements.prove(number)).target == CID
        other = payload_cid(b"%d" % number)
        assert tree.apply([Change(PATHS[0], CID, other)]).tree[PATHS[0]] == other
        return Map(dict.fromkeys(PATHS, CID)).root, List([CID] * 500).root, list(tree)

    assert at_once(work) == [(tree.root, elements.root, sorted(PATHS))] * THREADS


def test_a_shared_iterator_gives_each_path_once_or_refuses() -> None:
    paths = iter(Map(dict.fromkeys(PATHS, CID)))

    def take(_: int) -> list[str]:
        taken = []
        while True:
            try:
                taken.append(next(paths))
            except StopIteration:
                return taken
            except RuntimeError:  # "Already borrowed": another thread is in it
                continue

    assert sorted(path for taken in at_once(take) for path in taken) == sorted(PATHS)


def test_a_shared_hasher_takes_each_chunk_whole_or_refuses() -> None:
    chunk = b"x" * 100_000
    hasher = PayloadHasher()

    def update(_: int) -> int:
        taken = 0
        for _ in range(20):
            try:
                hasher.update(chunk)
                taken += 1
            except RuntimeError:
                continue
        return taken

    assert hasher.cid() != CID
    assert hasher.cid() == payload_cid(b"")
    count = sum(at_once(update))
    assert hasher.cid() == payload_cid(chunk * count)


def test_threads_make_the_same_exceptions_and_tuples() -> None:
    """Their classes are made on first use."""

    def work(number: int) -> tuple[type[Exception], type[object], str]:
        try:
            Cid(f"no CID {number}")
        except ValueError as error:
            return type(error), type(List([CID])[0]), Cid(CID).text
        raise AssertionError

    assert len(set(at_once(work))) == 1
