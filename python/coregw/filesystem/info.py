"""Descriptions of files, links and folders, as the dictionaries that fsspec defines."""

from __future__ import annotations

import os
from typing import Any

from coregw._core import Attributes

__all__ = ["Info", "as_link", "dangling_link", "file_info", "folder_info", "name_of"]

Info = dict[str, Any]


def file_info(path: str, target: str, size: int | None, record: Attributes | None) -> Info:
    """Describe a file; None for a size that is not known."""
    return {"name": path, "type": "file", "size": size, "cid": target, **_recorded(record)}


def folder_info(path: str, record: Attributes | None) -> Info:
    """Describe a folder, or by its record a symbolic link that leads nowhere in the root."""
    if record is not None and record.link is not None:
        return as_link(dangling_link(path), record.link)
    return {"name": path, "type": "directory", "size": 0, **_recorded(record)}


def dangling_link(path: str) -> Info:
    """Describe a symbolic link that leads nowhere in the root."""
    return {"name": path, "type": "link", "size": 0}


def as_link(info: Info, destination: bytes) -> Info:
    """Return the description of a symbolic link: of the file that it leads to, or of a link if it leads to none."""
    found = info if info["type"] == "file" else dangling_link(info["name"])
    return {**found, "islink": True, "destination": os.fsdecode(destination)}


def name_of(info: Info) -> str:
    """Return the path of what is described."""
    name: str = info["name"]
    return name


def _recorded(record: Attributes | None) -> Info:
    if record is None:
        return {}
    known: Info = {} if record.mode is None else {"mode": record.mode}
    return known if record.mtime_ns is None else {**known, "mtime": record.mtime_ns / 1e9}
