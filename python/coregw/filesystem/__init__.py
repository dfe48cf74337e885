"""The file system of fsspec: ``coregw://ROOT/path`` in pandas, pyarrow, DuckDB, xarray, zarr, dask and others.

Needs the extra ``fsspec``. See docs/files.md.
"""

from __future__ import annotations

from coregw.extras import missing_extra

try:
    from coregw.filesystem.system import CoregwFileSystem, OpenFile
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.filesystem", "fsspec") from error

__all__ = ["CoregwFileSystem", "OpenFile"]
