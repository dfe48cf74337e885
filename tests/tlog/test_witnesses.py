"""Witnesses of signed publications: what they cosign, what they refuse, and what clients require of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from coregw import Client, ProofError, TrustStore
from coregw.client.signing import sign_published
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.note import Note, Signer, load_private_key, new_private_key
from coregw.tlog.policy import Policy
from coregw.tlog.tree import EMPTY_ROOT
from coregw.witness.cosigning import MAX_REQUEST_BYTES, Witness
from signed_names import HASH, NAMED, ORIGIN, TOKEN, gateway, policy_of, publish, refused, sign, verified, witness


def test_witnesses_cosign_one_history_and_a_client_requires_them(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        url, other = stack.enter_context(gateway()), stack.enter_context(gateway())
        witnesses = [stack.enter_context(witness(tmp_path / f"w{number}.json", signer)) for number in range(2)]
        both = policy_of(signer, witnesses)
        publish(url, "a")
        sign(url, signer, operator, policy)
        assert refused(url, both, reader) == "witnesses"
        sign(url, signer, operator, both)
        assert verified(url, both, reader)[0] == 1
        publish(url, "b", "c")
        sign(url, signer, operator, both)
        assert verified(url, both, reader)[0] == 3
        # the same key signs another history, on a machine that remembers nothing: no witness cosigns it
        publish(other, "a", "x", "y", "z")
        with pytest.raises(ProofError) as error:
            sign(other, signer, TrustStore(tmp_path / "forgetful.json"), both)
        assert error.value.check == "witnesses"
        sign(other, signer, TrustStore(tmp_path / "forgetful2.json"), policy)
        assert refused(other, both, TrustStore(tmp_path / "fresh.json")) == "witnesses"
        # a witness that is away
        gone = [*witnesses, ("http://127.0.0.1:9", Signer("gone.example", load_private_key(new_private_key(), "g"), 4))]
        failures: list[str] = []
        with Client(url) as client:
            some = policy_of(signer, gone, "2")
            sign_published(
                client, *NAMED, signer, operator, policy=some, token=TOKEN, failed=lambda name, _: failures.append(name)
            )
        assert failures == ["w2"]
        assert verified(url, some, reader)[0] == 3


def post(url: str, body: str | bytes) -> httpx2.Response:
    return httpx2.post(f"{url}/add-checkpoint", content=body if isinstance(body, bytes) else body.encode())


def test_a_witness_answers_as_specified(signer: Signer, operator: TrustStore, tmp_path: Path) -> None:
    file = tmp_path / "witness.json"
    with gateway() as url, witness(file, signer) as (at, cosigner):
        publish(url, "a", "b", "c")
        with Client(url) as client:
            heads = []
            for size in (1, 2, 3):
                answer = httpx2.get(
                    f"{url}/admin/v1/scopes/docs/roots/main/proof?size={size}&old=2",
                    headers={"Authorization": f"Bearer {TOKEN}"},
                ).json()
                text = f"{ORIGIN}\n{size}\n{answer['root_hash']}\n"
                heads.append((Note(text, (signer.sign(text),)), answer["consistency"]))
            assert client.has_payloads([]) == []
        (one, _), (two, _), (three, proof) = heads
        monitored = f"{at}/{__import__('hashlib').sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
        assert httpx2.get(monitored).status_code == 404
        stranger = Signer("other", load_private_key(new_private_key(), "other"))
        empty = Checkpoint(ORIGIN, 0, EMPTY_ROOT).text()
        wrong = Note(two.text, (signer.sign(one.text),))
        unsigned = Note(two.text, (stranger.sign(two.text),))
        unknown = Note(two.text.replace(ORIGIN, "other"), (stranger.sign(two.text),))
        assert post(at, f"old 0\n\n{unknown.encode()}").status_code == 404
        assert post(at, f"old 0\n\n{wrong.encode()}").status_code == 403
        assert post(at, f"old 0\n\n{unsigned.encode()}").status_code == 403
        assert post(at, f"old 3\n\n{two.encode()}").status_code == 400
        assert post(at, f"old 0\n{proof[0]}\n\n{two.encode()}").status_code == 422
        assert not file.exists()  # nothing was cosigned
        done = post(at, f"old 0\n\n{two.encode()}")
        assert done.status_code == 200
        assert cosigner.key.verify(Note.parse(f"{two.encode()}{done.text}")) == 1_700_000_000
        conflict = post(at, f"old 0\n\n{three.encode()}")
        assert (conflict.status_code, conflict.text) == (409, "2\n")
        assert conflict.headers["content-type"] == "text/x.tlog.size"
        assert post(at, f"old 2\n\n{three.encode()}").status_code == 422
        assert post(at, f"old 1\n\n{one.encode()}").status_code == 409
        forged = Note(two.text.replace(two.text.split("\n")[2], one.text.split("\n")[2]), ())
        forged = Note(forged.text, (signer.sign(forged.text),))
        assert post(at, f"old 2\n\n{forged.encode()}").status_code == 422
        assert post(at, f"old 2\n\n{two.encode()}").status_code == 200
        assert post(at, "\n".join(["old 2", *proof, "", three.encode()])).status_code == 200
        kept = Note.parse(httpx2.get(monitored).text)
        assert signer.key.verify(kept) == 0
        assert cosigner.key.verify(kept)
        again = Witness(file, cosigner, [signer.key])  # after a restart
        assert Note.parse(again.checkpoint(monitored.split("/")[-2])) == kept
        for malformed in (b"", b"old 0\n", b"new 0\n\nx", b"old 00\n\nx", b"old 0\nx\n\nx", b"\xff", b"old 0\n\nx"):
            assert post(at, malformed).status_code == 400
        assert post(at, f"old 0\n{(HASH + chr(10)) * 64}\n{two.encode()}").status_code == 400
        assert post(at, b"x" * (MAX_REQUEST_BYTES + 1)).status_code == 413
        assert httpx2.get(f"{at}/add-checkpoint").status_code == 405
        assert httpx2.post(monitored).status_code == 405
        assert httpx2.get(f"{at}/other").status_code == 404
        assert signer.key.verify(Note(empty, (signer.sign(empty),))) == 0


def test_the_witness_runs_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "log.pem").write_bytes(new_private_key())
    log = Signer(ORIGIN, load_private_key((tmp_path / "log.pem").read_bytes(), "log"))
    options = ["--key", tmp_path / "log.pem", "--name", "w.example", "--state", tmp_path / "state.json", "--port", "0"]
    command = [sys.executable, "-m", "coregw", "witness", *options, "--log", str(log.key)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        url = running.stdout.readline().strip().rpartition(" ")[2]
        assert post(url, "nonsense").status_code == 400
    finally:
        running.terminate()
        running.communicate(timeout=60)
    assert running.returncode == 0
