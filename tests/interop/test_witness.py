"""Checkpoints, policies and cosignatures against the implementations of others, in Go.

Skipped unless ``make test-interop`` runs them; its first run downloads the pinned modules.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import httpx2
import pytest

import serving
from coregw import Client, TrustStore, messages
from coregw._core import Cid
from coregw.client.signing import sign_published
from coregw.messages.publication import PublicationProof
from coregw.store.memory import MemoryStore
from coregw.tlog.entry import publication_entry
from coregw.tlog.note import Note, Signer, load_private_key, new_private_key
from coregw.tlog.policy import Policy
from coregw.witness.app import witness_service
from coregw.witness.cosigning import Witness

ORIGIN = "example.org/docs/main"
SOURCE = Path(__file__).parent / "witness"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("COREGW_TEST_INTEROP") != "required":
        pytest.skip("make test-interop runs it; it needs Go")
    target = tmp_path_factory.mktemp("go") / "witness"
    subprocess.run(["go", "build", "-o", target, "."], cwd=SOURCE, check=True)
    return target


def test_others_verify_our_checkpoints_and_cosign_them(program: Path, tmp_path: Path) -> None:
    log = Signer(ORIGIN, load_private_key(new_private_key(), "log"))
    ours = Signer("ours.example", load_private_key(new_private_key(), "witness"), 4)
    trust = TrustStore(tmp_path / "trust.json")
    running = subprocess.Popen([program, "serve", "theirs.example", str(log.key)], stdout=subprocess.PIPE, text=True)
    service = witness_service(Witness(tmp_path / "ours.json", ours, [log.key]))
    try:
        assert running.stdout is not None
        their_key, their_url = (running.stdout.readline().strip() for _ in range(2))
        with (
            serving.thread(MemoryStore(), is_administered=True) as gateway,
            serving.thread(MemoryStore(), service=service) as our_url,
            Client(gateway, trust=trust) as client,
        ):
            policy = "\n".join(
                [
                    f"log {log.key}",
                    f"witness ours {ours.key} {our_url}",
                    f"witness theirs {their_key} {their_url}",
                    "group both all ours theirs",
                    "quorum both\n",
                ]
            )
            notes = []
            for count in (3, 4):  # the second one with a consistency proof
                for number in range(count):
                    root = client.create_root({f"{count}/{number}": client.put_payload(b"x")})
                    client.publications.publish("docs", "main", root, token=serving.ADMIN_TOKEN)
                done = sign_published(
                    client, "docs", "main", log, trust, policy=Policy.parse(policy), token=serving.ADMIN_TOKEN
                )
                notes.append(Note.parse(done.note))
            assert len(notes[1].signatures) == 3
            answer = httpx2.get(f"{gateway}/v1/publications/docs/main?old=3&revision=2").content
            found = messages.decode(answer, PublicationProof)
            record = found.record
            case = {
                "log_key": str(log.key),
                "policy": policy,
                "note": notes[1].encode(),
                "index": 1,
                "inclusion": found.inclusion,
                "old": 3,
                "old_root": notes[0].text.split("\n")[2],
                "consistency": found.consistency,
                "entry": base64.b64encode(
                    publication_entry(
                        "docs",
                        "main",
                        2,
                        bytes(Cid(record.root)),
                        bytes(Cid(record.previous_root or "")),
                        record.published_at,
                    )
                ).decode(),
            }
            assert verified(program, case) == "verified\n"
            stolen = notes[1].encode().replace("ours.example", "none.example")
            for name, value in (("note", stolen), ("index", 2), ("old", 2), ("consistency", [])):
                assert verified(program, case | {name: value}) == ""
    finally:
        running.kill()
        running.communicate()


def verified(program: Path, case: dict[str, object]) -> str:
    command = [program, "verify"]
    return subprocess.run(command, input=json.dumps(case), capture_output=True, text=True, check=False).stdout
