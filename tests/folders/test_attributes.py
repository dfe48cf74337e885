"""Records of attributes and the roots of folders: the vectors of protocol section 7, and joined listings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coregw
from coregw import InvalidInput
from coregw.folders.tree import Attributes, FolderEntry, attributes_root, join_folder
from folder_model import VECTORS, cbor, document, target, text
from tables import rows
from vector_cases import Case, load, why

CASES = load("folders")


def of_kind(kind: str) -> list[Case]:
    return [case for case in CASES if case["kind"] == kind]


def fields(members: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `encode_attributes` for the members of a vector."""
    kind = "link" if "link" in members else "folder" if "folder" in members else "file"
    found: dict[str, Any] = {"kind": kind, "size": members.get("size"), "mode": members.get("mode")}
    found["mtime_ns"] = int(members["mtime"]) if "mtime" in members else None
    found["link"] = bytes.fromhex(members["link"]) if "link" in members else None
    found["owner"] = (members["uid"], members["gid"]) if "uid" in members else None
    found["xattrs"] = {name: bytes.fromhex(value) for name, value in members.get("xattrs", {}).items()}
    return found


def test_the_vectors_are_those_of_the_model() -> None:
    assert VECTORS.read_text("utf-8") == document()


@rows("case", of_kind("record"))
def test_attributes_have_the_record_of_the_vector(case: Case) -> None:
    known = Attributes(**fields(case["members"]))
    record = bytes.fromhex(case["record"])
    assert coregw.encode_attributes(*known) == (case["target"], record)
    assert coregw.decode_attributes(case["target"], record) == known
    if coregw.Cid(case["target"]).hash_name == "identity":
        assert coregw.decode_attributes(case["target"]) == known
    else:
        with pytest.raises(InvalidInput, match="is needed"):
            coregw.decode_attributes(case["target"])


@rows("case", of_kind("bad_record") + of_kind("bad_target"), ids=why)
def test_a_record_or_target_in_another_form_is_refused(case: Case) -> None:
    record = bytes.fromhex(case["record"])
    with pytest.raises(InvalidInput, match=r"^attributes: "):
        coregw.decode_attributes(case.get("target", text(target(record))), record)


@rows("case", of_kind("folder"))
def test_a_folder_has_the_root_of_the_vector(case: Case) -> None:
    records = {path: coregw.encode_attributes(**fields(members))[0] for path, members in case["attributes"].items()}
    arcs = {path: coregw.payload_cid(bytes.fromhex(data)) for path, data in case["files"].items()}
    if records:
        arcs[".coregw/attributes"] = coregw.Map(records).root
    assert arcs.get(".coregw/attributes") == case["attributes_root"]
    assert coregw.Map(arcs).root == case["root"]


@given(
    size=st.none() | st.integers(0, 2**53 - 1),
    mode=st.none() | st.integers(0, 0o7777),
    mtime=st.none() | st.integers(-(2**63), 2**63 - 1),
    owner=st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    xattrs=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9), st.binary()
    ),
)
def test_records_are_those_of_the_model(
    size: int | None, mode: int | None, mtime: int | None, owner: tuple[int, int] | None, xattrs: dict[str, bytes]
) -> None:
    uid, gid = owner or (None, None)
    members = {"size": size, "mode": mode, "mtime": mtime, "uid": uid, "gid": gid, "xattrs": xattrs or None}
    record = {name: value for name, value in members.items() if value is not None}
    if not record:
        return
    known = Attributes("file", size, mode, mtime, None, owner, xattrs)
    assert coregw.encode_attributes(*known) == (text(target(cbor(record))), cbor(record))
    assert coregw.decode_attributes(text(target(cbor(record))), cbor(record)) == known


@rows(
    ("arguments", "why"),
    [
        ({"kind": "socket"}, "kind"),
        ({"kind": "link"}, "link"),
        ({"kind": "folder", "link": b"x"}, "link"),
        ({"mode": 0o10000}, "mode"),
        ({"size": -1}, "size"),
        ({"size": 2**64}, "size"),
        ({"mtime_ns": 2**63}, "mtime_ns"),
        ({"mtime_ns": -(2**63) - 1}, "mtime_ns"),
        ({"owner": (-1, 0)}, "owner"),
        ({"owner": (0, 2**32)}, "owner"),
        ({}, "nothing is known"),
        ({"xattrs": {"a": bytes(65_537)}}, "65,536"),
        ({"xattrs": {f"user.{number:02}": bytes(65_536) for number in range(16)}}, "1048576 bytes"),
    ],
)
def test_attributes_that_no_path_has_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        coregw.encode_attributes(**arguments)


FILE, MAP = coregw.payload_cid(b"hello"), coregw.Map({}).root
OF_FILE = Attributes("file", 5, None, None, None, None, {})
OF_LINK = Attributes("link", None, None, None, b"go", None, {})
OF_FOLDER = Attributes("folder", None, 0o755, None, None, None, {})


def joined(files: dict[str, str], records: dict[str, Attributes]) -> list[FolderEntry]:
    def listed(listing: dict[str, Any]) -> list[tuple[list[str], Any]]:
        return sorted((path.split("/"), value) for path, value in listing.items())

    return [*join_folder(listed(files), listed(records))]


def test_two_listings_are_joined_in_key_order() -> None:
    files = {"a": FILE, "a b": FILE, "b/c": FILE, "b/é": MAP, ".coregw/attributes": MAP, ".coregw/other": FILE}
    records = {"b": OF_FOLDER, "b/c": OF_FILE, "b/link": OF_LINK, "b/é": OF_FOLDER, "empty": OF_FOLDER, "a": OF_FILE}
    assert joined(files, records) == [
        ((".coregw", "other"), "file", FILE, None),
        (("a",), "file", FILE, OF_FILE),
        (("a b",), "file", FILE, None),
        (("b",), "folder", None, OF_FOLDER),
        (("b", "c"), "file", FILE, OF_FILE),
        (("b", "link"), "link", None, OF_LINK),
        (("b", "é"), "map", MAP, OF_FOLDER),
        (("empty",), "folder", None, OF_FOLDER),
    ]
    assert joined({}, {}) == []


@rows(
    ("files", "records", "why"),
    [
        ({}, {"a": OF_FILE}, "a: it has a file's attributes, and no file"),
        ({"a": FILE}, {"a": OF_LINK}, "a: it is a file with the attributes of a link"),
        ({"a": FILE}, {"a": OF_FOLDER}, "a: it is a file with the attributes of a folder"),
        ({"a": MAP}, {"a": OF_FILE}, "a: it is a map with the attributes of a file"),
        ({"a": MAP}, {"a": OF_LINK}, "a: it is a map with the attributes of a link"),
        ({"a/b": FILE}, {"a": OF_LINK}, "a/b: it is below a symbolic link"),
        ({"a/b/c": FILE}, {"a": OF_LINK}, "a/b/c: it is below a symbolic link"),
        ({}, {"a": OF_LINK, "a/b": OF_LINK}, "a/b: it is below a symbolic link"),
    ],
)
def test_listings_that_contradict_each_other_are_refused(
    files: dict[str, str], records: dict[str, Attributes], why: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^{why}$") as refused:
        joined(files, records)
    assert refused.value.code == "invalid_path"


def test_the_map_of_attributes_is_a_map_of_the_folders_suite() -> None:
    assert attributes_root(MAP, None) is None
    assert attributes_root(MAP, MAP) == MAP
    for other in (FILE, coregw.List([]).root, coregw.Map({}, "blake3").root):
        with pytest.raises(InvalidInput) as refused:
            attributes_root(MAP, other)
        assert refused.value.code == "kind_mismatch"
