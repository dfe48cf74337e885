"""The verifier in TypeScript agrees with the one in Rust. Only `make test-clients ARGS=js` runs these tests."""

from __future__ import annotations

import os

import differential
import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("COREGW_TEST_JS"), reason="run by `make test-clients ARGS=js`")


@pytest.mark.parametrize("seed", [1, 2])
def test_both_verifiers_accept_the_same_and_answer_alike(seed: int) -> None:
    outcomes = differential.run(seed, 2000)
    kinds = {outcome.split()[0] for outcome in outcomes}
    assert len(kinds) == 9
    for kind in kinds:
        assert min(outcomes[f"{kind} accepted"], outcomes[f"{kind} refused"]) > 10, kind


def test_a_disagreement_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differential.coregw, "verify_key", lambda *_: None)
    with pytest.raises(differential.Disagreement, match='"kind": "key"'):
        differential.run(1, 2000)
