"""Settings: where they come from, their bounds, and messages that name them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coregw.errors import InvalidInput
from coregw.gateway.settings import MIB, Settings
from tables import rows


def test_overrides_take_precedence_over_the_environment() -> None:
    environ = {"COREGW_PORT": "1", "COREGW_HOST": "::1", "COREGW_DATA": "/d", "COREGW_CACHE_BYTES": "3 MiB"}
    settings = Settings.load(environ, port=2, host=None)
    assert (settings.port, settings.host, settings.data, settings.cache_bytes) == (2, "::1", Path("/d"), 3 * MIB)


def test_empty_variable_counts_as_unset() -> None:
    assert Settings.load({"COREGW_PORT": ""}) == Settings()


@rows(
    ("text", "size"),
    [
        *(("2097152", 2 * MIB), ("2m", 2 * MIB), ("1G", 1024 * MIB), ("2048KiB", 2 * MIB), ("1gib", 1024 * MIB)),
        *(("2MB", 2_000_000), ("1 GB", 10**9), ("5000kB", 5_000_000)),
    ],
)
def test_sizes_accept_units(text: str, size: int) -> None:
    assert Settings.load({"COREGW_CACHE_BYTES": text}).cache_bytes == size


@rows(
    ("variable", "value"),
    [
        ("COREGW_PORT", "65536"),
        ("COREGW_PORT", "-1"),
        ("COREGW_PORT", "http"),
        ("COREGW_PORT", "1.5"),
        ("COREGW_PORT", "8KiB"),
        ("COREGW_WORKERS", "1K"),
        ("COREGW_CACHE_BYTES", "1Gi"),
        ("COREGW_PORT", "9" * 5000),
        ("COREGW_CACHE_BYTES", "9" * 5000),
        ("COREGW_CACHE_BYTES", "0"),
        ("COREGW_CACHE_BYTES", "5 apples"),
        ("COREGW_HEADER_SECONDS", "soon"),
        ("COREGW_HEADER_SECONDS", "nan"),
        ("COREGW_HEADER_SECONDS", "-1"),
        ("COREGW_LOG_LEVEL", "loud"),
        ("COREGW_READ_ONLY", "maybe"),
    ],
)
def test_malformed_value_is_refused_and_named(variable: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=rf"(?i){variable.removeprefix('COREGW_')}"):
        Settings.load({variable: value})


@rows(
    ("variable", "value", "bounds"),
    [
        ("COREGW_PORT", "65536", "0 to 65535"),
        ("COREGW_CACHE_BYTES", "5", "at least 1MiB"),
        ("COREGW_HEADER_SECONDS", "0", "at least 0.001"),
        ("COREGW_RESERVE_BYTES", "-1", "non-negative integer"),
    ],
)
def test_error_states_the_bounds(variable: str, value: str, bounds: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{bounds}\b"):
        Settings.load({variable: value})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="colour"):
        Settings.load({}, colour="red")


def test_variables_precede_the_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "coregw.toml"
    path.write_text('port = 1\nhost = "::1"\ncache_bytes = "3MiB"\naccess_log = true\nheader_seconds = 2.5\n')
    environ = {"COREGW_CONFIG": str(path), "COREGW_PORT": "2", "COREGW_HOST": ""}
    settings = Settings.load(environ, cache_bytes=MIB)
    assert (settings.host, settings.port, settings.cache_bytes) == ("::1", 2, MIB)
    assert (settings.access_log, settings.header_seconds) == (True, 2.5)
    origins = {name: origin for name, (_, origin) in Settings.given(environ, cache_bytes=MIB).items()}
    assert (origins["host"], origins["port"], origins["cache_bytes"]) == (str(path), "COREGW_PORT", "option")
    assert "data" not in origins


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"cache_byte = 1", "unknown setting 'cache_byte'; did you mean cache_bytes"),
        (b"[limits]\nport = 1", "unknown setting 'limits'"),
        (b"hosts = ['a']", "hosts is neither text"),
        (b"port = 70000", "port is 70000"),
        (b"port = 'http'", "coregw.toml: port is 'http'"),
        (b"port = ", "not TOML"),
        (b"host = '\xff'", "not TOML"),
        (b"port = " + b"9" * 5000, "not TOML"),
        (b"port = " + b"[" * 5000, "not TOML"),
        (None, "configuration file was not read"),
    ],
)
def test_errors_of_a_configuration_file_name_it(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "coregw.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        Settings.load({"COREGW_CONFIG": str(path)})


def test_a_command_that_opens_a_store_ignores_settings_of_other_services(tmp_path: Path) -> None:
    path = tmp_path / "coregw.toml"
    path.write_text('store = "postgresql://db/coregw"\ncolour = 1\n')
    assert Settings.load({"COREGW_CONFIG": str(path)}, strict=False).is_shared


def test_every_setting_is_described_and_parses_its_default() -> None:
    described = Settings.describe()
    assert len({variable for variable, _, _ in described}) == len(described)
    assert all(about.endswith(".") for _, _, about in described)
    assert Settings.load({variable: default for variable, default, _ in described}) == Settings()
