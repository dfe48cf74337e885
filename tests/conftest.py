"""Settings of all tests: hypothesis has no deadline, so a busy machine fails no property; commands give up soon."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpcore2
import pytest
from hypothesis import settings

pytest.register_assert_rewrite("store_contract", "store_payloads")

from postgres_support import primary, s3  # noqa: E402 - after the registration

__all__ = ["primary", "s3"]  # fixtures: one server of each kind for all tests

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")

# Otherwise each client of httpx2, and each request without one, reads all certificates of the system: 20 ms.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

os.environ["COREGW_RETRY_SECONDS"] = "0.5"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip the modules that help the tests: they have no doctests, but each process of pytest would import them all."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None


def pytest_collection_finish() -> None:
    """Exempt what is loaded from garbage collections: it stays to the end, and each would look through all of it."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_signals() -> None:
    """Commands of the tests take signals as from a terminal, also if the tests run in the background (``nohup``)."""
    for name in ("SIGHUP", "SIGINT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the caches and the trust store of all tests in a folder of theirs, commands included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
