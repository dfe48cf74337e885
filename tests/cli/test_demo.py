"""The demo: what it reports, how it fails, and that it leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import demo
import pytest

from gateways import Reply, lying_gateway, names


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


def test_the_demo_reports_its_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(folder) == 0
    output = capsys.readouterr().out
    assert "4 files, 2,097,174 bytes, 1 of them lists of chunks" in output
    assert output.count("✓ refused") == 2
    assert "exit code 0" in output
    assert names(folder.parent / "scratch") == []


def wrong_bytes(reply: Reply) -> Reply:
    return reply.with_body(reply.body[:-1] + b"!") if reply.path.startswith("/v1/cas/") else reply


def wrong_answers(reply: Reply) -> Reply:
    return reply.with_body(reply.body.replace(b"bafkrei", b"bafkreh")) if reply.path == "/v1/resolve" else reply


@pytest.mark.parametrize("lie", [wrong_bytes, wrong_answers])
def test_demo_fails_with_a_tampering_gateway(
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


def test_the_demo_fails_if_the_gateway_does_not_start(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert demo.main(folder) == 1
    assert "the gateway did not start" in capsys.readouterr().out
