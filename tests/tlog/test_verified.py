"""Signed publications end to end: a gateway, an operator, and a client; and gateways that lie to it."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result

from coregw import AsyncClient, Client, InvalidInput, Map, ProofError, TrustStore, Unauthorized
from coregw.cli.main import cli
from coregw.client.signing import sign_published
from coregw.tlog.checkpoint import Policy
from coregw.tlog.note import Note, Signer, load_private_key, new_private_key
from cosigning import witness
from gateways import Lie, Reply, lying_gateway
from signed_names import HASH, NAMED, ORIGIN, TOKEN, gateway, publish, refused, sign, verified


def test_publications_are_verified_by_their_signed_log(
    signer: Signer, policy: Policy, operator: TrustStore, reader: TrustStore
) -> None:
    with gateway() as url:
        first, second = publish(url, "a", "b")
        assert refused(url, policy, reader) == "unsigned"
        assert sign(url, signer, operator).size == 2
        assert verified(url, policy, reader) == (2, second)
        assert verified(url, policy, reader, 1) == (1, first)
        for revision in (0, -1):
            with pytest.raises(InvalidInput, match="from 1 to"):
                verified(url, policy, reader, revision)
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
            assert refused(url, policy, reader) == "unsigned"


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
        changed("checkpoint", None),
        lambda reply: reply.with_body(json.dumps(json.loads(reply.body) | {"status": "unsigned"}).encode()),
        lambda reply: reply.with_body(
            json.dumps({"record": json.loads(reply.body)["record"], "status": "unsigned"}).encode()
        ),
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
        at, cosigner = stack.enter_context(witness("witness.example", key.key))
        text = f"log {key.key}\nwitness w {cosigner} {at}\nquorum w\n"
        (tmp_path / "policy").write_bytes(b"# in Latin-1: \xfc\xff\n" + text.encode())
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
