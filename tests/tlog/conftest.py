"""A key that signs a name's history, and stores that remember what was seen of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coregw import TrustStore
from coregw.tlog.checkpoint import Policy
from coregw.tlog.note import Signer, load_private_key, new_private_key
from signed_names import ORIGIN


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
