"""Programs that read through the file system: pandas, pyarrow, DuckDB, xarray, zarr; and how much they fetch."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import fsspec
import pytest

from coregw.client import Client
from coregw.errors import ProofError
from coregw.filesystem import CoregwFileSystem
from filesystem.conftest import added
from gateways import Counted, Reply, lying_gateway

if os.environ.get("COREGW_TEST_FILES") != "required":
    for name in ("duckdb", "h5netcdf", "pandas", "pyarrow", "xarray", "zarr"):
        pytest.importorskip(name, reason="make test-clients ARGS=files installs what is tested here")

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import xarray as xr
import zarr

pytestmark = pytest.mark.filterwarnings("default")  # theirs are not ours

ROWS = 200_000
COLUMNS = [f"c{number}" for number in range(10)]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    values = np.random.default_rng(3).integers(0, 1 << 62, (ROWS, len(COLUMNS)))  # does not compress
    return pd.DataFrame(values, columns=COLUMNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, frame: pd.DataFrame) -> Path:
    top = tmp_path_factory.mktemp("tables")
    frame.to_parquet(top / "wide.parquet", compression=None, row_group_size=ROWS)
    for year in (2024, 2025):
        part = top / "parts" / f"year={year}"
        part.mkdir(parents=True)
        frame.iloc[year - 2024 :: 1_000].to_parquet(part / "part.parquet")
    frame.iloc[:100].to_csv(top / "small.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cube = xr.Dataset({"t": (("y", "x"), np.arange(40_000.0).reshape(200, 200))}, {"x": np.arange(200)})
        cube.to_netcdf(top / "cube.nc", engine="h5netcdf")
        cube.to_zarr(top / "cube.zarr", consolidated=False, encoding={"t": {"chunks": (50, 50)}})
        zarr.save_array(top / "plain.zarr", np.arange(1_000).reshape(10, 100))
    return top


@pytest.fixture(scope="module")
def root(client: Client, folder: Path) -> str:
    return added(client, folder)


@pytest.fixture
def options(counted: Counted) -> dict[str, object]:
    CoregwFileSystem.clear_instance_cache()
    counted.replies.clear()
    return {"gateway": counted.url}


def test_pandas_reads_tables(root: str, frame: pd.DataFrame, options: dict[str, object]) -> None:
    csv = pd.read_csv(f"coregw://{root}/small.csv", storage_options=options)
    pd.testing.assert_frame_equal(csv, frame.iloc[:100])
    parquet = pd.read_parquet(f"coregw://{root}/wide.parquet", storage_options=options)
    pd.testing.assert_frame_equal(parquet, frame)


def test_one_column_of_a_parquet_file_fetches_only_its_chunks(
    root: str, frame: pd.DataFrame, folder: Path, options: dict[str, object], counted: Counted
) -> None:
    size = (folder / "wide.parquet").stat().st_size
    found = pd.read_parquet(f"coregw://{root}/wide.parquet", columns=["c7"], storage_options=options)
    pd.testing.assert_frame_equal(found, frame[["c7"]])
    column = pyarrow.parquet.read_metadata(folder / "wide.parquet").row_group(0).column(7).total_compressed_size
    at_ends = 4 * 262_144  # of the column and of the footer: a payload has at most 256 KiB
    assert column < counted.bytes < column + at_ends + 100_000 < size / 4
    payloads = [reply for reply in counted.replies if "/cas/" in reply.path]
    assert sum(len(reply.body) for reply in payloads) < column + at_ends
    assert len(counted.replies) < 20


def test_pyarrow_reads_files_and_datasets(root: str, frame: pd.DataFrame, options: dict[str, object]) -> None:
    fs = CoregwFileSystem(**options)
    arrow = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(fs))
    info = arrow.get_file_info(f"{root}/wide.parquet")
    assert info.type == pa.fs.FileType.File
    assert info.size > ROWS * len(COLUMNS) * 8
    assert arrow.get_file_info(f"{root}/no").type == pa.fs.FileType.NotFound
    table = pyarrow.parquet.read_table(f"{root}/wide.parquet", filesystem=arrow, columns=["c1", "c9"])
    assert table.num_rows == ROWS
    assert table.column("c9")[5].as_py() == frame["c9"][5]
    data = pa.dataset.dataset(f"{root}/parts", filesystem=fs, partitioning="hive")
    assert sorted(data.to_table(filter=pa.dataset.field("year") == 2025)["c0"].to_pylist()) == sorted(
        frame["c0"].iloc[1::1_000]
    )
    with arrow.open_input_stream(f"{root}/small.csv") as stream:
        assert stream.read(3) == b"c0,"
    with pytest.raises(OSError, match="read-only"):
        arrow.open_output_stream(f"{root}/new")


def test_duckdb_queries_tables(root: str, frame: pd.DataFrame, options: dict[str, object], counted: Counted) -> None:
    with duckdb.connect() as database:
        database.register_filesystem(CoregwFileSystem(**options))
        top = f"coregw://{root}"
        (total,) = database.read_parquet(f"{top}/wide.parquet").sum("c3 % 1000").fetchall()[0]
        assert total == (frame["c3"] % 1000).sum()
        assert counted.bytes < ROWS * len(COLUMNS) * 8 / 2
        parts = database.read_parquet(f"{top}/parts/*/*.parquet", hive_partitioning=True)
        assert sorted(parts.count("*", groups="year", projected_columns="year").fetchall()) == [
            (2024, 200),
            (2025, 200),
        ]
        assert database.read_csv(f"{top}/small.csv").limit(1).fetchall()[0][0] == frame["c0"][0]


def test_zarr_reads_arrays(root: str, options: dict[str, object], counted: Counted) -> None:
    array = zarr.open_array(f"coregw://{root}/plain.zarr", mode="r", storage_options=options)
    assert array[3, 5:8].tolist() == [305, 306, 307]
    assert int(array[:].sum()) == sum(range(1_000))


def test_xarray_reads_cubes(root: str, options: dict[str, object]) -> None:
    with xr.open_zarr(f"coregw://{root}/cube.zarr", storage_options=options, consolidated=False) as cube:
        assert float(cube["t"][120, 60]) == 120 * 200 + 60
        assert float(cube["t"].sum()) == sum(range(40_000))
    with fsspec.open(f"coregw://{root}/cube.nc", **options) as file, xr.open_dataset(file, engine="h5netcdf") as cube:
        assert float(cube["t"][199, 199]) == 39_999


def test_a_missing_payload_of_an_array_is_no_fill_value(root: str, client: Client, folder: Path, honest: str) -> None:
    """zarr takes a missing chunk for one of fill values. Only a proven absence may count as that."""

    def lie(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas") and b"zarr" not in reply.body:
            return reply.with_body(b'{"error":"payload_not_found","message":"no such payload"}', 404)
        return reply

    with lying_gateway(lie, honest) as url:
        array = zarr.open_array(f"coregw://{root}/plain.zarr", mode="r", storage_options={"gateway": url})
        with pytest.raises(OSError, match="no such payload"):
            array[:]


def test_changed_bytes_reach_no_program(root: str, honest: str) -> None:
    def lie(reply: Reply) -> Reply:
        if not reply.path.startswith("/v1/cas"):
            return reply
        return reply.with_body(reply.body[:-9] + b"\0" + reply.body[-8:])

    with lying_gateway(lie, honest) as url:
        options = {"gateway": url}
        with pytest.raises(ProofError):
            pd.read_csv(f"coregw://{root}/small.csv", storage_options=options)
        with pytest.raises(ProofError):
            pyarrow.parquet.read_table(f"{root}/wide.parquet", filesystem=CoregwFileSystem(url), columns=["c1"])


def test_files_are_opened_from_a_local_cache(root: str, folder: Path, honest: str, tmp_path: Path) -> None:
    options = {"coregw": {"gateway": honest}, "simplecache": {"cache_storage": str(tmp_path)}}
    local = fsspec.open_local(f"simplecache::coregw://{root}/small.csv", **options)
    assert Path(local).read_bytes() == (folder / "small.csv").read_bytes()
