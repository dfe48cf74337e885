"""Maps as folders and lists as files: complete listings, and file contents in chunks."""

from __future__ import annotations

import os

import pytest

import coregw
from coregw.client import Client, ClientSettings, Entry
from coregw.errors import InvalidInput, PathNotFound, ProofError, RootNotFound, TooLarge
from gateways import Liar, Reply
from tables import rows


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


def names_of(client: Client, root: str, prefix: str = "") -> list[str]:
    return [entry.name + "/" * (entry.kind in ("directory", "map")) for entry in client.children(root, prefix)]


def test_children_lists_one_level_of_a_map_like_a_directory(client: Client) -> None:
    listed = client.create_list([cid("x")], [7])
    inner = client.create_root({"deep/file": cid("1")})
    root = client.create_root(
        {"b/one": cid("1"), "b/two/three": cid("3"), "a": cid("a"), "a/below": cid("ab"), "big": listed, "m": inner}
    )
    assert list(client.children(root)) == [
        Entry("a", "cas", cid("a")),
        Entry("a", "directory", None),
        Entry("b", "directory", None),
        Entry("big", "list", listed),
        Entry("m", "map", inner),
    ]
    assert names_of(client, root, "b") == ["one", "two/"]
    assert names_of(client, root, "a") == ["a", "below"]
    assert names_of(client, root, "big") == ["big"]
    assert names_of(client, root, "nothing") == []


def test_children_skips_the_content_of_large_directories_without_gaps(client: Client) -> None:
    arcs = {}
    for folder in ("a", "b", "b\0", "c"):
        arcs |= {f"{folder}/{number:04}": cid("x") for number in range(1500)}
    arcs |= {"a\0": cid("a0"), "c": cid("c"), "c\0x": cid("c0x"), "d": cid("d")}
    root = client.create_root(arcs)
    level = [(entry.name, entry.kind) for entry in client.children(root)]
    assert level == [
        ("a", "directory"),
        ("a\0", "cas"),
        ("b", "directory"),
        ("b\0", "directory"),
        ("c", "cas"),
        ("c", "directory"),
        ("c\0x", "cas"),
        ("d", "cas"),
    ]
    assert len(names_of(client, root, "b")) == 1500


def test_a_walk_follows_nested_maps(client: Client) -> None:
    innermost = client.create_root({"x": cid("x")})
    inner = client.create_root({"in/file": cid("f"), "again": innermost})
    root = client.create_root({"top": cid("t"), "sub": inner, "sub2/map": inner})
    found = {"/".join(leaf.segments): leaf.target for leaf in client.walk(root)}
    assert found == {
        "top": cid("t"),
        "sub/in/file": cid("f"),
        "sub/again/x": cid("x"),
        "sub2/map/in/file": cid("f"),
        "sub2/map/again/x": cid("x"),
    }
    below = {"/".join(leaf.segments) for leaf in client.walk(root, "sub2")}
    assert below == {"sub2/map/in/file", "sub2/map/again/x"}


def test_a_walk_leaves_out_what_folders_record_of_their_paths(client: Client) -> None:
    recorded = coregw.encode_attributes("folder", mode=0o750)[0]
    records = client.create_root({"file": recorded, "empty": recorded})
    inner = client.create_root({"file": cid("i"), ".coregw/attributes": records})
    odd = client.create_root({".coregw/attributes": cid("no map")})
    root = client.create_root(
        {"file": cid("f"), "sub": inner, "odd": odd, ".coregw/attributes": records, "sub2/.coregw/attributes": inner}
    )

    def walked(prefix: str = "") -> list[str]:
        return ["/".join(leaf.segments) for leaf in client.walk(root, prefix)]

    # Only the reserved path of a map itself is left out, and only if it is the map that a folder has there.
    files = ["file", "odd/.coregw/attributes", "sub/file", "sub2/.coregw/attributes/file"]
    assert sorted(walked()) == files
    assert walked("sub") == ["sub/file"]
    assert walked(".coregw") == [".coregw/attributes/empty", ".coregw/attributes/file"]


def test_a_walk_refuses_maps_that_nest_too_deeply(gateway: str) -> None:
    with Client(gateway, ClientSettings(max_nesting=3)) as client:
        nested = client.create_root({"x": cid("x")})
        for _ in range(3):
            nested = client.create_root({"a": nested, "b": nested})
        assert len(list(client.walk(nested))) == 8
        deeper = client.create_root({"a": nested})
        with pytest.raises(InvalidInput, match=r"'a/[ab]/[ab]/[ab]': maps nest deeper than 3"):
            list(client.walk(deeper))


def test_a_walk_refuses_too_many_entries(gateway: str) -> None:
    with Client(gateway, ClientSettings(max_entries=40)) as client:
        leaf = client.create_root({"x": cid("x")})
        flat = {str(number): cid("x") for number in range(41)}
        nested = {str(number): leaf for number in range(21)}
        assert len(list(client.walk(client.create_root(dict(list(flat.items())[:40]))))) == 40
        for arcs in (flat, nested):
            with pytest.raises(TooLarge, match="more than 40"):
                list(client.walk(client.create_root(arcs)))


@rows(
    ("path", "expected"),
    [
        ("", ("root", [])),
        ("docs", ("root", ["docs"])),
        ("docs/a", ("a", [])),
        ("sub", ("inner", [])),
        ("sub/in", ("inner", ["in"])),
        ("sub/in/file", ("file", [])),
        ("list", ("list", [])),
        ("list/0", ("file", [])),
    ],
)
def test_locate_follows_nested_maps(client: Client, path: str, expected: tuple[str, list[str]]) -> None:
    listed = client.create_list([cid("f")])
    inner = client.create_root({"in/file": cid("f")})
    root = client.create_root({"docs/a": cid("a"), "sub": inner, "list": listed})
    by_name = {"root": root, "inner": inner, "list": listed, "a": cid("a"), "file": cid("f")}
    assert client.locate(root, path) == (by_name[expected[0]], expected[1])


NESTED = ["docs", "sub", "sub/in", "sub/in/file", "list/0", "list/1/in/file"]


def nested_tree(client: Client) -> str:
    inner = client.create_root({"in/file": cid("f")})
    listed = client.create_list([cid("f"), inner])
    return client.create_root({"docs/a": cid("a"), "sub": inner, "list": listed})


ABSENT = ["docs/b", "no", "docs/a/x", "sub/none", "list/2", f"list/{2**53}", "list/00", "list/0/x", "list/1/no"]


@rows("path", ABSENT)
def test_locating_an_absent_path_proves_that_it_is_absent(client: Client, path: str) -> None:
    with pytest.raises(PathNotFound, match=f"nothing at or below '{path}' in bagi[a-z0-9]*: proven"):
        client.locate(nested_tree(client), path)


def test_an_absence_in_a_root_that_is_not_held_is_not_proven(client: Client) -> None:
    with pytest.raises(RootNotFound):
        client.locate(coregw.Map({"never": cid("stored")}).root, "never")


@rows("path", NESTED)
def test_a_path_that_the_gateway_denies_is_not_proven_absent(client: Client, liar: Liar, path: str) -> None:
    root = nested_tree(client)
    denial = b'{"error":"path_not_found","message":"no"}'

    def denies(reply: Reply) -> Reply:
        resolves = reply.path == "/v1/resolve" and b'"segments":[]' not in reply.request
        return reply.with_body(denial, 404) if resolves else reply

    lying = liar(denies)
    if path in ("docs", "sub"):  # the verified listing has them, so nothing depends on the denial
        assert lying.locate(root, path) in ((root, ["docs"]), (client.resolve(root, "sub"), []))
        return
    with pytest.raises(ProofError, match=f"the gateway denied '{path}'"):
        lying.locate(root, path)


def test_the_proof_of_an_absence_has_a_bound(gateway: str) -> None:
    with Client(gateway, ClientSettings(max_nesting=3)) as client:
        nested = client.create_root({"end": cid("x")})
        for _ in range(3):
            nested = client.create_root({"a": nested, "a/a": nested})
        with pytest.raises(TooLarge, match="more than 3 maps and lists"):
            client.locate(nested, "a/a/a/a/a/none")


@rows("window", [1, 1000, 2500, 1 << 20])
def test_the_contents_of_a_chunked_file_are_complete_for_every_window(gateway: str, window: int) -> None:
    chunks = [os.urandom(1000) for _ in range(9)] + [b"end"]
    with Client(gateway, ClientSettings(window_bytes=window)) as client:
        cids = [client.put_payload(chunk) for chunk in chunks]
        listed = client.create_list(cids, [len(chunk) for chunk in chunks])
        assert list(client.contents(listed)) == chunks
        assert client.list_size(listed) == 9003


def test_a_list_of_many_small_chunks_is_read_in_smaller_windows(client: Client) -> None:
    one = client.put_payload(b"1")
    listed = client.create_list([one] * 10_050)
    with pytest.raises(TooLarge):
        client.read_range(listed, 0)
    chunks = client.contents(listed)
    assert next(chunks) == b"1"
    chunks.close()
    assert client.list_size(listed) == 10_050


def test_a_payload_and_an_empty_list_are_files(client: Client) -> None:
    assert list(client.contents(client.put_payload(b"small"))) == [b"small"]
    assert list(client.contents(client.create_list([]))) == []


def test_contents_of_something_other_than_a_file_are_refused(client: Client) -> None:
    payload = client.put_payload(b"ten bytes!")
    root = client.create_root({"a": payload})
    for target in (
        root,
        client.create_list([payload]),
        client.create_list([payload], [11]),
        client.create_list([root]),
    ):
        with pytest.raises(InvalidInput, match="not a file") as refused:
            list(client.contents(target))
        assert refused.value.code == "kind_mismatch"


def test_a_tampered_chunk_is_refused(liar: Liar, client: Client) -> None:
    good, bad = client.put_payload(b"good"), client.put_payload(b"bad!")
    listed = client.create_list([good, bad], [4, 4])
    chunks = liar(lambda reply: reply.with_body(b"evil") if reply.path.endswith(bad) else reply).contents(listed)
    assert next(chunks) == b"good"
    with pytest.raises(ProofError):
        next(chunks)
