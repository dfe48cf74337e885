"""Surveys of folders: what a folder has, with its paths in the map, and what is skipped and why.

Symbolic links are never followed, so a folder can't refer to files outside itself. File names become path segments
unchanged; a name that is not UTF-8 is an error, as the protocol has no other text.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coregw._core import Survey, SurveyEntry, survey

__all__ = ["Skipped", "Survey", "SurveyEntry", "survey"]


class Skipped(NamedTuple):
    """A file or folder that is not added, and the reason."""

    file: Path
    why: str
