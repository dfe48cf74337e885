"""`make release` on a clone: version, changelog, commit and tag; and what it refuses. Nothing is built."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": "release@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}

pytestmark = pytest.mark.skipif(not (TOP / ".git").exists(), reason="needs the history of a clone")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of this repository with the scripts and the changelog of the working tree, committed."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--shared", str(TOP), str(folder))
    manifests = ("Cargo.toml", *(str(path.relative_to(TOP)) for path in TOP.glob("rust/*/Cargo.toml")))
    for name in ("deploy/release/release.py", *manifests):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((TOP / name).read_bytes())
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(
        changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- News.\n")
    )
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Prepare")
    return folder


def release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/release/release.py", version, "--no-dist"]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_a_release_is_committed_and_tagged(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, "7.8.9")
    assert (done.returncode, done.stderr) == (0, "")
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "v7.8.9^{commit}^") == before
    assert git(clone, "cat-file", "-t", "v7.8.9") == "tag"
    message = git(clone, "tag", "--list", "--format=%(contents)", "v7.8.9")
    assert message.startswith("coregw 7.8.9\n\n### Added\n\n- News.\n")
    assert "\n## [" not in message
    assert re.search(
        r"## \[Unreleased\]\n\n## \[7\.8\.9\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- News\.\n",
        (clone / "CHANGELOG.md").read_text(),
    )
    assert tomllib.loads((clone / "Cargo.toml").read_text())["workspace"]["package"]["version"] == "7.8.9"
    locks = {"Cargo.lock", "rust/fuzz/Cargo.lock", "benches/peers/rust/Cargo.lock"}
    for lock in locks:
        packages = tomllib.loads((clone / lock).read_text())["package"]
        crates = {f"coregw-{path.name}" for path in (clone / "rust").iterdir()} - {"coregw-fuzz"}
        assert {each["version"] for each in packages if each["name"] in crates} == {"7.8.9"}
    manifests = {*(f"rust/{name}/Cargo.toml" for name in ("core", "folders", "front", "ops")), "js/package.json"}
    manifests.add("js/package-lock.json")
    changed = git(clone, "show", "--name-only", "--format=", "HEAD").split()
    assert set(changed) == {"CHANGELOG.md", "Cargo.toml"} | manifests | locks
    npm, npm_lock = (json.loads((clone / "js" / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert {npm["version"], npm_lock["version"], npm_lock["packages"][""]["version"]} == {"7.8.9"}
    for path in clone.glob("rust/*/Cargo.toml"):  # cargo would refuse any other version of a crate of the workspace
        for name, required in tomllib.loads(path.read_text()).get("dependencies", {}).items():
            if isinstance(required, dict) and "path" in required and "version" in required:
                assert required["version"] == "7.8.9", (path, name)

    for version, why in {
        "7.8.9": "v7.8.9 is tagged already",
        "7.8.8": "7.8.8 is not above 7.8.9, which is tagged",
        "7.9": "'7.9' is not a version x.y.z",
        "8.0.0": "CHANGELOG.md has nothing under [Unreleased]",
    }.items():
        refused = release(clone, version)
        assert refused.returncode == 1
        assert why in refused.stderr
        assert git(clone, "status", "--porcelain") == ""
    (clone / "README.md").write_text("changed")
    assert "the working tree has changes" in release(clone, "8.0.0").stderr


def test_the_packages_have_one_version() -> None:
    version = tomllib.loads((TOP / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert json.loads((TOP / "js" / "package.json").read_text())["version"] == version


def script_of(name: str) -> Any:  # noqa: ANN401 - a module that type checkers don't know
    spec = importlib.util.spec_from_file_location(name, TOP / "deploy" / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_licences_of_all_that_is_linked_or_bundled_are_in_wheels() -> None:
    """After a change of the dependencies: `make lock`."""
    script = script_of("licenses")
    headings = script.OUTPUT.read_text("utf-8").split(f"{script._LINE}\n")[1::2]
    named = {name.strip() for heading in headings for name in heading.replace("\n", " ").split(", ")}
    assert named == {*script.crates(), *script.bundled()}
    files = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["license-files"]
    assert str(script.OUTPUT.relative_to(TOP)) in files


def test_checksums_and_components_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of("release")
    commands: list[tuple[object, ...]] = []
    monkeypatch.setattr(script, "run", lambda *command, **_: commands.append(command))
    with zipfile.ZipFile(tmp_path / "coregw-1.2.3-cp311-abi3-any.whl", "w") as wheel:
        wheel.writestr("coregw-1.2.3.dist-info/sboms/coregw-python.cyclonedx.json", '{"bomFormat": "CycloneDX"}')
    script.write_sboms(tmp_path)
    rust = tmp_path / "coregw-1.2.3-rust.cyclonedx.json"
    assert json.loads(rust.read_text()) == {"bomFormat": "CycloneDX"}
    assert commands[0][-1] == TOP / "deploy" / "requirements.lock"
    script.write_checksums(tmp_path)
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True)
    assert checked.stdout.count(b": OK\n") == 2
