"""CARs of one block for IPFS clients: whether a block is all that is requested, by its codec and its links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from car_files import block, header, varint
from coregw import Cid
from tables import rows

if TYPE_CHECKING:
    import httpx2

CAR = "application/vnd.ipld.car"
DATA = b"the bytes of a block\r\n" * 40


def dag_pb(data: bytes, *links: bytes) -> bytes:
    """A block of UnixFS: its data, and links to CIDs."""
    encoded = [b"\x0a" + varint(len(link)) + link for link in links]
    return b"".join(b"\x12" + varint(len(each)) + each for each in encoded) + b"\x0a" + varint(len(data)) + data


FOLDER, FILE, SHARD = b"\x08\x01", b"\x08\x02", b"\x08\x05"
LINK = b"\x01\x55\x12\x20" + bytes(32)
ALL = {"block", "entity", "all"}


@rows(
    ("codec", "data", "scopes"),
    [
        ("raw", DATA, ALL),
        ("dag-pb", dag_pb(FILE), ALL),
        ("dag-pb", dag_pb(FOLDER), ALL),
        ("dag-pb", dag_pb(FOLDER, LINK, LINK), {"block", "entity"}),
        ("dag-pb", dag_pb(FILE, LINK), {"block"}),
        ("dag-pb", dag_pb(SHARD, LINK), {"block"}),
        ("dag-pb", b"\x12\xff", {"block"}),
        ("dag-pb", b"\x0f", {"block"}),
        ("dag-pb", dag_pb(FILE) + b"\x1a\x00", {"block"}),  # another field
        ("dag-pb", dag_pb(FILE) + b"\x10\x00", {"block"}),  # a link of another wire type
        ("dag-pb", dag_pb(FILE) + dag_pb(FOLDER), {"block"}),  # data twice
        ("dag-cbor", b"\xa0", ALL),
        ("dag-cbor", b"\xd8\x2a\x58\x25\0" + LINK, {"block", "entity"}),
        ("dag-cbor", b"\xd9\0\x2a\x58\x25\0" + LINK, {"block", "entity"}),  # a longer head, which some decoders take
        ("dag-cbor", b"\xdb" + bytes(7) + b"\x2a\x58\x25\0" + LINK, {"block", "entity"}),
        ("dag-cbor", b"\xa2\x61a\0\x61a\0", {"block", "entity"}),  # a key twice
        ("dag-cbor", b"\x18\0", {"block", "entity"}),
        ("dag-cbor", b"\x9f\xff", {"block", "entity"}),
        ("dag-cbor", b"\xa0\xa0", {"block", "entity"}),
        ("dag-cbor", b"\x42\xd8\x2a", ALL),  # bytes that are no tag
        ("dag-json", b'{"/":"bafkqaaa"}', {"block", "entity"}),
        ("dag-json", b'{"\\u002f":"bafkqaaa"}', {"block", "entity"}),
        ("dag-json", b'{"a":{"\\/":"bafkqaaa"}}', {"block", "entity"}),
        ("dag-json", b'{"a":1,"a":1}', {"block", "entity"}),
        ("dag-json", b'{"a":"', {"block", "entity"}),
        ("dag-json", b'{"a":["/"]}', ALL),
        ("json", b"{}", {"block", "entity"}),
    ],
)
def test_a_car_has_the_block_if_that_is_all(client: httpx2.Client, codec: str, data: bytes, scopes: set[str]) -> None:
    cid = client.post("/v1/cas", params={"codec": codec}, content=data).json()["cid"]
    name = bytes(Cid(cid))
    for scope in ALL:
        answer = client.get(f"/ipfs/{cid}", params={"format": "car", "dag-scope": scope})
        if scope not in scopes:
            assert (answer.status_code, "may be more than one block" in answer.json()["message"]) == (400, True)
            continue
        assert (answer.status_code, answer.content) == (200, header(name) + block(name, data)), scope
        assert answer.headers["content-type"] == f"{CAR}; version=1; order=dfs; dups=n"
        assert answer.headers["etag"] == f'"{cid}.car.{scope}"'
        assert answer.headers["content-disposition"] == f'attachment; filename="{cid}.car"'
    by_default = client.get(f"/ipfs/{cid}", headers={"accept": f"{CAR};order=dfs;dups=y"})
    assert (by_default.status_code == 200) == ("all" in scopes)
    of_bytes = client.head(f"/ipfs/{cid}", params={"format": "car", "entity-bytes": "0:*", "car-dups": "y"})
    assert (of_bytes.status_code == 200) == ("entity" in scopes)


def test_entity_bytes_outside_of_a_file_of_one_block_are_a_bad_request(client: httpx2.Client) -> None:
    five = FILE + b"\x12\x05hello"
    cases = [  # the UnixFS node, and for each range the status
        (five + b"\x18\x05", {"0:*": 200, "4:99": 200, "-9:0": 200, "5:*": 400, "-9:-6": 400}),
        (five, {"4:4": 200, "5:9": 400}),  # its size is not recorded
        (b"\x08\x00" + five[2:], {"4:4": 200, "5:9": 400}),  # raw bytes
        (FILE, {"0:*": 200, "0:0": 400}),
        (five + b"\x18\x09", {"7:8": 200}),  # another size is recorded, so it is not known
        (FOLDER, {"7:8": 200, "8:7": 400}),  # not bytes
        (b"\x08\x04" + five[2:], {"7:8": 200}),  # a symbolic link
    ]
    wrong = []
    for node, ranges in cases:
        block = dag_pb(node)
        cid = client.post("/v1/cas", params={"codec": "dag-pb"}, content=block).json()["cid"]
        for asked, status in ranges.items():
            answer = client.get(f"/ipfs/{cid}", params={"format": "car", "entity-bytes": asked})
            if answer.status_code != status or (status == 400 and "entity-bytes" not in answer.json()["message"]):
                wrong.append((node, asked, answer.status_code))
    assert wrong == []


def test_entity_bytes_are_ignored_for_a_map(client: httpx2.Client) -> None:
    root = client.post("/v1/roots", json={"arcs": {"a": "bafkqaaa"}}).json()["root"]
    answer = client.get(f"/ipfs/{root}", params={"format": "car", "entity-bytes": "1000000:*"})
    plain = client.get(f"/ipfs/{root}", params={"format": "car", "dag-scope": "entity"})
    assert (answer.status_code, answer.content) == (200, plain.content)
