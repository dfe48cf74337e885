"""Checkpoints, policies and cosignatures against the implementations of others, in Go, and against litewitness.

Skipped unless ``make test-clients ARGS=interop`` runs them; its first run downloads the pinned modules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import pytest

import serving
from coregw import Client, TrustStore, messages
from coregw._core import Cid
from coregw.client.signing import sign_published
from coregw.errors import ProofError
from coregw.messages.query import PublicationProof
from coregw.store.memory import MemoryStore
from coregw.tlog.checkpoint import Policy, publication_entry
from coregw.tlog.note import Note, Signer, VerifierKey, load_private_key, new_private_key

ORIGIN = "example.org/docs/main"
SOURCE = Path(__file__).parent / "witness"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("COREGW_TEST_INTEROP") != "required":
        pytest.skip("make test-clients ARGS=interop runs it; it needs Go")
    return built(tmp_path_factory.mktemp("go") / "witness", ".")


def built(target: Path, package: str) -> Path:
    subprocess.run(["go", "build", "-mod=readonly", "-o", target, package], cwd=SOURCE, check=True)
    return target


@contextmanager
def litewitness(folder: Path, name: str, log: VerifierKey) -> Iterator[tuple[str, str]]:
    """Run litewitness for one log. Gives the verifier key, and the address, of the witness.

    Its key is in an agent of its own. witnessctl, which adds logs, requires a module that the proxy does not serve; so
    the log is added to the database here.
    """
    program = built(folder / "litewitness", "filippo.io/torchwood/cmd/litewitness")
    key, database = folder / "key", folder / "litewitness.db"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    fingerprint = subprocess.check_output(["ssh-keygen", "-lf", key], text=True).split()[1]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with ExitStack() as stack:

        def start(*command: object) -> subprocess.Popen[str]:
            running = subprocess.Popen([str(each) for each in command], stderr=subprocess.PIPE, text=True, cwd=folder)
            stack.callback(running.communicate)
            stack.callback(running.kill)
            return running

        start("ssh-agent", "-D", "-a", "agent")  # a short path: that of a socket has at most 107 bytes
        environ = os.environ | {"SSH_AUTH_SOCK": "agent"}
        while not (folder / "agent").exists():
            time.sleep(0.01)
        subprocess.run(["ssh-add", "-q", key], cwd=folder, env=environ, check=True)
        options = ["-ssh-agent", "agent", "-name", name, "-key", fingerprint, "-db", database, "-listen", address]
        running = start(program, *options)
        assert running.stderr is not None
        said = ""
        while "msg=listening" not in said:
            line = running.stderr.readline()
            assert line, said
            said += line
        [found] = re.findall(r"vkey=(\S+)", said)
        with closing(sqlite3.connect(database)) as connection, connection:
            empty = base64.b64encode(hashlib.sha256(b"").digest()).decode()
            connection.execute("INSERT INTO log VALUES (?, 0, ?)", (log.name, empty))
            connection.execute("INSERT INTO key VALUES (?, ?)", (log.name, str(log)))
        yield found, f"http://{address}"


@contextmanager
def theirs(program: Path, name: str, log: VerifierKey) -> Iterator[tuple[str, str]]:
    """Run a witness of torchwood for one log. Gives its verifier key and its address."""
    running = subprocess.Popen([program, "serve", name, str(log)], stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        yield running.stdout.readline().strip(), running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


def test_others_verify_our_checkpoints_and_cosign_them(program: Path, tmp_path: Path) -> None:
    log = Signer(ORIGIN, load_private_key(new_private_key(), "log"))
    trust = TrustStore(tmp_path / "trust.json")
    with (
        theirs(program, "one.example", log.key) as (one_key, one_url),
        theirs(program, "two.example", log.key) as (two_key, two_url),
        serving.thread(MemoryStore(), is_administered=True) as gateway,
        Client(gateway, trust=trust) as client,
    ):
        policy = "\n".join(
            [
                f"log {log.key}",
                f"witness one {one_key} {one_url}",
                f"witness two {two_key} {two_url}",
                "group both all one two",
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
        stolen = notes[1].encode().replace("two.example", "none.example")
        for name, value in (("note", stolen), ("index", 2), ("old", 2), ("consistency", [])):
            assert verified(program, case | {name: value}) == ""


def verified(program: Path, case: dict[str, object]) -> str:
    command = [program, "verify"]
    return subprocess.run(command, input=json.dumps(case), capture_output=True, text=True, check=False).stdout


def test_litewitness_cosigns_our_checkpoints(program: Path, tmp_path: Path) -> None:
    assert program.is_file()
    log = Signer(ORIGIN, load_private_key(new_private_key(), "log"))
    trust = TrustStore(tmp_path / "trust.json")
    with (
        litewitness(tmp_path, "lite.example/witness", log.key) as (key, url),
        serving.thread(MemoryStore(), is_administered=True) as gateway,
        Client(gateway, trust=trust) as client,
    ):
        policy = Policy.parse(f"log {log.key}\nwitness lite {key} {url}\nquorum lite\n")
        for count in (2, 3):  # the second one with a consistency proof
            for number in range(count):
                root = client.create_root({f"{count}/{number}": client.put_payload(b"x")})
                client.publications.publish("docs", "main", root, token=serving.ADMIN_TOKEN)
            signed = sign_published(client, "docs", "main", log, trust, policy=policy, token=serving.ADMIN_TOKEN)
            note = Note.parse(signed.note)
            assert {each.name for each in note.signatures} == {ORIGIN, "lite.example/witness"}
            assert policy.verify(note).size == (2 if count == 2 else 5)
            own = tuple(each for each in note.signatures if each.name == ORIGIN)
            with pytest.raises(ProofError):
                policy.verify(note._replace(signatures=own))
