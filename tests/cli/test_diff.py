"""``coregw diff``: differences as lines, none of them unproven."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from click.testing import Result

from coregw import Map, payload_cid
from coregw.client import Client
from gateways import Reply, lying_gateway

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]

OLD, NEW = payload_cid(b"old"), payload_cid(b"new")
BEFORE = {"docs/a": OLD, "docs/b": OLD, "docs/same": OLD, "src/gone": OLD}
AFTER = {"docs/a": NEW, "docs/b/below": NEW, "docs/b": OLD, "docs/same": OLD, "src/odd\n\\\x1b[31m": NEW}


@pytest.fixture
def roots(gateway: str) -> tuple[str, str]:
    with Client(gateway) as client:
        return client.create_root(BEFORE), client.create_root(AFTER)


def test_each_line_is_a_sign_and_a_path(coregw: Start, roots: tuple[str, str]) -> None:
    shown = coregw("diff", *roots)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.decode() == "~ docs/a\n+ docs/b/below\n- src/gone\n+ src/odd\\n\\\\\\x1b[31m\n"


def test_only_differences_at_and_below_the_prefix_are_shown(run: Run, roots: tuple[str, str]) -> None:
    assert run("diff", *roots, "docs").stdout == "~ docs/a\n+ docs/b/below\n"
    assert run("diff", *reversed(roots), "src/gone").stdout == "+ src/gone\n"


@pytest.mark.parametrize("prefix", ["docs/same", "nowhere"])
def test_no_differences_are_no_lines_and_exit_code_0(run: Run, roots: tuple[str, str], prefix: str) -> None:
    shown = run("diff", *roots, prefix)
    assert (shown.exit_code, shown.output) == (0, "")


def test_json_lines_contain_the_targets(run: Run, roots: tuple[str, str]) -> None:
    shown = run("diff", *roots, "--json")
    assert shown.exit_code == 0
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [
        {"segments": ["docs", "a"], "before": OLD, "after": NEW},
        {"segments": ["docs", "b", "below"], "after": NEW},
        {"segments": ["src", "gone"], "before": OLD},
        {"segments": ["src", "odd\n\\\x1b[31m"], "after": NEW},
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tampered_page_is_not_shown(run: Run, gateway: str, roots: tuple[str, str], options: list[str]) -> None:
    def lie(reply: Reply) -> Reply:
        document = json.loads(reply.body)
        document["entries"].pop()
        return reply.with_body(json.dumps(document).encode())

    with lying_gateway(lie, gateway) as url:
        refused = run("diff", *roots, *options, gateway=url)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr.startswith(f"coregw: not proven: compare {roots[0]} with {roots[1]}: ")
    assert len(refused.stderr.splitlines()) == 1


def test_pages_before_a_tampered_one_are_shown(run: Run, gateway: str) -> None:
    with Client(gateway) as client:
        many = client.create_root({f"{number:04}": NEW for number in range(1500)})
        none = client.create_root({})
    assert len(run("diff", none, many).stdout.splitlines()) == 1500
    with lying_gateway(lambda reply: reply.with_body(b"{}") if "after=" in reply.path else reply, gateway) as url:
        refused = run("diff", none, many, gateway=url)
    assert refused.exit_code == 3
    assert refused.stdout == "".join(f"+ {number:04}\n" for number in range(1000))


def test_invalid_arguments_are_one_line_and_a_failure(run: Run, roots: tuple[str, str]) -> None:
    never = Map({"never": OLD, "stored": OLD}).root
    for b in ("no cid", OLD, Map({}, suite="blake3").root, never):
        failed = run("diff", roots[0], b)
        assert (failed.exit_code, failed.stdout) == (1, "")
        assert len(failed.stderr.splitlines()) == 1
    assert run("diff", *roots, "docs//a").exit_code == 1
    assert run("diff", roots[0]).exit_code == 2
