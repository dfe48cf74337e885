"""Signed publications end to end: a gateway, an operator, witnesses, and a client; and gateways that lie to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result

import serving
from coregw import AsyncClient, Client, InvalidInput, Map, ProofError, RecordNotFound, TrustStore, Unauthorized
from coregw.cli import cli
from coregw.client.signing import sign_published
from coregw.gateway.server import Service
from coregw.store.memory import MemoryStore
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.note import Note, Signer, load_private_key, new_private_key
from coregw.tlog.policy import Policy
from coregw.tlog.tree import EMPTY_ROOT
from coregw.witness.app import witness_service
from coregw.witness.cosigning import MAX_REQUEST_BYTES, Witness
from gateways import Lie, Reply, lying_gateway

TOKEN = serving.ADMIN_TOKEN
ORIGIN = "example.org/docs/main"
NAMED = ("docs", "main")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "log.pem"
    file.write_bytes(new_private_key())
    return file


@pytest.fixture
def signer(pem: Path) -> Signer:
    return Signer(ORIGIN, load_private_key(pem.read_bytes(), "log"))


@pytest.fixture
def policy(signer: Signer) -> Policy:
    return Policy.parse(f"log {signer.key}\nquorum none")


@pytest.fixture
def operator(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "operator.json")


@pytest.fixture
def reader(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "reader.json")


@contextmanager
def gateway() -> Iterator[str]:
    with serving.thread(MemoryStore(), is_administered=True) as url:
        yield url


def publish(url: str, *names: str) -> list[str]:
    with Client(url) as client:
        payload = client.put_payload(b"x")
        roots = [client.create_root({name: payload}) for name in names]
        for root in roots:
            client.publications.publish(*NAMED, root, token=TOKEN)
    return roots


def sign(url: str, signer: Signer, operator: TrustStore, policy: Policy | None = None) -> Checkpoint:
    with Client(url) as client:
        return sign_published(client, *NAMED, signer, operator, policy=policy, token=TOKEN).checkpoint


def verified(url: str, policy: Policy, reader: TrustStore, revision: int | None = None) -> tuple[int, str]:
    with Client(url, trust=reader) as client:
        record = client.publications.verified(*NAMED, policy, revision=revision).record
        return record.revision, record.root


def refused(url: str, policy: Policy, reader: TrustStore) -> str:
    with pytest.raises(ProofError) as error:
        verified(url, policy, TrustStore(reader.path))  # as after a restart
    return error.value.check


def test_publications_are_verified_by_their_signed_log(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore
) -> None:
    with gateway() as url:
        first, second = publish(url, "a", "b")
        with pytest.raises(RecordNotFound):  # what is not signed is not public
            verified(url, policy, reader)
        assert sign(url, signer, operator).size == 2
        assert verified(url, policy, reader) == (2, second)
        assert verified(url, policy, reader, 1) == (1, first)
        (third,) = publish(url, "c")
        assert verified(url, policy, reader) == (2, second)  # not signed yet
        sign(url, signer, operator)
        sign(url, signer, operator)  # idempotent
        assert verified(url, policy, reader) == (3, third)

        async def asynchronous() -> None:
            async with AsyncClient(url, trust=reader) as client:
                assert (await client.publications.verified(*NAMED, policy)).record.root == third

        asyncio.run(asynchronous())
        with Client(url) as client:
            client.publications.freeze(*NAMED, token=TOKEN)
        sign(url, signer, operator)
        with Client(url, trust=reader) as client:
            found = client.publications.verified(*NAMED, policy)
            assert (found.record.frozen, found.checkpoint.size) == (True, 4)
        held = reader.head(ORIGIN)
        assert held == operator.head(ORIGIN)
        with pytest.raises(Unauthorized), Client(url) as client:
            sign_published(client, *NAMED, signer, operator, token="wrong")


def test_a_split_view_is_refused_by_whoever_saw_the_other_one(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore, tmp_path: Path
) -> None:
    """The operator's key signs two histories: two operators, or one who was made to forget."""
    for sizes in ((2, 2), (2, 3), (1, 4)):
        reader = TrustStore(tmp_path / f"{sizes}.json")
        with gateway() as one, gateway() as other:
            publish(one, *"ab"[: sizes[0]])
            publish(other, *"xyzw"[: sizes[1]])
            for number, url in enumerate((one, other)):
                sign(url, signer, TrustStore(tmp_path / f"operator{sizes}{number}.json"))
            verified(one, policy, reader)
            assert refused(other, policy, reader) == "fork"
            with pytest.raises(ProofError) as error:
                verified(other, policy, reader)
            evidence = json.loads(error.value.details or b"")  # both checkpoints, each signed
            assert [Policy.verify(policy, Note.parse(evidence[each])).size for each in ("seen", "answer")] == [*sizes]
            with Client(other, trust=reader) as client:
                client.publications.verified(*NAMED, policy, force=True)
            verified(other, policy, reader)


def test_a_rollback_is_refused(signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore) -> None:
    with gateway() as url:
        publish(url, "a")
        sign(url, signer, operator)
        with httpx2.Client() as http:
            old = http.get(f"{url}/v1/publications/docs/main").content
            publish(url, "b")
            sign(url, signer, operator)
            verified(url, policy, reader)
        with lying_gateway(lambda reply: reply.with_body(old), url) as replaying:
            assert refused(replaying, policy, reader) == "rollback"
        assert verified(url, policy, reader)[0] == 2


def test_an_operator_signs_no_fork_and_no_rollback(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore
) -> None:
    with gateway() as one, gateway() as forked, gateway() as older:
        publish(one, "a", "b")
        publish(forked, "a", "c", "d")
        publish(older, "a")
        sign(one, signer, operator)
        for url, check in ((forked, "fork"), (older, "rollback")):
            with pytest.raises(ProofError) as error:
                sign(url, signer, operator)
            assert error.value.check == check
            with pytest.raises(RecordNotFound):
                verified(url, policy, reader)


def test_a_new_machine_continues_what_the_key_has_signed(
    signer: Signer, policy: Policy, operator: TrustStore, tmp_path: Path
) -> None:
    with gateway() as url:
        publish(url, "a")
        sign(url, signer, operator)
        publish(url, "b")
        assert sign(url, signer, TrustStore(tmp_path / "new.json")).size == 2
        other = Signer(ORIGIN, load_private_key(new_private_key(), "other"))
        assert sign(url, other, TrustStore(tmp_path / "rotated.json")).size == 2  # a new key starts at the empty tree


def changed(name: str, value: object) -> Lie:
    """A gateway that changes a member of the answer, or of its record."""

    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        (document if name in document else document["record"])[name] = value
        return reply.with_body(json.dumps(document).encode())

    return lie


def without(name: str) -> Lie:
    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        del document[name]
        return reply.with_body(json.dumps(document).encode())

    return lie


HASH = "A" * 43 + "="


@pytest.mark.parametrize(
    "lie",
    [
        changed("root", Map({}).root),
        changed("revision", 1),
        changed("revision", 3),
        changed("previous_root", None),
        changed("published_at", "2024-02-29T12:34:56Z"),
        changed("published_at", "2024-02-29T12:34:56"),
        changed("scope", "other"),
        changed("name", "other"),
        changed("frozen", True),
        changed("freeze", []),
        changed("inclusion", []),
        changed("inclusion", [HASH]),
        changed("inclusion", ["x"]),
        changed("inclusion", [HASH] * 64),
        changed("consistency", [HASH]),
        changed("consistency", [HASH] * 1000),
        changed("checkpoint", "x"),
        changed("checkpoint", f"{ORIGIN}\n0\nx\n\n— a AAAAAAAA\n"),
        changed("checkpoint", "x" * 70_000),
        without("checkpoint"),
        without("inclusion"),
        lambda reply: reply.with_body(b"x" * 300_000),
    ],
)
def test_a_forged_answer_is_refused(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore, lie: Lie
) -> None:
    with gateway() as url:
        publish(url, "a")
        sign(url, signer, operator)
        verified(url, policy, reader)
        publish(url, "b")
        sign(url, signer, operator)
        before = reader.head(ORIGIN)
        with lying_gateway(lie, url) as liar, pytest.raises((ProofError, InvalidInput)):
            verified(liar, policy, reader)
        assert reader.head(ORIGIN) == before


def test_a_wrong_key_and_the_log_of_another_name_are_refused(
    signer: Signer, operator: TrustStore, reader: TrustStore
) -> None:
    other = Signer(ORIGIN, load_private_key(new_private_key(), "other"))
    elsewhere = Signer("example.org/docs/other", load_private_key(new_private_key(), "other"))
    with gateway() as url:
        publish(url, "a")
        sign(url, signer, operator)
        for key in (other.key, elsewhere.key):
            assert refused(url, Policy.parse(f"log {key}\nquorum none"), reader) == "signature"
        with Client(url, trust=reader) as client, pytest.raises(InvalidInput, match="2 logs"):
            client.publications.verified(*NAMED, Policy((signer.key, elsewhere.key), {}, {}, "none"))


# --- witnesses --------------------------------------------------------------------------------------------------------


@contextmanager
def witness(file: Path, *logs: Signer) -> Iterator[tuple[str, Signer]]:
    signer = Signer(f"{file.stem}.example", load_private_key(new_private_key(), "witness"), 4)
    service: Service = witness_service(Witness(file, signer, [each.key for each in logs], lambda: 1_700_000_000))
    with serving.thread(MemoryStore(), service=service) as url:
        yield url, signer


def policy_of(signer: Signer, witnesses: list[tuple[str, Signer]], quorum: str = "all") -> Policy:
    lines = [f"witness w{number} {each.key} {url}" for number, (url, each) in enumerate(witnesses)]
    members = " ".join(f"w{number}" for number in range(len(witnesses)))
    return Policy.parse("\n".join([f"log {signer.key}", *lines, f"group g {quorum} {members}", "quorum g"]))


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


# --- commands ---------------------------------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COREGW_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "trust.json"))

    def run(*arguments: object) -> Result:
        environment = {"COREGW_GATEWAY": url, "COREGW_DEBUG": None}
        return CliRunner(env=environment).invoke(cli, [str(argument) for argument in arguments])

    with ExitStack() as stack:
        url = stack.enter_context(gateway())
        made = run("key", tmp_path / "log.pem", "--name", ORIGIN)
        assert made.exit_code == 0, made.output
        assert run("key", tmp_path / "log.pem", "--name", ORIGIN).stdout == made.stdout
        assert (tmp_path / "log.pem").stat().st_mode & 0o777 == 0o600
        key = Signer(ORIGIN, load_private_key((tmp_path / "log.pem").read_bytes(), "log"))
        assert made.stdout == f"{key.key}\n"
        at, cosigner = stack.enter_context(witness(tmp_path / "witness.json", key))
        (tmp_path / "policy").write_text(f"log {key.key}\nwitness w {cosigner.key} {at}\nquorum w\n")
        first, second = publish(url, "a", "b")
        options = ("--key", tmp_path / "log.pem", "--origin", "example.org", "--policy", tmp_path / "policy")
        published = run("publish", "docs/main", first, *options)
        assert published.exit_code == 0, published.output
        assert "signed example.org/docs/main at size 3" in published.stderr
        monkeypatch.delenv("COREGW_ADMIN_TOKEN")  # readers need none
        trusted = run("root", "trust", "docs", "--follow", "docs/main", "--policy", tmp_path / "policy")
        assert (trusted.stdout, trusted.exit_code) == (f"{first}\n", 0), trusted.output
        monkeypatch.setenv("COREGW_ADMIN_TOKEN", TOKEN)
        run("publish", "docs/main", second)
        signed = run("sign", "docs/main", *options)
        assert signed.exit_code == 0, signed.output
        assert Note.parse(signed.stdout).text.startswith(f"{ORIGIN}\n4\n")
        accepted = run("root", "accept", "docs")
        assert (accepted.stdout, accepted.exit_code) == (f"{second}\n", 0), accepted.output
        assert TrustStore().name("docs").history[-1].revision == 4
        assert run("sign", "docs/main", "--key", tmp_path / "none.pem", "--origin", "x").exit_code == 1
        assert run("publish", "docs/main", first, "--key", tmp_path / "log.pem").exit_code == 2
        assert run("root", "trust", "x", first, "--policy", tmp_path / "policy").exit_code == 2


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
