"""``coregw build`` and `coregw.build`: a map of any size, sent to a gateway, stored offline, or only computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import coregw
import serving
from coregw.errors import InvalidInput

Run = Callable[..., Result]

NOWHERE = "http://127.0.0.1:9"
ARCS = {f"logs/{number * 7919 % 5000:05}": coregw.payload_cid(b"%d" % number) for number in range(5000)}
ROOT = coregw.Map(ARCS).root
NDJSON = "".join(f"{json.dumps(pair)}\n" for pair in ARCS.items())
TSV = "".join(f"{path}\t{target}\n" for path, target in ARCS.items())


def test_a_file_of_either_form_is_built_on_the_gateway(run: Run, tmp_path: Path) -> None:
    for name, text, options in (("a.ndjson", NDJSON, ()), ("a.tsv", TSV, ()), ("arcs", TSV, ("--format", "tsv"))):
        (tmp_path / name).write_text(text)
        built = run("build", tmp_path / name, *options)
        assert (built.exit_code, built.stdout) == (0, f"{ROOT}\n"), built.stderr
        assert "5,000 arcs" in built.stderr
    assert run("resolve", ROOT, "logs/00077").stdout.strip() == ARCS["logs/00077"]
    blake3 = run("build", "-", "--suite", "blake3", input=NDJSON)
    assert blake3.stdout.strip() == coregw.Map(ARCS, "blake3").root


def test_offline_only_prints_the_root(run: Run) -> None:
    built = run("build", "-", "--offline", input=NDJSON, gateway=NOWHERE)
    assert (built.exit_code, built.stdout.strip()) == (0, ROOT)
    assert run("build", "-", input=NDJSON, gateway=NOWHERE).exit_code == 1
    assert run("build", "-", "--offline", "--data", "x", input="").exit_code == 2


def test_a_store_without_a_gateway_holds_the_map_afterwards(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    built = run("build", "-", "--data", data, input=NDJSON, gateway=NOWHERE)
    assert (built.exit_code, built.stdout.strip()) == (0, ROOT), built.stderr
    other = coregw.build(
        ((["x", *path.split("/")], target) for path, target in ARCS.items()), store=data, suite="blake3"
    )
    assert other == coregw.Map({f"x/{path}": target for path, target in ARCS.items()}, "blake3").root
    with serving.process(data) as running:
        for root, path in ((ROOT, "logs/00077"), (other, "x/logs/00077")):
            assert run("resolve", root, path, gateway=running.url).stdout.strip() == ARCS["logs/00077"]
        locked = run("build", "-", "--data", data, input=NDJSON)
        assert (locked.exit_code, locked.stdout) == (1, "")


def test_a_bad_line_is_named_with_its_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "arcs.tsv"
    file.write_text(TSV + "no tab\n")
    refused = run("build", file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{file}: line 5001: no tab" in refused.stderr
    file.write_text(TSV + TSV[:200].partition("\n")[0])
    refused = run("build", file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert 'the path "logs/00000" occurs twice' in refused.stderr
    assert run("build", tmp_path / "missing").exit_code == 1


def test_build_in_python_refuses_what_the_map_refuses(tmp_path: Path) -> None:
    assert coregw.build(ARCS) == ROOT
    assert coregw.build([]) == coregw.Map({}).root
    for arcs in ([("a", "x")], [("a//b", ARCS["logs/00077"])], [("a", ARCS["logs/00077"])] * 2):
        with pytest.raises(InvalidInput):
            coregw.build(arcs, store=tmp_path / "data")


def test_build_with_a_store_is_refused_in_an_event_loop_before_anything_is_read_or_written(tmp_path: Path) -> None:
    async def build() -> None:
        coregw.build(arcs, store=tmp_path / "data")

    arcs = iter([("a", ARCS["logs/00077"])])
    with pytest.raises(RuntimeError, match="in another thread"):
        asyncio.run(build())
    assert not (tmp_path / "data").exists()
    assert len(list(arcs)) == 1
