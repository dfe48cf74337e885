"""``root``, ``publish`` and ``freeze``, and names in the place of roots in every command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import serving
from coregw import AsyncClient, Client, InvalidInput, Map, ProofError, TrustStore, payload_cid
from coregw.cli.main import cli
from coregw.store.memory import MemoryStore
from gateways import lying_gateway


@pytest.fixture
def gateway() -> Iterator[str]:
    with serving.thread(MemoryStore(), is_administered=True) as url:
        yield url


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrustStore:
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "trust.json"))
    monkeypatch.setenv("COREGW_ADMIN_TOKEN", serving.ADMIN_TOKEN)
    return TrustStore()


def run(gateway: str, *arguments: object) -> Result:
    environment = {"COREGW_GATEWAY": gateway, "COREGW_DEBUG": None}
    return CliRunner(env=environment).invoke(cli, [str(argument) for argument in arguments])


def done(gateway: str, *arguments: object) -> str:
    result = run(gateway, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def roots(gateway: str, count: int) -> list[str]:
    with Client(gateway) as client:
        cids = [client.put_payload(b"%d" % number) for number in range(count)]
        return [client.create_root({"file": cid, "folder/same": cids[0]}) for cid in cids]


def test_a_name_works_wherever_a_root_does(gateway: str, trust: TrustStore, tmp_path: Path) -> None:
    old, new = roots(gateway, 2)
    done(gateway, "root", "trust", "old", old)
    done(gateway, "root", "trust", "new", new)
    assert done(gateway, "resolve", "new", "file") == f"{payload_cid(b'1')}\n"
    assert done(gateway, "cat", "new", "file") == "1"
    assert done(gateway, "ls", "new") == done(gateway, "ls", new)
    assert done(gateway, "diff", "old", "new") == done(gateway, "diff", old, new) != ""
    assert done(gateway, "update", "old", "--set", "file", payload_cid(b"1")) == f"{new}\n"
    done(gateway, "get", "new", tmp_path / "copy")
    assert done(gateway, "diff", "new", tmp_path / "copy") == ""
    done(gateway, "verify", "new", tmp_path / "copy")
    done(gateway, "export", "new", tmp_path / "new.car")
    with serving.thread(MemoryStore()) as other:
        copied = done(gateway, "mirror", "new", "--base", "old", "--from", gateway, "--to", other)
        assert copied == f"{new}\n"
    failed = run(gateway, "cat", "none", "file")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("coregw: 'none' is not a name in ")
    assert "multibase" not in failed.stderr
    assert run(gateway, "diff", "old", "none").stderr.startswith("coregw: 'none' is neither a CID, nor a trusted name,")


def test_names_work_in_both_clients(gateway: str, trust: TrustStore, tmp_path: Path) -> None:
    old, new = roots(gateway, 2)
    trust.trust("old", old)
    trust.trust("new", new)
    one = payload_cid(b"1")
    with Client(gateway, trust=trust) as client:
        assert client.resolve("new", "file") == client.read_key("new", "file") == client.prove_key("new", "file") == one
        assert client.resolve_many("new", ["file"]) == client.prove_keys("new", ["file"]) == [one]
        assert client.scan("new").entries == client.scan(new).entries
        for listing in (client.entries, client.children, client.walk):
            assert list(listing("new")) == list(listing(new))
        assert list(client.diff("old", "new")) == list(client.diff(old, new)) != []
        assert list(client.diff_folders("old", "new")) == list(client.diff_folders(old, new))
        assert client.update("old", {"file": one}) == new
        assert client.locate("new", "folder") == client.locate(new, "folder")
        assert client.is_complete("new")
        client.export_car("new", tmp_path / "new.car")
        client.get("new", tmp_path / "copy")
        assert list(client.diff_tree("new", tmp_path / "copy").differences) == []
        with pytest.raises(InvalidInput, match="'none' is not a name in"):
            client.resolve("none", "file")
    with Client(gateway) as client, pytest.raises(InvalidInput, match="CID"):
        client.resolve("new", "file")

    async def asynchronous() -> None:
        async with AsyncClient(gateway, trust=trust) as client:
            assert await client.resolve("new", "file") == one
            assert [each async for each in client.diff("old", "new")]
            await client.get("new", tmp_path / "other")
            assert (await client.publications.publish("s", "n", "new", token=serving.ADMIN_TOKEN)).root == new
            assert (await client.publications.get("s", "n", token=serving.ADMIN_TOKEN)).revision == 1
            assert (await client.publications.freeze("s", "n", token=serving.ADMIN_TOKEN)).frozen

    asyncio.run(asynchronous())


def test_publish_accept_and_freeze(gateway: str, trust: TrustStore) -> None:
    versions = roots(gateway, 4)
    assert done(gateway, "publish", "docs/main", versions[0]) == f"{versions[0]}\n"
    assert done(gateway, "root", "trust", "docs", "--follow", "docs/main") == f"{versions[0]}\n"
    done(gateway, "publish", "docs/main", versions[1])
    assert trust.root("docs") == versions[0]  # a publication alone changes nothing
    accepted = run(gateway, "root", "accept", "docs")
    assert (accepted.stdout, accepted.exit_code) == (f"{versions[1]}\n", 0)
    assert "(revision 2)" in accepted.stderr
    listed = json.loads(done(gateway, "root", "list", "--json"))
    assert listed == {"docs": {"root": versions[1], "follows": {"scope": "docs", "name": "main"}}}
    assert versions[1] in done(gateway, "root", "list")
    history = json.loads(done(gateway, "root", "history", "docs", "--json"))
    assert [(each["root"], each["revision"]) for each in history] == [(versions[0], 1), (versions[1], 2)]
    assert done(gateway, "root", "history", "docs").count("revision") == 2
    refused = run(gateway, "root", "accept", "docs", versions[0])
    assert refused.exit_code == 3
    assert "rollback" in refused.stderr
    done(gateway, "root", "accept", "docs", versions[0], "--force")
    assert trust.root("docs") == versions[0]
    frozen = run(gateway, "freeze", "docs/main", "--yes")
    assert frozen.exit_code == 0
    assert "frozen" in frozen.stderr
    assert run(gateway, "publish", "docs/main", versions[2]).exit_code == 1
    done(gateway, "root", "forget", "docs")
    assert json.loads(done(gateway, "root", "list", "--json")) == {}
    for wrong in (("publish", "docs", versions[0]), ("root", "trust", "x"), ("freeze", "docs", "--yes")):
        assert run(gateway, *wrong).exit_code == 2
    assert run(gateway, "root", "accept", "docs", versions[0]).exit_code == 1


def test_an_unknown_name_has_a_next_step(gateway: str, trust: TrustStore) -> None:
    root = Map({}).root
    for arguments in (("accept", "dosc", root), ("accept", "dosc"), ("forget", "dosc"), ("history", "dosc")):
        failed = run(gateway, "root", *arguments)
        assert failed.exit_code == 1
        assert failed.stderr.endswith("trust.json; it has no names yet: coregw root trust NAME ROOT adds one\n")
    trust.trust("docs", root)
    assert run(gateway, "root", "forget", "dosc").stderr.endswith("; did you mean docs?\n")
    assert run(gateway, "root", "forget", "other").stderr.endswith("; coregw root list shows the names\n")
    assert trust.root("docs") == root


def test_a_gateway_that_goes_back_is_refused_also_by_another_process(gateway: str, trust: TrustStore) -> None:
    versions = roots(gateway, 8)
    with Client(gateway, trust=trust) as client:
        for version in versions[:7]:
            last = client.publications.publish("docs", "main", version, token=serving.ADMIN_TOKEN)
    assert last.revision == 7
    trust.trust("docs", versions[0])
    for revision, check in ((6, "rollback"), (7, "fork")):
        store = MemoryStore()
        with serving.thread(store, is_administered=True) as other:
            forked = [*roots(other, 8)[: revision - 1], versions[7]]
            with Client(other) as client:
                for version in forked:
                    client.publications.publish("docs", "main", version, token=serving.ADMIN_TOKEN)
            # the same address answers with another history: here, by the address that was seen
            again = TrustStore(trust.path)
            again.observe(other, "docs", "main", 7, versions[6])
            with Client(other, trust=again) as client, pytest.raises(ProofError) as refused:
                client.publications.get("docs", "main", token=serving.ADMIN_TOKEN)
            assert refused.value.check == check
            assert run(other, "root", "trust", "forked", "--follow", "docs/main").exit_code == 3
            with Client(other, trust=again) as client:
                forced = client.publications.get("docs", "main", token=serving.ADMIN_TOKEN, force=True)
                assert forced.revision == revision
                client.publications.get("docs", "main", token=serving.ADMIN_TOKEN)
    assert trust.root("docs") == versions[0]


def test_what_a_gateway_says_does_not_steer_the_terminal() -> None:
    record = {"scope": "\x1b]0;title\x07", "name": "\x9b2J", "root": "\x1b[1m", "revision": 1, "previous_root": None}
    record |= {"published_at": "2026-01-01T00:00:00Z", "frozen": True}
    with lying_gateway(lambda reply: reply.with_body(json.dumps(record).encode())) as url:
        refused = run(url, "freeze", "--yes", "scope/name")
    assert refused.exit_code == 3
    assert "the answer is the record of \\x1b]0;title\\x07/\\x9b2J" in refused.stderr
    assert refused.stderr.rstrip("\n").isprintable()
