"""`make audit` fails for findings and broken rules, and not because a database cannot be reached."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import audit

FOUND = {"name": "pip", "version": "25.0", "vulns": [{"id": "PYSEC-1"}]}
CLEAN = {"name": "pip", "version": "25.0", "vulns": []}
SKIPPED = {"name": "pip", "skip_reason": "not reached"}
Outcome = tuple[int, str]
GOOD: dict[str, Outcome] = {"licenses": (0, ""), "fetch": (0, ""), "advisories": (0, ""), "pip": (0, "")}


def ran(command: str, outcome: Outcome) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(command, outcome[0], outcome[1], outcome[1])


def audited(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Outcome], lock: object, probe: object) -> int:
    """Run the audit with tools that end like this. `lock` and `probe` are what pip-audit finds."""

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        if command[0].endswith("pip-audit"):
            found = lock if command[2].endswith("/requirements.lock") else probe
            return ran("pip-audit", (0, "" if found is None else json.dumps({"dependencies": found})))
        which = next(word for word in ("licenses", "fetch", "advisories") if word in command)
        return ran(which, outcomes[which])

    monkeypatch.setattr(audit, "run", run)
    return audit.main()


@pytest.mark.parametrize(
    ("outcomes", "lock", "probe", "code", "said"),
    [
        pytest.param({}, [CLEAN], [CLEAN], 0, "", id="nothing"),
        pytest.param({"licenses": (4, "GPL")}, [CLEAN], [CLEAN], 1, "GPL", id="a broken rule"),
        pytest.param({"advisories": (1, "RUSTSEC-1")}, [CLEAN], [CLEAN], 1, "RUSTSEC-1", id="a Rust vulnerability"),
        pytest.param({"fetch": (1, ""), "advisories": (1, "")}, [CLEAN], [CLEAN], 0, "RustSec", id="no RustSec"),
        pytest.param({}, [CLEAN, FOUND], [FOUND], 1, "PYSEC-1", id="a Python vulnerability"),
        pytest.param({}, [FOUND], None, 0, "PyPI cannot be reached", id="no PyPI"),
        pytest.param({}, [FOUND], [SKIPPED], 0, "PyPI cannot be reached", id="PyPI knows nothing"),
        pytest.param({}, None, [FOUND], 1, "FAILED", id="requirements that cannot be read"),
        pytest.param({}, [CLEAN, SKIPPED], [CLEAN], 0, "pip: not reached", id="one package is unknown"),
        pytest.param({"licenses": (1, "GPL"), "fetch": (1, "")}, None, None, 1, "GPL", id="a broken rule offline"),
    ],
)
def test_findings_fail_and_unreachable_databases_do_not(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcomes: dict[str, Outcome],
    lock: object,
    probe: object,
    code: int,
    said: str,
) -> None:
    assert audited(monkeypatch, {**GOOD, **outcomes}, lock, probe) == code
    printed = capsys.readouterr().out
    assert said in printed
    assert ("FAILED" in printed) is (code != 0)


def test_a_tool_that_does_not_end_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SECONDS", 0.01)
    assert audit.run(sys.executable, "-c", "import time; time.sleep(60)").returncode == 124
