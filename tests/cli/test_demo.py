"""The demo says so when something is not as it should be, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from coregw import demo
from gateways import Told, lying_gateway, names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    top = tmp_path / "source"
    (top / "docs").mkdir(parents=True)
    (top / "__pycache__").mkdir()
    for path in ("readme", "docs/one", "docs/two", "__pycache__/no"):
        (top / path).write_text(path)
    (top / "large").write_bytes(b"12345678" * (1 << 18))
    return top


def test_the_demo_shows_what_it_did(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(folder) == 0
    said = capsys.readouterr().out
    assert "4 files, 2,097,174 bytes, 1 of them lists of chunks" in said
    assert said.count("✓ refused") == 2
    assert "exit code 0" in said
    assert names(folder.parent / "scratch") == []


def wrong_bytes(told: Told) -> Told:
    return told.saying(told.body[:-1] + b"!") if told.path.startswith("/v1/cas/") else told


def wrong_answers(told: Told) -> Told:
    return told.saying(told.body.replace(b"bafkrei", b"bafkreh")) if told.path == "/v1/resolve" else told


@pytest.mark.parametrize("lie", [wrong_bytes, wrong_answers])
def test_a_lying_gateway_makes_the_demo_fail(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    honest = demo.Gateway

    class Lying(honest):
        def __init__(self, scratch: Path) -> None:
            super().__init__(scratch)
            self.liar = lying_gateway(lie, self.url)
            self.url = self.liar.__enter__()

        def kill(self) -> None:
            self.liar.__exit__(None, None, None)
            super().kill()

    monkeypatch.setattr(demo, "Gateway", Lying)
    assert demo.main(folder) == 1
    assert "✗ demo failed" in capsys.readouterr().out
    assert names(folder.parent / "scratch") == []


def test_a_gateway_that_does_not_start_makes_the_demo_fail(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert demo.main(folder) == 1
    assert "the gateway did not start" in capsys.readouterr().out
