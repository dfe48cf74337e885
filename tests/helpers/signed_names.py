"""Signed publications of one name: a gateway, its operator, its readers, and their policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import serving
from coregw import Client, ProofError, TrustStore
from coregw.client.signing import sign_published
from coregw.store.memory import MemoryStore
from coregw.tlog.checkpoint import Checkpoint, Policy
from coregw.tlog.note import Signer, VerifierKey

TOKEN = serving.ADMIN_TOKEN
ORIGIN = "example.org/docs/main"
NAMED = ("docs", "main")
HASH = "A" * 43 + "="
"""A hash in the form of the log's answers, of nothing that is in one."""


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


def policy_of(signer: Signer, witnesses: list[tuple[str, VerifierKey]], quorum: str = "all") -> Policy:
    lines = [f"witness w{number} {key} {url}" for number, (url, key) in enumerate(witnesses)]
    members = " ".join(f"w{number}" for number in range(len(witnesses)))
    return Policy.parse("\n".join([f"log {signer.key}", *lines, f"group g {quorum} {members}", "quorum g"]))
