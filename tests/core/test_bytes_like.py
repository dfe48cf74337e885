"""Every function that takes bytes takes them from any object with the buffer protocol, with the same outcome."""

from __future__ import annotations

import ast
import mmap
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coregw import _core
from coregw._core import Cid, List, Map, PageCache, payload_cid
from coregw.folders.tree import survey
from listing_pages import listing
from tables import rows

STUB = Path(_core.__file__).with_name("_core.pyi")

As = Callable[[bytes], Any]


def mapped(data: bytes) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ)


def strided(data: bytes) -> memoryview:
    """Not contiguous."""
    return memoryview(b"".join(bytes([each, 255]) for each in data))[::2]


KINDS: list[As] = [bytearray, memoryview, mapped, strided]

HELLO = payload_cid(b"hello")
M = Map({"a": HELLO, "b": HELLO})
L = List([HELLO], sizes=[5])
CHANGES = [_core.Change("a", HELLO, payload_cid(b"new"))]
PROOF = M.prove("a")
RESOLVE = b'{"profile":"core.resolve/v0alpha1","root":"%b","segments":["a"]}' % M.root.encode()
SCAN = b'{"profile":"core.scan/v0alpha1","root":"%b","prefix":[]}' % M.root.encode()
BLOCK = bytes(Cid(HELLO)) + b"hello"
ATTRIBUTES = _core.encode_attributes("file", size=5)


def hasher(b: As) -> str:
    made = _core.PayloadHasher()
    made.update(b(b"hello"))
    return made.cid()


def checked(b: As) -> bool:
    made = _core.PayloadCheck(HELLO)
    made.update(b(b"hello"))
    return made.matches()


def batch_car(b: As) -> object:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_bytes(bytes(1000))
        upload = _core.FolderUpload(survey(Path(folder)))
        upload.start()
        batch = upload.next_batch(60.0)
        assert batch is not None
        return batch.car(b(b"\0"))


def folder_answer(b: As) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return _core.FolderUpload(survey(Path(folder))).answer(b(b"\0"))


def sink(b: As, *, method: str = "write") -> object:
    with tempfile.TemporaryDirectory() as folder:
        writer = _core.FolderWriter(folder)
        writer.add_listed(listing({"file": HELLO}), 0)
        writer.start()
        request = writer.request(1 << 20, 1 << 20)
        assert request is not None
        car = _core.payload_car_header() + _core.block_head(Cid(HELLO), 5) + b"hello"
        if method == "write":
            request.write(b(car))
        else:
            request.writelines([b(car[:30]), b(car[30:])])
        missing = request.finish()
        writer.finish()
        return missing, Path(folder, "file").read_bytes()


def sorter(b: As) -> object:
    made = _core.ArcSorter()
    made.feed(b(b'["a","%b"]\n' % HELLO.encode()))
    made.end()
    return made.root("sha2-256")


def car_reader(b: As) -> object:
    reader = _core.CarReader(1 << 20, 10)
    reader.feed(b(_core.payload_car_header() + _core.block_head(Cid(HELLO), 5) + b"hello"))
    return reader.blocks, reader.bytes


def operation(name: str, body: bytes, *rest: object) -> Callable[[As], object]:
    def run(b: As) -> object:
        before = [M.root] if name == "mutate" else []
        polled = getattr(_core.Operation, name)(PageCache(1 << 20), *before, b(body), *rest).poll(1 << 20)
        return polled if isinstance(polled, bytes) else (polled.pages, polled.roots)

    return run


def supplied(b: As) -> object:
    """Pages of a wrong length are refused by their digests."""
    made = _core.Operation.resolve(PageCache(1 << 20), RESOLVE)
    need = made.poll(1 << 20)
    assert isinstance(need, _core.Need)
    made.supply_roots([True])
    need = made.poll(1 << 20)
    assert isinstance(need, _core.Need)
    return made.supply_pages([b(b"no page")])


def results(name: str) -> Callable[[As], object]:
    return lambda b: getattr(_core, name)(b(RESOLVE), b(b"{}"))


CALLS: dict[str, Callable[[As], object]] = {
    "payload_cid": lambda b: payload_cid(b(b"hello")),
    "PayloadHasher.update": hasher,
    "PayloadCheck.update": checked,
    "payload_matches": lambda b: (
        _core.payload_matches(HELLO, b(b"hello")),
        _core.payload_matches(b(bytes(Cid(HELLO))), b"x"),
    ),
    "is_linkless": lambda b: _core.is_linkless(payload_cid(b"\xa0", "dag-cbor"), b(b"\xa0")),
    "apply_difference": lambda b: _core.apply_difference(b(bytes(32)), b(b"page")),
    "join_differences": lambda b: _core.join_differences(b(bytes(32)), b(bytes(32)), 400),
    "page_guides": lambda b: _core.page_guides([(b(bytes(32)), b(b"no page"))]),
    "FolderUpload.answer": folder_answer,
    "PayloadBatch.car": batch_car,
    "verify_key": lambda b: _core.verify_key(b(bytes(Cid(M.root))), "a", b(PROOF)),
    "verify_key_many": lambda b: _core.verify_key_many(M.root, [("a", b(PROOF))]),
    "encode_attributes": lambda b: (
        _core.encode_attributes("link", link=b(b"go")),
        _core.encode_attributes("file", xattrs={"user.a": b(b"v")}),
    ),
    "decode_attributes": lambda b: _core.decode_attributes(ATTRIBUTES[0], b(ATTRIBUTES[1])),
    "FolderListing.add_files": lambda b: _core.FolderListing(M.root).add_files(b(SCAN), b(b"{}")),
    "FolderListing.add_records": lambda b: _core.FolderListing(M.root).add_records(b(SCAN), b(b"{}")),
    "FolderListing.supply_record": lambda b: _core.FolderListing(M.root).supply_record(HELLO, b(b"record")),
    "PayloadSink.write": sink,
    "PayloadSink.writelines": partial(sink, method="writelines"),
    "chunk_sizes": lambda b: _core.chunk_sizes(b(bytes(300_000))),
    "verify_keys": lambda b: _core.verify_keys(M.root, ["a", "c"], b(M.prove_keys(["a", "c"]))),
    "verify_index": lambda b: _core.verify_index(L.root, 0, b(L.prove(0))),
    "verify_range": lambda b: _core.verify_range(L.root, 1, None, b(L.prove_range(1))),
    "verify_scan": lambda b: _core.verify_scan(M.root, "", None, 10, b(M.scan("", limit=10).proof)),
    "verify_changes": lambda b: _core.verify_changes(M.root, CHANGES, b(M.apply(CHANGES).proof)),
    **{
        name: results(name)
        for name in ("verify_resolve", "verify_read", "verify_map_proof", "verify_scan_result", "verify_transition")
    },
    "verify_diff": lambda b: _core.verify_diff(M.root, M.root, b(b"{}")),
    "root_block": lambda b: _core.root_block(M.root, b(b"no page")),
    "KeyFilter.add": lambda b: _core.KeyFilter(64).add([b(b"key")]),
    "KeyFilter.may_hold": lambda b: _core.KeyFilter(64).may_hold([b(b"key")]),
    "KeyFilter.add_payloads_of": lambda b: _core.KeyFilter(64).add_payloads_of([(b(bytes(32)), b(b"no page"))]),
    "page_links": lambda b: _core.page_links([(b(bytes(32)), b(b"no page"))]),
    "read_has_batch": lambda b: _core.read_has_batch(b(b'{"cids":["%b"]}' % HELLO.encode())),
    "read_cids": lambda b: _core.read_cids(b(bytes(Cid(HELLO)))),
    "read_varint": lambda b: _core.read_varint(b(bytes([7, 0xAC, 2])), 1),
    "read_get_pages": lambda b: _core.read_get_pages(b(b'{"pages":["%b"]}' % (b"0" * 64))),
    "read_get_batch": lambda b: _core.read_get_batch(b(b'{"cids":["%b"]}' % HELLO.encode())),
    "resolve_verdict": lambda b: _core.resolve_verdict(b(b'{"request":%b,"result":2}' % RESOLVE)),
    "read_verdict": lambda b: _core.read_verdict(b(b'{"request":{"profile":"x"},"result":2}')),
    "check_json": lambda b: _core.check_json(b(b'{"a":1}')),
    "Operation.resolve": operation("resolve", RESOLVE),
    "Operation.read": operation("read", b'{"profile":"x"}'),
    "Operation.map_proof": operation("map_proof", b'{"profile":"x"}'),
    "Operation.scan": operation("scan", b'{"profile":"x"}'),
    "Operation.resolve_batch": operation("resolve_batch", b"[]", 1000),
    "Operation.create_root": operation("create_root", b'{"arcs":{"a":"%b"}}' % HELLO.encode()),
    "Operation.mutate": operation("mutate", b'{"deltas":[]}'),
    "Operation.supply_pages": supplied,
    "Operation.supply_bytes": lambda b: _core.Operation.resolve(PageCache(1 << 20), RESOLVE).supply_bytes(b(b"x")),
    "StoreReads.supply": lambda b: _core.StoreReads(PageCache(1 << 20), False).supply(
        1, [b(b"page")], [], [(b(bytes(32)), b(b"page"))], [(1, b(b"a"))], [], [b(b"a")]
    ),
    "ArcSorter.feed": sorter,
    "CarReader.feed": car_reader,
    "block_cid": lambda b: _core.block_cid(b(BLOCK)),
}


def outcome(run: Callable[[As], object], b: As) -> object:
    """What a call returns or raises. Errors of a wrong type are not expected."""
    try:
        return run(b)
    except TypeError:
        raise
    except Exception as error:  # noqa: BLE001 - compared
        return type(error), str(error)


BYTES_ALONE = {
    "Map.__new__",  # its arcs are any iterable, and those of JSON are bytes: a buffer is an iterable, too
    *(
        "entity_bytes",
        "is_media_type",
        "negotiate",
        "precondition_status",
        "select_range",
        "Origins.refusal",
    ),  # headers of ASGI
}


def takers() -> set[str]:
    """The functions of the stub that have a parameter for bytes."""
    found = set()
    for node in ast.parse(STUB.read_text("utf-8")).body:
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef):
                hints = [hint.annotation for hint in [*each.args.args, *each.args.kwonlyargs] if hint.annotation]
                assert owner + each.name in BYTES_ALONE or not any(
                    "bytes" in ast.unparse(hint).split() for hint in hints
                ), each.name
                if any("Buffer" in ast.unparse(hint) for hint in hints):
                    found.add(owner + each.name)
    return found


def test_every_function_that_takes_bytes_is_tested() -> None:
    assert set(CALLS) == takers()


@rows("name", CALLS)
def test_bytes_are_taken_from_any_buffer(name: str) -> None:
    expected = outcome(CALLS[name], bytes)
    for kind in KINDS:
        assert outcome(CALLS[name], kind) == expected


@rows("kind", KINDS)
def test_binary_cids_are_taken_from_any_buffer(kind: As) -> None:
    assert Cid(kind(bytes(Cid(HELLO)))) == Cid(HELLO)
    assert Map({"a": kind(bytes(Cid(HELLO)))}).root == Map({"a": HELLO}).root


@rows("wrong", [5, [1, 2], None, "text", object()])
def test_nothing_else_is_taken_for_bytes(wrong: object) -> None:
    for call in (_core.payload_cid, _core.chunk_sizes, _core.block_cid, _core.check_json):
        with pytest.raises(TypeError, match="bytes"):
            call(wrong)  # type: ignore[operator]


def test_a_buffer_may_change_after_the_call() -> None:
    data = bytearray(b"hello")
    made = _core.PayloadHasher()
    made.update(data)
    data[:] = b"other"
    data.extend(b"!")  # no view of it is kept
    assert made.cid() == HELLO
