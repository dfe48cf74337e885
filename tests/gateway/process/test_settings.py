"""Settings: where they come from, their bounds, and messages that name them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coregw.errors import InvalidInput
from coregw.gateway.settings import MIB, REMOVED, Settings
from tables import rows


def test_overrides_take_precedence_over_the_environment() -> None:
    environ = {"COREGW_PORT": "1", "COREGW_HOST": "::1", "COREGW_DATA": "/d", "COREGW_MEMORY": "3 MiB"}
    settings = Settings.load(environ, port=2, host=None)
    assert (settings.port, settings.host, settings.data, settings.memory) == (2, "::1", Path("/d"), 3 * MIB)


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
    settings = Settings.load({"COREGW_MEMORY": text, "COREGW_STORE_BYTES": text})
    assert (settings.memory, settings.store_bytes) == (size, size)


@rows(
    ("variable", "value"),
    [
        ("COREGW_PORT", "65536"),
        ("COREGW_PORT", "-1"),
        ("COREGW_PORT", "http"),
        ("COREGW_PORT", "1.5"),
        ("COREGW_PORT", "8KiB"),
        ("COREGW_CONNECTIONS", "1Ki"),
        ("COREGW_MEMORY", "1Gi"),
        ("COREGW_PORT", "9" * 5000),
        ("COREGW_MEMORY", "9" * 5000),
        ("COREGW_CONNECTIONS", "0"),
        ("COREGW_MEMORY", "5 apples"),
        ("COREGW_GC_SECONDS", "soon"),
        ("COREGW_GC_SECONDS", "nan"),
        ("COREGW_GC_SECONDS", "-1"),
        ("COREGW_LOG_LEVEL", "loud"),
        ("COREGW_READ_ONLY", "maybe"),
        ("COREGW_ALLOW_ORIGIN", "example.org"),
        ("COREGW_MANAGEMENT_ADDRESS", "8081"),
    ],
)
def test_malformed_value_is_refused_and_named(variable: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=rf"(?i){variable.removeprefix('COREGW_')} is ") as caught:
        Settings.load({variable: value})
    assert len(str(caught.value)) < 300


@rows(
    ("variable", "value", "expected"),
    [
        ("COREGW_PORT", "65536", "expected an integer, 0 to 65535"),
        ("COREGW_MEMORY", "much", "expected an integer, at least 0, optionally with KiB, MiB, GiB, KB, MB or GB"),
        ("COREGW_CONNECTIONS", "0", "expected an integer, 1 to 1048576"),
        ("COREGW_GC_SECONDS", "soon", "expected a number of seconds, at least 0"),
        ("COREGW_READ_ONLY", "maybe", "expected true or false"),
        ("COREGW_LOG_FORMAT", "xml", "expected one of json, text"),
    ],
)
def test_error_states_what_was_expected(variable: str, value: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{variable} is '{value}', {expected}$"):
        Settings.load({variable: value})


def test_a_caller_is_held_to_the_same_types_and_bounds() -> None:
    with pytest.raises(InvalidInput, match="setting port is 65536, expected an integer, 0 to 65535"):
        Settings(port=65536)
    with pytest.raises(InvalidInput, match="setting port is '80', expected an integer"):
        Settings(port="80")  # type: ignore[arg-type]  # only `load` parses text
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]  # it is frozen


@rows(
    ("name", "about"),
    [
        ("colour", "'colour'"),
        ("memry", "'memry'; did you mean memory?"),
        ("cache_bytes", "'cache_bytes'; it is derived from memory now"),
        ("backlog", "'backlog'; it is derived from connections now"),
        ("header_seconds", "'header_seconds'; it is a constant now"),
        ("workers", "'workers'; one process uses all cores now"),
        ("tracing", "'tracing'; requests are traced if OTEL_EXPORTER_OTLP_ENDPOINT is set"),
        ("store_unsafe", "'store_unsafe'; it is a parameter of the address in store now"),
    ],
)
def test_an_unknown_setting_is_refused_with_what_there_is_in_its_place(tmp_path: Path, name: str, about: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"unknown setting {about}")):
        Settings.load({}, **{name: "1"})
    path = tmp_path / "coregw.toml"
    path.write_text(f"{name} = 1\n")
    with pytest.raises(InvalidInput, match=re.escape(f"{path}: unknown setting {about}")):
        Settings.load({"COREGW_CONFIG": str(path)})


def test_no_setting_is_among_those_that_are_gone() -> None:
    assert REMOVED.keys().isdisjoint(Settings.__struct_fields__)


def test_variables_precede_the_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "coregw.toml"
    path.write_text('port = 1\nhost = "::1"\nmemory = "3MiB"\naccess_log = true\ngc_seconds = 2.5\n')
    environ = {"COREGW_CONFIG": str(path), "COREGW_PORT": "2", "COREGW_HOST": ""}
    settings = Settings.load(environ, memory=MIB)
    assert (settings.host, settings.port, settings.memory) == ("::1", 2, MIB)
    assert (settings.access_log, settings.gc_seconds) == (True, 2.5)
    origins = {name: origin for name, (_, origin) in Settings.given(environ, memory=MIB).items()}
    assert (origins["host"], origins["port"], origins["memory"]) == (str(path), "COREGW_PORT", "option")
    assert "data" not in origins


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"memoy = 1", "unknown setting 'memoy'; did you mean memory?"),
        (b"[limits]\nport = 1", "unknown setting 'limits'"),
        (b"hosts = ['a']", "coregw.toml: hosts is ['a'], expected text"),
        (b"access_log = 'x'", "coregw.toml: access_log is 'x', expected true or false"),
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
