"""Witnesses of signed publications: what they cosign, what they refuse, and what clients require of them."""

from __future__ import annotations

from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from coregw import Client, ProofError, TrustStore
from coregw.client.signing import sign_published
from coregw.tlog.checkpoint import Policy
from coregw.tlog.note import Note, Signature, Signer, load_private_key, new_private_key
from cosigning import COSIGNED_AT, witness
from signed_names import NAMED, ORIGIN, TOKEN, gateway, policy_of, publish, refused, sign, verified


@pytest.mark.slow
def test_witnesses_cosign_one_history_and_a_client_requires_them(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        url, other = stack.enter_context(gateway()), stack.enter_context(gateway())
        witnesses = [stack.enter_context(witness(f"w{number}.example", signer.key)) for number in range(2)]
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
        gone = [
            *witnesses,
            ("http://127.0.0.1:9", Signer("gone.example", load_private_key(new_private_key(), "g"), 4).key),
        ]
        failures: list[str] = []
        with Client(url) as client:
            some = policy_of(signer, gone, "2")
            sign_published(
                client, *NAMED, signer, operator, policy=some, token=TOKEN, failed=lambda name, _: failures.append(name)
            )
        assert failures == ["w2"]
        assert verified(url, some, reader)[0] == 3


def test_wrong_signatures_in_a_published_note_do_not_stop_its_operator(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore, tmp_path: Path
) -> None:
    """A gateway verifies no signature of the notes that it is given, and may keep long ones by unknown keys."""
    with ExitStack() as stack:
        url = stack.enter_context(gateway())
        cosigner = stack.enter_context(witness("w0.example", signer.key))
        both = policy_of(signer, [cosigner])
        publish(url, "a")
        sign(url, signer, operator, policy)
        note = Note.parse(operator.head(ORIGIN) or "")
        wrong = Signature(cosigner[1].name, cosigner[1].key_id, bytes(72))
        strangers = [Signature(f"pq{number}.example", bytes(4), bytes(5000)) for number in range(15)]
        spoilt = Note(note.text, (*note.signatures, *strangers, wrong)).encode()
        path, authorization = f"{url}/admin/v1/scopes/docs/roots/main/checkpoint", {"authorization": f"Bearer {TOKEN}"}
        assert httpx2.post(path, json={"checkpoint": spoilt}, headers=authorization).status_code == 200
        assert verified(url, policy, TrustStore(tmp_path / "other reader.json"))[0] == 1
        assert refused(url, both, reader) == "signature"
        sign(url, signer, TrustStore(tmp_path / "another machine.json"), both)
        assert verified(url, both, reader)[0] == 1
        kept = Note.parse(reader.head(ORIGIN) or "").signatures
        assert [each for each in kept if each in strangers] == strangers
        assert wrong not in kept


def test_the_witness_of_the_tests_cosigns_only_what_continues_the_log(signer: Signer) -> None:
    with gateway() as url, witness("w.example", signer.key) as (at, cosigner):
        publish(url, "a", "b", "c")
        heads = []
        for size in (1, 2, 3):
            answer = httpx2.get(
                f"{url}/admin/v1/scopes/docs/roots/main/proof?size={size}&old=2",
                headers={"Authorization": f"Bearer {TOKEN}"},
            ).json()
            text = f"{ORIGIN}\n{size}\n{answer['root_hash']}\n"
            heads.append((Note(text, (signer.sign(text),)), answer["consistency"]))
        (one, _), (two, _), (three, proof) = heads
        stranger = Signer("other", load_private_key(new_private_key(), "other"))
        wrong = Note(two.text, (signer.sign(one.text),))
        unsigned = Note(two.text, (stranger.sign(two.text),))
        unknown = Note(two.text.replace(ORIGIN, "other"), (stranger.sign(two.text),))
        fork = two.text.replace(two.text.split("\n")[2], one.text.split("\n")[2])
        forged = Note(fork, (signer.sign(fork),))

        def post(*lines: str, note: Note) -> httpx2.Response:
            return httpx2.post(f"{at}/add-checkpoint", content="\n".join([*lines, "", note.encode()]).encode())

        assert post("old 0", note=unknown).status_code == 404
        assert post("old 0", note=wrong).status_code == 403
        assert post("old 0", note=unsigned).status_code == 403
        assert post("old x", note=two).status_code == 400
        assert post("old 0", proof[0], note=two).status_code == 422
        done = post("old 0", note=two)
        assert done.status_code == 200
        assert cosigner.verify(Note.parse(f"{two.encode()}{done.text}")) == COSIGNED_AT
        conflict = post("old 0", note=three)
        assert (conflict.status_code, conflict.text) == (409, "2\n")
        assert conflict.headers["content-type"] == "text/x.tlog.size"
        assert post("old 2", note=three).status_code == 422
        assert post("old 1", note=one).status_code == 409
        assert post("old 2", note=forged).status_code == 422
        assert post("old 2", note=two).status_code == 200
        assert post("old 2", *proof, note=three).status_code == 200


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (409, b'{"error":"invalid_change","message":"x","details":"\xff\xfe"}'),
        (409, b'{"error":"invalid_change","message":"x","details":{"a":1}}'),
        (409, b'{"error":"\xff","message":"\xff"}'),
        (409, b"\xff"),
        (409, b"9" * 20),
        (404, b"\xff\xfe"),
        (200, b"\xff\xff"),
        (200, b"\xe2\x80\x94 w.example AAAAAAAA\n" * 65),
        (200, b""),
    ],
)
def test_a_hostile_witness_stops_no_signature(
    signer: Signer, operator: TrustStore, reader: TrustStore, policy: Policy, status: int, body: bytes
) -> None:
    class Hostile(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    key = Signer("w.example", load_private_key(new_private_key(), "w"), 4).key
    failures: list[str] = []
    with gateway() as url, ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server, Client(url) as client:
        Thread(target=server.serve_forever, daemon=True).start()
        publish(url, "a")
        some = Policy.parse(f"log {signer.key}\nwitness w {key} http://127.0.0.1:{server.server_port}\nquorum none")
        sign_published(
            client, *NAMED, signer, operator, policy=some, token=TOKEN, failed=lambda name, _: failures.append(name)
        )
        server.shutdown()
        assert len(failures) == 1
        assert verified(url, policy, reader)[0] == 1
