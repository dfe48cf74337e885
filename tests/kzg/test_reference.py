"""malt-core's own conformance corpora, where its source is: `make test-reference` says how to get it."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import coregw
from coregw import CoregwError, InvalidInput

SOURCE = os.environ.get("COREGW_TEST_REFERENCE", "")
"""A folder with the source of malt-core."""

pytestmark = pytest.mark.skipif(not SOURCE, reason="run by `make test-reference`")

CORPORA = ["resolve-read/v1", "resolve-read/v2", "map-proof/v1"]
VERIFIERS: dict[str, Any] = {
    "resolve": coregw.verify_resolve,
    "read": coregw.verify_read,
    "map_proof": coregw.verify_map_proof,
}


def is_accepted(operation: str, verification: dict[str, Any]) -> bool:
    if set(verification) != {"request", "result"}:
        return False
    try:
        VERIFIERS[operation](*(json.dumps(verification[name]) for name in ("request", "result")))
    except CoregwError:
        return False
    return True


@pytest.mark.parametrize("corpus", CORPORA)
def test_verdicts_are_those_of_the_corpus(corpus: str) -> None:
    document = json.loads((Path(SOURCE) / "conformance" / corpus / "vectors.json").read_text("utf-8"))
    counts: Counter[tuple[str, bool]] = Counter()
    for vector in document["vectors"]:
        is_valid, backend = vector["expected"]["valid"], vector["backend"]
        counts[backend, is_valid] += 1
        if backend == "ipa" and is_valid:
            with pytest.raises(InvalidInput, match="IPA"):
                VERIFIERS[vector["operation"]](json.dumps(vector["verification"]["request"]), "{}")
        else:
            assert (vector["id"], is_accepted(vector["operation"], vector["verification"])) == (vector["id"], is_valid)
    assert min(counts["kzg", True], counts["kzg", False]) >= 2
    print(f"{corpus}: {dict(counts)}")
