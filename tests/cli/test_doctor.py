"""``coregw doctor``: what it finds, and that it knows every variable that the package reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import coregw
from coregw.cli.serve import known_variables
from coregw.gateway.settings import Settings

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def own_trust_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "trust.json"))


def states(done: Result) -> dict[str, str]:
    return {each["check"]: each["state"] for each in json.loads(done.stdout)}


def test_a_sound_installation(run: Run, gateway: str) -> None:
    done = run("doctor", "--json")
    assert done.exit_code == 0
    assert {"installation", "extras", "variables", "trust store", "gateway"} <= {*states(done)}
    assert {*states(done).values()} == {"ok"}
    assert f"{gateway} answers" in run("doctor").stdout


def test_a_gateway_that_is_away_is_an_error_without_its_password(run: Run) -> None:
    done = run("doctor", "--gateway", "http://me:pa55word@127.0.0.1:9")
    assert done.exit_code == 1
    assert "coregw serve" in done.stdout
    assert "pa55word" not in done.stdout + done.stderr


def test_the_next_step_fits_the_failure(run: Run, gateway: str) -> None:
    assert "try http://" in run("doctor", "--gateway", gateway.replace("http:", "https:")).stdout
    assert "check the name" in run("doctor", "--gateway", "http://nowhere.invalid").stdout


def test_misspelt_variables_and_settings_are_found(run: Run, tmp_path: Path) -> None:
    misspelt = run("doctor", env={"COREGW_MEMORI": "1", "COREGW_CACHE_BYTES": "1"})
    assert misspelt.exit_code == 0
    assert "nothing reads COREGW_MEMORI; did you mean COREGW_MEMORY?" in misspelt.stdout
    assert "nothing reads COREGW_CACHE_BYTES: it is derived from memory now" in misspelt.stdout
    wrong = run("doctor", "--json", env={"COREGW_PORT": "x"})
    assert (wrong.exit_code, states(wrong)["settings"]) == (1, "error")
    (tmp_path / "trust.json").write_text("{")
    damaged = run("doctor", "--json")
    assert (damaged.exit_code, states(damaged)["trust store"]) == (1, "error")


def test_every_variable_of_the_package_is_known() -> None:
    sources = Path(coregw.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r"\bCOREGW_[A-Z_]+[A-Z]\b", path.read_text("utf-8"))}
    settings = [variable for variable, _, _ in Settings.describe()]
    assert named - known_variables(settings) == set()
