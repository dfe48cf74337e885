"""Settings of the gateway: its address and every limit, with defaults; from a file, variables or the caller.

Sizes are in bytes, times in seconds. Secrets are not settings (`coregw.gateway.access`).
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from coregw._core import Origins
from coregw.errors import InvalidInput
from coregw.gateway.limits.peers import LOOPBACK, Proxies
from coregw.store.addresses import masked
from coregw.text import without_surrogates

__all__ = ["CONFIG_VARIABLE", "GIB", "GRACE_SECONDS", "KIB", "MIB", "Settings"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

GRACE_SECONDS: Final = 7 * 86_400.0
"""The default of `Settings.gc_grace_seconds`; on a terminal, younger roots are removed after a question only."""

CONFIG_VARIABLE: Final = "COREGW_CONFIG"
"""Names the configuration file: a TOML document whose keys are the names of settings."""

_PREFIX: Final = "COREGW_"
_DATA: Final = Path("coregw-data")
_EMBEDDED: Final = "rocksdb"
_DATABASES: Final = ("postgresql://", "postgres://")
_LEAST_SHARED_GRACE_SECONDS: Final = 120
"""Twice what a change of a database's clock may count as (``docs/decisions/0378``)."""

_NUMBER: Final = re.compile(r"\s*([0-9]{1,20})\s*([KMG](?:i?B)?)?\s*", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"k": KIB, "m": MIB, "g": GIB}
_DECIMAL_UNITS: Final = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_ORIGIN: Final = re.compile(r"none|\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+", re.ASCII)
_BOOLEANS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_LEVELS: Final = ("critical", "error", "warning", "info", "debug")
_WORDS: Final = {
    "log_level": _LEVELS,
    "log_format": ("text", "json"),
    "tracing": ("none", "otlp"),
}
"""The settings that are one of several words."""


def _about(text: str, least: float = 0, most: float = math.inf) -> dict[str, Any]:
    """Return the metadata of a setting: its meaning and its bounds, both inclusive."""
    return {"about": text, "least": least, "most": most}


def _setting(default: Any, about: str, *, least: float = 0, most: float = math.inf) -> Any:  # noqa: ANN401 - as `field`
    """Return a dataclass field with the metadata of a setting."""
    return field(default=default, metadata=_about(about, least, most))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The configuration of a gateway.

    Each field is also the environment variable ``COREGW_<FIELD>``, and a key of the configuration file.

    Raises:
        InvalidInput: If a value is out of its bounds; the message names the setting.
    """

    data: Path = field(default=_DATA, metadata=_about("Directory of the RocksDB store; created if missing."))
    store: str = field(
        default=_EMBEDDED, metadata=_about("The store: rocksdb, in the data directory, or postgresql://..."), repr=False
    )
    bucket: str = field(
        default="none",
        metadata=_about("Bucket for payload chunks of a PostgreSQL store: s3://..., or none."),
        repr=False,
    )
    store_connections: int = _setting(4, "Connections of each process to the database.", least=2, most=100)
    store_unsafe: str = _setting("none", "Risks of losing data that the database may have: a list, or none.")
    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8080, "Port to listen on; 0 picks a free one.", most=65535)
    allow_origin: str = _setting("none", "Origin of the web pages that may send requests: one, `*` for any, or none.")
    hosts: str = _setting("auto", "Names in Host: a list, `*` for any, or `auto`: on loopback, no public names.")
    proxies: str = _setting(LOOPBACK, "Reverse proxies: addresses without limits per address, or none.")
    read_only: bool = _setting(default=False, about="Refuse all writes of clients.")
    workers: int = _setting(1, "Worker processes on one store.", least=1, most=256)
    management_address: str = _setting("none", "Address for health and administration: host:port, or none.")
    log_level: str = _setting("info", f"Minimum severity of log lines: {', '.join(_LEVELS)}.")
    log_format: str = _setting("text", "Form of log lines: text, or json with one object per line.")
    access_log: bool = _setting(default=False, about="Log each request.")
    tracing: str = _setting("none", "OpenTelemetry tracing: none, or otlp, configured by `OTEL_` variables.")

    store_cache_bytes: int = _setting(32 * MIB, "Memory for RocksDB's block cache.", least=MIB)
    store_threads: int = _setting(4, "Concurrent reads of the store.", least=1, most=256)
    reserve_bytes: int = _setting(128 * MIB, "Free disk space below which nothing is stored.")
    store_bytes: int = _setting(0, "Data in the store beyond which nothing is stored; 0 for no limit.")
    gc_seconds: float = _setting(0.0, "Time between garbage collections; 0 for none.")
    gc_grace_seconds: float = _setting(GRACE_SECONDS, "How long garbage is kept after it was last stored or confirmed.")
    gc_revisions: int = _setting(0, "Revisions of each published name whose roots are kept; 0 for all.")

    cache_bytes: int = _setting(256 * MIB, "Memory for parsed pages.", least=MIB)
    held_roots: int = _setting(65_536, "Number of roots remembered as held.", least=1)
    node_budget: int = _setting(2000, "Tree nodes that a query visits before it moves to a thread.", least=1)
    worker_threads: int = _setting(4, "Threads for long queries, root creations and mutations.", least=1, most=256)
    heavy_requests: int = _setting(
        2,
        "Root creations, mutations and CARs in memory over 1 MiB at once. As many builds from lines are stored at "
        "once, and as many trees checked for completeness.",
        least=1,
    )
    long_queries: int = _setting(4, "Concurrent queries and batches of over a millisecond; more wait.", least=1)
    change_bytes: int = _setting(
        GIB, "Memory for root creations, imports and mutations in progress; more get 503.", least=MIB
    )
    max_nodes: int = _setting(
        1_000_000, "Tree nodes that a query, or all of a batch, may visit; mutations: 16 times.", least=1
    )
    operation_seconds: float = _setting(30.0, "Time limit of a query or mutation.", least=0.001)
    store_seconds: float = _setting(5.0, "Time limit of the store for a health check.", least=0.001)

    json_body_bytes: int = _setting(MIB, "Largest body of a request that has no other limit here.", least=1)
    verify_body_bytes: int = _setting(24 * MIB, "Largest body of the verify routes (16 MiB of proof).", least=1)
    roots_body_bytes: int = _setting(256 * MIB, "Largest body of POST /v1/roots.", least=1)
    build_body_bytes: int = _setting(16 * GIB, "Largest body of POST /v1/roots as lines of arcs.", least=1)
    build_spool_bytes: int = _setting(64 * GIB, "Temporary files in the data directory that sort such bodies.", least=1)
    builds: int = _setting(8, "Concurrent bodies of lines of arcs; more replace stalled ones, or get 503.", least=1)
    mutation_body_bytes: int = _setting(64 * MIB, "Largest body of POST /v1/roots/{root}/mutations.", least=1)
    payload_bytes: int = _setting(64 * MIB, "Largest payload of POST /v1/cas.", least=1)
    car_bytes: int = _setting(4 * GIB, "Largest CAR of POST /v1/car; spooled to the data directory.", least=1)
    car_blocks: int = _setting(4_000_000, "Blocks in a CAR; each takes 60 bytes of memory.", least=1, most=1 << 31)
    cars_at_once: int = _setting(2, "Spooled CARs that are checked and stored concurrently; more wait.", least=1)
    car_exports: int = _setting(16, "Concurrent CAR exports; more replace stalled ones, or get 503.", least=1)
    payload_streams: int = _setting(64, "Concurrent answers of many payloads or pages; as for CAR exports.", least=1)
    resolve_batch_body_bytes: int = _setting(8 * MIB, "Largest body of POST /v1/resolve/batch.", least=1)
    batch_answer_bytes: int = _setting(16 * MIB, "Largest response of POST /v1/resolve/batch.", least=1)
    buffered_bytes: int = _setting(GIB, "Memory for the bodies of all requests; more get 503.", least=MIB)

    unsent_bytes: int = _setting(128 * MIB, "Memory for responses that clients have not read.", least=MIB)

    connections: int = _setting(4096, "Open connections; beyond it, the longest idle one is closed.", least=1)
    address_share: int = _setting(50, "Percentage of each limit that one address may use.", least=1, most=100)
    backlog: int = _setting(4096, "Connections waiting to be accepted.", least=1)
    header_bytes: int = _setting(32 * KIB, "Largest request head (request line and headers), and trailers.", least=KIB)
    header_seconds: float = _setting(10.0, "Time for a request head to arrive.", least=0.001)
    min_rate_bytes: int = _setting(KIB, "Bytes per second that a client has to send of a body, or read of a response.")
    rate_grace_seconds: float = _setting(10.0, "Time before the minimum rate applies.", least=0.001)
    body_idle_seconds: float = _setting(20.0, "Idle timeout of a body that was fast enough before.", least=0.001)
    body_seconds: float = _setting(600.0, "Time for a whole request body to arrive.", least=0.001)
    drain_seconds: float = _setting(30.0, "Time to discard the rest of a rejected body.", least=0.0)
    write_seconds: float = _setting(60.0, "Idle timeout of a client that read fast enough before.", least=0.001)
    keep_alive_seconds: int = _setting(30, "Idle timeout of a connection between requests.", least=1)
    shutdown_seconds: int = _setting(30, "Time for requests in flight to finish on shutdown.", least=0)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not item.metadata["least"] <= value <= item.metadata["most"]:
                raise InvalidInput(f"setting {item.name} is {value}, expected {_bounds(item)}")
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise InvalidInput(f"setting {name} is {getattr(self, name)!r}, expected one of {', '.join(words)}")
        if _ORIGIN.fullmatch(self.allow_origin) is None:
            example = "an origin such as https://example.org, * or none"
            raise InvalidInput(f"setting allow_origin is {self.allow_origin!r}, expected {example}")
        self._check_store()
        Origins(self.hosts, self.allow_origin, self.host)  # refuses what is no host name
        Proxies(self.proxies)
        _ = self.management_host_and_port

    def _check_store(self) -> None:
        """Raise `InvalidInput` if it names no kind of store, or a bucket has none. Addresses may hold passwords."""
        if self.store != _EMBEDDED and not self.store.startswith(_DATABASES):
            raise InvalidInput("setting store is neither rocksdb nor an address that begins with postgresql://")
        if self.bucket != "none" and not self.bucket.startswith("s3://"):
            raise InvalidInput("setting bucket is neither none nor an address that begins with s3://")
        if self.bucket != "none" and not self.is_shared:
            raise InvalidInput("setting bucket needs a store in PostgreSQL; RocksDB keeps chunks in its directory")
        if self.is_shared and self.gc_grace_seconds < _LEAST_SHARED_GRACE_SECONDS:
            raise InvalidInput(
                f"setting gc_grace_seconds is {self.gc_grace_seconds:g}, expected at least "
                f"{_LEAST_SHARED_GRACE_SECONDS} with a store in PostgreSQL: if the database's clock is set, up to a "
                "minute passes at once"
            )

    @property
    def is_shared(self) -> bool:
        """Whether the store is in a database, so that several gateways may share it."""
        return self.store != _EMBEDDED

    @property
    def management_host_and_port(self) -> tuple[str, int] | None:
        """The host and the port of ``management_address``; None if it is ``none``.

        Raises:
            InvalidInput: If it is neither ``host:port`` nor ``none``.
        """
        if self.management_address == "none":
            return None
        host, colon, port = self.management_address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (host and colon and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
            given = repr(self.management_address)
            raise InvalidInput(f"setting management_address is {given}, expected host:port or none")
        return host, int(port)

    def share_of_address(self, limit: int) -> int:
        """Return how much of a limit one address may use; at least 1."""
        return max(1, limit * self.address_share // 100)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, *, strict: bool = True, **overrides: Any) -> Self:  # noqa: ANN401 - checked below
        """Read settings from the environment and the configuration file; overrides that are not None take precedence.

        Args:
            environ: The ``COREGW_<FIELD>`` variables, and ``COREGW_CONFIG``, the path of the configuration file; the
                process environment if None. Empty counts as unset. Sizes may end in ``KiB``, ``MiB`` or ``GiB``, or
                in ``KB``, ``MB`` or ``GB`` for powers of 1,000.
            strict: Whether unknown settings in the file are errors; a command that only opens the store of a service
                ignores what else the service is told.
            overrides: Values by field name, such as ``port=0``; text is parsed like a variable.

        Raises:
            InvalidInput: If a value does not parse or is out of its bounds, or the file cannot be read or has unknown
                settings; the message names the file and the variable or setting.
        """
        return cls(**{name: value for name, (value, _) in cls.given(environ, strict=strict, **overrides).items()})

    @classmethod
    def given(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        strict: bool = True,
        **overrides: Any,  # noqa: ANN401 - checked below
    ) -> dict[str, tuple[Any, str]]:
        """Return the settings that are not left at their defaults: (value, where it is from) by field name.

        An override takes precedence over a variable, and that over the configuration file. The arguments and the errors
        are those of `load`; bounds are not checked.
        """
        source = os.environ if environ is None else environ
        path = source.get(CONFIG_VARIABLE)
        in_file = _read_config(path, {item.name for item in fields(cls)}, strict) if path else {}
        found: dict[str, tuple[Any, str]] = {}
        for item in fields(cls):
            variable = _PREFIX + item.name.upper()
            kind = type(item.default)
            override = overrides.pop(item.name, None)
            if override is not None:
                found[item.name] = _parse(item.name, override, kind), "option"
            elif source.get(variable):
                found[item.name] = _parse(variable, source[variable], kind), variable
            elif item.name in in_file:
                found[item.name] = _parse(f"{path}: {item.name}", in_file[item.name], kind), f"{path}"
        if overrides:
            raise InvalidInput(f"unknown setting: {', '.join(sorted(overrides))}")
        return found

    @property
    def gc_slice_seconds(self) -> float:
        """How exactly the store remembers when pages were put: an eighth of the grace period, 1 to 300 seconds."""
        return min(300.0, max(1.0, self.gc_grace_seconds / 8))

    @property
    def build_run_bytes(self) -> int:
        """Memory of one run of arcs that are sorted: a small part of the memory for bodies, and 4 MiB at most."""
        return min(4 * MIB, max(64 * KIB, self.buffered_bytes // 32))

    @property
    def hot_buffered_bytes(self) -> int:
        """Memory for bodies that the front reads: a quarter of that for all others, and enough for one of any route."""
        largest = max(self.json_body_bytes, self.verify_body_bytes, self.resolve_batch_body_bytes)
        return max(self.buffered_bytes // 4, min(largest, self.buffered_bytes))

    @property
    def payload_cache_bytes(self) -> int:
        """Memory for small payloads, beside that for parsed pages."""
        return self.cache_bytes // 8

    def environ(self) -> dict[str, str]:
        """Return the variables from which `load` restores these settings in another process."""
        return {_PREFIX + item.name.upper(): str(getattr(self, item.name)) for item in fields(self)}

    def toml(self, name: str) -> str:
        """Return the value of a setting as in the configuration file, without passwords."""
        value = getattr(self, name)
        if isinstance(value, bool):
            return str(value).lower()
        shown = without_surrogates(_shown(name, value))
        return shown if shown == str(value) and isinstance(value, int | float) else json.dumps(masked(shown))

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """Return (environment variable, default, meaning) of every setting, for help texts and documentation."""
        return [(_PREFIX + f.name.upper(), _shown(f.name, f.default), f.metadata["about"]) for f in fields(cls)]


def _read_config(path: str, known: AbstractSet[str], strict: bool) -> dict[str, object]:
    """Return the settings of a configuration file by name.

    Raises:
        InvalidInput: If it cannot be read, is not TOML, or has a setting that is unknown, or is not text, a number or
            a boolean; the message names the file.
    """
    try:
        with Path(path).open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidInput(f"{path}: configuration file was not read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
        raise InvalidInput(f"{path}: configuration file is not TOML: {error}") from None
    for name, value in document.items():
        if strict and name not in known:
            similar = difflib.get_close_matches(name, known, n=1)
            raise InvalidInput(
                f"{path}: unknown setting {name!r}" + (f"; did you mean {similar[0]}?" if similar else "")
            )
        if name in known and not isinstance(value, str | int | float):
            raise InvalidInput(f"{path}: {name} is neither text, a number nor a boolean")
    return document


def _parse(name: str, value: Any, kind: type) -> Any:  # noqa: ANN401 - one parser for all kinds
    """Convert `value` to `kind` (Path, str, bool, int or float)."""
    if not isinstance(value, str):
        value = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if issubclass(kind, Path):
        return Path(value)
    if kind is str:
        return value
    if kind is bool:
        if value.lower() not in _BOOLEANS:
            raise InvalidInput(f"{name} is {value!r}, expected true or false")
        return _BOOLEANS[value.lower()]
    if kind is float:
        try:
            return float(value)
        except ValueError:
            raise InvalidInput(f"{name} is {value!r}, expected a number of seconds") from None
    match = _NUMBER.fullmatch(value)
    is_size = name.lower().endswith("_bytes")
    if match is None or (match[2] and not is_size):
        units = ", optionally with KiB, MiB or GiB" if is_size else ""
        raise InvalidInput(f"{name} is {value!r:.100}, expected a non-negative integer{units}")
    unit = (match[2] or "").lower()
    return int(match[1]) * (_DECIMAL_UNITS.get(unit) or _UNITS.get(unit[:1], 1))


def _bounds(item: Field[Any]) -> str:
    """Return the values that a setting may have, for a person."""
    least, most = (_shown(item.name, item.metadata[each]) for each in ("least", "most"))
    return f"at least {least}" if most == str(math.inf) else f"{least} to {most}"


def _shown(name: str, default: object) -> str:
    """Return a value for a person."""
    if isinstance(default, int) and default and name.endswith("_bytes"):
        for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if default % unit == 0:
                return f"{default // unit}{word}"
    return str(default)
