"""The static tree at a place: in a folder, or in a bucket."""

from __future__ import annotations

from pathlib import Path

from coregw.client.static.folder import StaticFolder
from coregw.client.static.tree import StaticTree

__all__ = ["open_tree"]


def open_tree(place: str | Path, *, payloads: bool = True) -> StaticTree:
    """Return the static tree at a place, which may be empty.

    Args:
        place: A folder, or ``s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME]``, with credentials in
            ``AWS_ACCESS_KEY_ID`` and the other variables of AWS.
        payloads: Whether an export writes payloads.

    Raises:
        InvalidInput: The address of the bucket is malformed.
        MissingExtraError: A bucket needs the extra ``s3``.
    """
    if isinstance(place, str) and place.startswith("s3://"):
        from coregw.client.static.bucket import StaticBucket  # noqa: PLC0415 - needs an extra of its own

        return StaticBucket(place, payloads=payloads)
    return StaticFolder(Path(place), payloads=payloads)
