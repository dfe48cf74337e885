"""Files and rows that others may have written, or a disk damaged: what does not decode is an error that names it."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from coregw.engine.records import decode_record
from coregw.errors import InvalidInput, StoreDamaged, Unavailable
from coregw.store.rocksdb import MARKER, open_store
from coregw.trust import decode_document
from coregw.upkeep.backup import Repository
from coregw.upkeep.repository import decode_manifest
from tables import rows

JSON = [
    b'{"\xff":1}',
    b'{"names":{"\xff":1},"store":"\xff","backup":"\xff","version":"\xff"}',
    b'{"x":' + b"[" * 3000,
    b"{",
]
MSGPACK = [b"\x81\xa5scope\xa1\xff", b"\x81\xa1x" + b"\x91" * 5000, b"", b"\x90"]


@pytest.mark.parametrize("content", JSON)
def test_json_that_does_not_decode(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="place: not a trust store"):
        decode_document(content, "place")
    manifest = content + b"\n" + hashlib.sha256(content).hexdigest().encode() + b"\n"
    with pytest.raises(StoreDamaged, match=r"000001\.json is malformed"):
        decode_manifest("000001.json", manifest)
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "coregw-backup.json").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"coregw-backup\.json is malformed"):
        Repository.open(tmp_path / "backup")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / MARKER).write_bytes(content)
    with pytest.raises((StoreDamaged, Unavailable), match=MARKER):
        asyncio.run(open_store(tmp_path / "store"))


@rows("row", MSGPACK)
def test_rows_that_do_not_decode(row: bytes) -> None:
    with pytest.raises(StoreDamaged, match="the row of a published record is malformed"):
        decode_record(row)
