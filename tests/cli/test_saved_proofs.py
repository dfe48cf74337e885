"""Answers that ``resolve`` prints and ``verify`` verifies from a file, without a gateway."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from coregw import Map, payload_cid
from coregw.client import Client, query

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]
Json = dict[str, Any]
CID = payload_cid(b"content")


def test_resolve_prints_only_the_target(run: Run, root: str) -> None:
    found = run("resolve", root, "docs/readme")
    assert (found.exit_code, found.stdout, found.stderr) == (0, f"{CID}\n", "")
    assert run("resolve", root, "").stdout == f"{root}\n"


def test_a_saved_resolve_is_verified_offline(run: Run, coregw: Start, root: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(run("resolve", root, "docs/readme", "--json").stdout)
    verified = coregw("verify", saved)
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.decode() == f"proven: resolve 'docs/readme' in {root}\n  {CID}\n"
    assert run("verify", "-", input=saved.read_text()).stdout == verified.stdout.decode()
    offline = run("verify", saved, gateway="http://127.0.0.1:9")
    assert offline.exit_code == 0


def flip(saved: Json) -> None:
    step = saved["result"]["prooflist"]["steps"][0]
    proof = bytearray(base64.b64decode(step["proof"]))
    proof[0] ^= 1
    step["proof"] = base64.b64encode(proof).decode()


TAMPERED: dict[str, Callable[[Json], object]] = {
    "a bit of the proof": flip,
    "the target": lambda saved: saved["result"].update(target=payload_cid(b"another")),
    "the root": lambda saved: saved["request"].update(root=Map({"a": CID}).root),
    "the path": lambda saved: saved["request"].update(segments=["docs", "guide"]),
    "the profile": lambda saved: saved["request"].update(profile="core.read/v0alpha1"),
    "an unknown profile": lambda saved: saved["request"].update(profile="x"),
    "no request": lambda saved: saved.pop("request"),
    "no result": lambda saved: saved.pop("result"),
    "something more": lambda saved: saved.update(more=1),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_file_is_not_proven(run: Run, root: str, tmp_path: Path, change: Callable[[Json], object]) -> None:
    document = json.loads(run("resolve", root, "docs/readme", "--json").stdout)
    change(document)
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(document))
    refused = run("verify", saved)
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert refused.stderr.startswith(f"coregw: not proven: {saved}: ")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b"{" * 1000, b'{"request": {}, "result": {}}', b'{"request": {}, "request": {}}'],
)
def test_a_file_without_a_saved_proof_is_not_proven(run: Run, tmp_path: Path, content: bytes) -> None:
    saved = tmp_path / "saved.json"
    saved.write_bytes(content)
    refused = run("verify", saved)
    assert (refused.exit_code, refused.stdout) == (3, "")


def test_the_answer_to_every_kind_of_query_can_be_saved_and_verified(
    run: Run, gateway: str, root: str, tmp_path: Path
) -> None:
    with Client(gateway) as client:
        listed = client.create_list([CID, CID], [7, 7])
        answers = {
            f"read 'docs/readme' in {root}\n  {CID}": client.query(query.read_key(root, "docs/readme")),
            f"read 'docs/none' in {root}\n  absent": client.query(query.read_key(root, "docs/none")),
            f"read element 1 in {listed}\n  {CID}": client.query(query.read_index(listed, 1)),
            f"read element 2 in {listed}\n  absent: the list has 2 elements": client.query(query.read_index(listed, 2)),
            f"read range 8: in {listed}\n  {CID}  7\n  1 of 2 elements, from 7, of 14 in all": client.query(
                query.read_range(listed, 8)
            ),
            f"prove 'docs/readme' in {root}\n  {CID}": client.query(query.map_proof(root, "docs/readme")),
            f"prove 'docs' in {root}\n  absent": client.query(query.map_proof(root, "docs")),
            f"list 'docs' in {root}\n  {payload_cid(b'guide')}  docs/guide\n  more follow": client.query(
                query.scan(root, "docs", limit=1)
            ),
            f"list 'none' in {root}\n  nothing else (0 entries)": client.query(query.scan(root, "none")),
            f"list {root}\n  {payload_cid(b'guide')}  docs/guide\n  more follow": client.query(
                query.scan(root, (), limit=1)
            ),
        }
    for number, (expected, proven) in enumerate(answers.items()):
        saved = tmp_path / f"{number}.json"
        saved.write_bytes(proven.saved())
        verified = run("verify", saved)
        assert (verified.exit_code, verified.stdout) == (0, f"proven: {expected}\n")


def test_verify_with_half_of_its_arguments_says_which_one_is_missing(run: Run, root: str, tmp_path: Path) -> None:
    for given, missing in ((root, "give the folder or file"), (tmp_path, "give the root")):
        refused = run("verify", given)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert missing in refused.stderr


def test_an_oversized_document_is_exit_code_3(run: Run, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)  # sparse
    refused = run("verify", large)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr == f"coregw: not proven: {large}: longer than {64 << 20} bytes\n"
