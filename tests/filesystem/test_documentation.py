"""The examples of docs/files.md, run in their order against a gateway."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from coregw.client import Client
from gateways import honest_gateway

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "files.md"


def test_the_examples_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "table.csv").write_text("city,people\nBern,137000\nGenf,209000\n")
    (folder / "large.bin").write_bytes(bytes(range(256)) * 4_000)
    with honest_gateway(tmp_path / "data") as address, Client(address) as client:
        monkeypatch.setenv("COREGW_GATEWAY", address)
        names = {"address": address, "root": client.add(folder, use_cache=False).root}
        examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        assert examples
        if importlib.util.find_spec("pandas") is None:  # make test-files installs it
            examples = [example for example in examples if "import pandas" not in example]
        for example in examples:
            exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - the page is ours
