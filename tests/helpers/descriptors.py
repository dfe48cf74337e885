"""The limit on this process's file descriptors."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def more_descriptors(count: int) -> Iterator[None]:
    """The context in which the process can open about this many more files than it has open; with 0, none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(each.name) for each in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + count if count else 0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
