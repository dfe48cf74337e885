"""Makes a release on this machine: version, changelog, commit, distributions, SBOMs, checksums, tag. Uploads nothing.

The version is that of the Cargo workspace, from which maturin takes the version of the Python package. The package for
npm, which a release does not publish, has the same one.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
UNRELEASED = "## [Unreleased]\n"
# The version of the workspace, and those of our crates in the requirements of others.
WORKSPACE = re.compile(r'(?m)^(version = ")([^"]+)(")$')
REQUIRED = re.compile(r'(?m)^(coregw-\w+ = \{ path = "[^"]+", version = ")([^"]+)(".*\})$')
# Our crates in lock files, which cargo would change only with a registry.
LOCKED = re.compile(r'(name = "coregw-(?:core|folders|front|lanes|ops|python)"\nversion = ")([^"]+)(")')
LOCKS = ("Cargo.lock", "rust/fuzz/Cargo.lock", "benches/peers/rust/Cargo.lock")
# The verifier in TypeScript, in its manifest and its lock file; not its dependencies.
NPM_PACKAGE = re.compile(r'("name": "coregw-verify",\n *"version": ")([^"]+)(")')
NPM_FILES = {"js/package.json": 1, "js/package-lock.json": 2}


def run(*command: str | Path) -> str:
    """Run a command and return what it prints. Exit with its error if it fails."""
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def check(version: str) -> None:
    """Exit unless this version can be released from what is checked out."""
    if VERSION.fullmatch(version) is None:
        sys.exit(f"VERSION: {version!r} is not a version x.y.z")
    if run("git", "status", "--porcelain"):
        sys.exit("the working tree has changes: commit them first")
    if run("git", "tag", "--list", f"v{version}"):
        sys.exit(f"v{version} is tagged already")
    tagged = [each.removeprefix("v") for each in run("git", "tag", "--list", "v*").split()]
    newest = max((numbers(each) for each in tagged if VERSION.fullmatch(each)), default=(0, 0, 0))
    if numbers(version) <= newest:
        sys.exit(f"VERSION: {version} is not above {'.'.join(map(str, newest))}, which is tagged")


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(map(int, version.split(".")))


def move_changes(version: str) -> str:
    """Move what is unreleased in the changelog to the version, and return it."""
    path = TOP / "CHANGELOG.md"
    before, found, rest = path.read_text("utf-8").partition(UNRELEASED)
    changes, following, older = rest.partition("\n## [")
    if not found or not changes.strip():
        sys.exit("CHANGELOG.md has nothing under [Unreleased]")
    today = dt.datetime.now(dt.UTC).date()
    path.write_text(f"{before}{UNRELEASED}\n## [{version}] - {today}\n{changes}{following}{older}", "utf-8")
    return changes.strip()


def set_version(version: str) -> None:
    """Write the version to the manifests and lock files."""
    text, count = WORKSPACE.subn(rf"\g<1>{version}\g<3>", (TOP / "Cargo.toml").read_text("utf-8"))
    if count != 1:
        sys.exit(f"Cargo.toml: expected one version, found {count}")
    (TOP / "Cargo.toml").write_text(text, "utf-8")
    for path in TOP.glob("rust/*/Cargo.toml"):
        path.write_text(REQUIRED.sub(rf"\g<1>{version}\g<3>", path.read_text("utf-8")), "utf-8")
    for name in LOCKS:
        text = (TOP / name).read_text("utf-8")
        (TOP / name).write_text(LOCKED.sub(rf"\g<1>{version}\g<3>", text), "utf-8")
    for name, expected in NPM_FILES.items():
        text, count = NPM_PACKAGE.subn(rf"\g<1>{version}\g<3>", (TOP / name).read_text("utf-8"))
        if count != expected:
            sys.exit(f"{name}: expected {expected} versions of coregw-verify, found {count}")
        (TOP / name).write_text(text, "utf-8")


def write_sboms(out: Path) -> None:
    """Write the components as CycloneDX: of the extension, as maturin puts them into wheels, and of all extras."""
    wheel = min(out.glob("*.whl"), default=None)
    if wheel is None:
        sys.exit(f"{out} has no wheel")
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".cyclonedx.json")]
        (out / f"coregw-{version}-rust.cyclonedx.json").write_bytes(archive.read(name))
    python = out / f"coregw-{version}-python.cyclonedx.json"
    given = ("--pyproject", TOP / "pyproject.toml", "--output-reproducible", "--output-file", python)
    run(BIN / "cyclonedx-py", "requirements", *given, TOP / "deploy" / "requirements.lock")


def write_checksums(out: Path) -> None:
    """Write the file that ``sha256sum --check`` reads."""
    files = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")


def main() -> None:
    """Make the release that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", nargs="?", default="", help="x.y.z")
    parser.add_argument("--no-dist", action="store_true", help="only change, commit and tag")
    parser.add_argument("--attach", type=Path, help="only write SBOMs and checksums of the wheels in this folder to it")
    options = parser.parse_args()
    if options.attach is not None:
        write_sboms(options.attach)
        write_checksums(options.attach)
        return
    version: str = options.version
    check(version)
    changes = move_changes(version)
    set_version(version)
    run("git", "commit", "--all", "--quiet", "--message", f"Release {version}")
    out = TOP / "dist" / version
    if not options.no_dist:
        if subprocess.run(
            [sys.executable, Path(__file__).with_name("wheels.py"), "--out", out], check=False
        ).returncode:
            sys.exit("the build failed; the release is committed, but not tagged: git reset --keep HEAD~1")
        write_sboms(out)
        write_checksums(out)
    is_signed = subprocess.run(["git", "config", "user.signingkey"], cwd=TOP, capture_output=True, check=False)
    kind = "--annotate" if is_signed.returncode else "--sign"
    run("git", "tag", kind, "--cleanup=verbatim", "--message", f"coregw {version}\n\n{changes}\n", f"v{version}")
    print(f"v{version} is committed and tagged ({kind[2:]}); nothing was uploaded. After a look at {out}:")
    print(f"git push origin HEAD v{version}")


if __name__ == "__main__":
    main()
