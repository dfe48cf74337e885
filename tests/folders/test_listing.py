"""`FolderListing`: a page answers the question that follows from the pages before it, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import coregw
from coregw import Map, _core
from coregw.errors import InvalidInput
from listing_pages import page

HELPERS = Path(__file__).parent.parent / "helpers"
CID = coregw.payload_cid(b"hello")
RECORDS = Map({f"f{number}": _core.encode_attributes("file", size=5)[0] for number in range(5)})
FILES = Map(dict.fromkeys((f"f{number}" for number in range(5)), CID) | {".coregw/attributes": RECORDS.root})
OTHER = Map(dict.fromkeys((f"f{number}" for number in range(7)), CID))

Segments = Sequence[str]


def test_both_maps_are_listed_page_by_page() -> None:
    listing = _core.FolderListing(FILES.root)
    after: list[str] | None = None
    for add, tree in ((listing.add_files, FILES), (listing.add_records, RECORDS)):
        while True:
            _, after = add(*page(tree, after))
            if after is None:
                break
    assert [segments for segments, *_ in listing.take()] == [(f"f{number}",) for number in range(5)]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (page(OTHER, ["f0"]), rf"root: .* is not the map {FILES.root}"),
        (page(RECORDS, ["f0"]), rf"root: .* is not the map {FILES.root}"),
        (page(FILES), r'the page begins at the start, not where the last one ended, "f0"'),
        (page(FILES, ["f1"]), 'the page begins at "f1", not where the last one ended, "f0"'),
        (page(FILES, ["f0"], prefix=["f0"]), "prefix: a part of the map"),
    ],
)
def test_a_page_that_answers_another_question_is_refused(asked: tuple[bytes, bytes], why: str) -> None:
    listing = _core.FolderListing(FILES.root)
    assert listing.add_files(*page(FILES)) == (2, ["f0"])
    with pytest.raises(InvalidInput, match=why):
        listing.add_files(*asked)
    assert listing.add_files(*page(FILES, ["f0"], limit=10)) == (4, None)
    with pytest.raises(InvalidInput, match=r"all of the map .* is listed"):
        listing.add_files(*page(FILES, ["f4"]))
    with pytest.raises(InvalidInput, match=rf"is not the map {RECORDS.root}"):
        listing.add_records(*page(FILES))
    assert listing.add_records(*page(RECORDS, limit=10)) == (5, None)


def test_records_without_a_map_of_attributes_are_refused() -> None:
    listing = _core.FolderListing(OTHER.root)
    with pytest.raises(InvalidInput, match="no map of attributes is listed"):
        listing.add_records(*page(RECORDS))


def test_a_listing_is_not_locked_while_python_runs() -> None:
    code = """
import faulthandler, gc, threading, time
from test_listing import CID, Map, _core, page
faulthandler.dump_traceback_later(20, exit=True)
# Tuples of more than 20 items are allocated anew, which may start a collection.
tree = Map(dict.fromkeys((f"d{n:05}" + 20 * "/f" for n in range(1000)), CID))
listing = _core.FolderListing(tree.root)
listing.add_files(*page(tree, limit=1000))
is_taken = []
def ask():
    while not is_taken:
        listing.may_have_attributes  # makes no object, so that no garbage is collected in this thread
thread = threading.Thread(target=ask)
gc.callbacks.append(lambda *_: time.sleep(0.001))
gc.set_threshold(5)
thread.start()
print(len(listing.take()))
is_taken.append(True)
thread.join()
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(
        run,
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr
