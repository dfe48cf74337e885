"""Settings of all tests: hypothesis has no deadline, so that a busy machine fails no property."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
