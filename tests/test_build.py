"""Manifests and lock files agree, and the lock files are independent of the machine that made them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import coregw
from tables import rows

TOP = Path(__file__).parent.parent
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
CARGO = tomllib.loads((TOP / "Cargo.toml").read_text("utf-8"))
LOCK = (TOP / "requirements.lock").read_text("utf-8")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)
PINS = {canonicalize_name(name): version for name, version in PIN.findall(LOCK)}
DECLARED = [
    *PROJECT["project"]["dependencies"],
    *(
        text
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for text in extra
        if "coregw[" not in text
    ),
    *(text for group in PROJECT["dependency-groups"].values() for text in group),
    *PROJECT["build-system"]["requires"],
]


@rows("text", DECLARED)
def test_the_lock_file_satisfies_a_declared_requirement(text: str) -> None:
    requirement = Requirement(text)
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_every_pin_has_hashes() -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(PIN.findall(LOCK)) >= len(PINS)  # a pin that depends on the platform is there twice
    assert all("--hash=sha256:" in entry for entry in entries)


def test_the_lock_files_name_no_host() -> None:
    assert "://" not in LOCK
    sources = set(re.findall(r'^source = "(.*)"$', (TOP / "Cargo.lock").read_text("utf-8"), re.MULTILINE))
    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}


def test_the_extension_has_the_version_of_the_workspace() -> None:
    assert coregw.__version__ == CARGO["workspace"]["package"]["version"]


# Crates that only compute: hash functions, encodings, searches in memory, a cache. None does I/O or reads a clock.
PURE = {
    "base64-simd",
    "blake2",
    "blake3",
    "coregw-lanes",
    "data-encoding",
    "fastcdc",
    "httparse",
    "memchr",
    "multibase",
    "quick_cache",
    "serde",
    "serde_ipld_dagcbor",
    "serde_json",
    "sha2",
    "sha3",
}


@pytest.mark.parametrize("crate", ["core", "front", "ops"])
def test_what_decides_depends_on_nothing_that_does_io(crate: str) -> None:
    """All of `core` and `ops`, and the rules of `front`, whose connections are a feature."""
    manifest = tomllib.loads((TOP / "rust" / crate / "Cargo.toml").read_text("utf-8"))
    all_dependencies = manifest["dependencies"].items()
    always = {name for name, each in all_dependencies if not (isinstance(each, dict) and each.get("optional"))}
    assert always <= PURE | {"coregw-core"}


@pytest.mark.parametrize("crate", ["core", "lanes", "ops"])
def test_the_lock_file_of_the_fuzz_targets_has_every_dependency(crate: str) -> None:
    manifest = tomllib.loads((TOP / "rust" / crate / "Cargo.toml").read_text("utf-8"))
    packages = tomllib.loads((TOP / "rust" / "fuzz" / "Cargo.lock").read_text("utf-8"))["package"]
    (locked,) = (package for package in packages if package["name"] == f"coregw-{crate}")
    assert {name.split()[0] for name in locked.get("dependencies", [])} == set(manifest.get("dependencies", {}))
