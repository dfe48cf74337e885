"""Settings of all tests: hypothesis has no deadline, so a busy machine fails no property; commands give up soon.

A test that forks collects no garbage in its child: a portal to an event loop, left by a client of an application, would
wait there for a thread that the child does not have."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from store.postgres_support import primary, s3

__all__ = ["primary", "s3"]  # fixtures: one server of each kind for all tests

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")

os.environ["COREGW_RETRY_SECONDS"] = "0.5"

os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the caches and the trust store of all tests in a folder of theirs, commands included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
