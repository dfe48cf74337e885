"""Published names that are copied from one gateway to another."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import serving
from coregw.client import Client, ClientSettings
from coregw.client.operations.publications import publish, published
from coregw.errors import (
    Conflict,
    RecordNotFound,
    Unauthorized,
)

SETTINGS = ClientSettings(attempts=2, backoff_seconds=0.001, backoff_max_seconds=0.002)


def test_a_published_name_is_copied_and_published(tmp_path: Path) -> None:
    token = serving.ADMIN_TOKEN
    with ExitStack() as stack:
        urls = [stack.enter_context(serving.thread(None, data=tmp_path / name, is_administered=True)) for name in "ab"]
        a, b = (stack.enter_context(Client(url, SETTINGS)) for url in urls)
        first = a.create_root({"a": a.put_payload(b"1")})
        second = a.create_root({"a": a.put_payload(b"2")})
        with pytest.raises(RecordNotFound):
            a.mirror_published("docs", "main", b, token=token)
        a._run(publish(SETTINGS, "docs", "main", first, token, 0))
        with pytest.raises(Unauthorized):
            a.mirror_published("docs", "main", b, token="wrong")
        with pytest.raises(Unauthorized):
            a.mirror_published("docs", "main", b, destination_token="wrong")
        assert a.mirror_published("docs", "main", b).record.root == first  # everybody may read the name
        done = a.mirror_published("docs", "main", b, token=token, destination_token=token)
        assert done.published is not None
        assert (done.published.root, done.published.revision, done.mirrored.base) == (first, 1, None)
        a._run(publish(SETTINGS, "docs", "main", second, token, 1))
        done = a.mirror_published("docs", "main", b, token=token)
        assert (done.published, done.mirrored.base) == (None, first)
        for _ in range(2):
            done = a.mirror_published("docs", "main", b, token=token, destination_token=token)
            assert done.published == b._run(published(SETTINGS, "docs", "main", token))
            assert (done.published.root, done.published.revision) == (second, 2)
        with pytest.raises(Conflict):
            a._run(publish(SETTINGS, "docs", "main", first, token, 1))
