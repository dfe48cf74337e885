"""Settings of all tests: hypothesis has no deadline, so a busy machine fails no property; commands give up soon."""

from __future__ import annotations

import os

from hypothesis import settings

from store.postgres_support import primary, s3

__all__ = ["primary", "s3"]  # fixtures: one server of each kind for all tests

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")

os.environ["COREGW_RETRY_SECONDS"] = "0.5"
