"""Settings of the gateway: what its operator decides; from a file, variables or the caller.

Sizes are in bytes, times in seconds. All limits follow from them (`coregw.gateway.limits.machine`). Secrets are not
settings (`coregw.gateway.access`).
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

import msgspec
from msgspec import Meta
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, Type, type_info

from coregw._core import Origins, Proxies
from coregw.errors import InvalidInput
from coregw.gateway.limits.peers import LOOPBACK
from coregw.store.addresses import masked
from coregw.text import without_surrogates

__all__ = [
    "CONFIG_VARIABLE",
    "GIB",
    "GRACE_SECONDS",
    "KIB",
    "MIB",
    "REMOVED",
    "Settings",
    "about_unknown",
    "shown",
]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

GRACE_SECONDS: Final = 7 * 86_400.0
"""The default of `Settings.gc_grace_seconds`; on a terminal, younger roots are removed after a question only."""

CONFIG_VARIABLE: Final = "COREGW_CONFIG"
"""Names the configuration file: a TOML document whose keys are the names of settings."""

_PREFIX: Final = "COREGW_"
_EMBEDDED: Final = "rocksdb"
_DATABASES: Final = ("postgresql://", "postgres://")
_NONE: Final = "none"
_LEAST_SHARED_GRACE_SECONDS: Final = 120
"""Twice what a change of a database's clock may count as (``docs/decisions/0378``)."""

_SIZE: Final = re.compile(r"\s*([0-9]{1,20})\s*([KMG](?:i?B)?)?\s*", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"k": KIB, "m": MIB, "g": GIB}
_DECIMAL_UNITS: Final = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_ORIGIN: Final = re.compile(r"none|\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+", re.ASCII)

_Level = Literal["critical", "error", "warning", "info", "debug"]

_FROM_MEMORY: Final = frozenset(
    {"batch_answer_bytes", "buffered_bytes", "builds", "cache_bytes", "car_exports", "cars_at_once", "change_bytes"}
    | {"heavy_requests", "long_queries", "mutation_body_bytes", "payload_streams", "roots_body_bytes"}
    | {"store_cache_bytes", "unsent_bytes", "verify_body_bytes"}
)
_FROM_CONNECTIONS: Final = frozenset({"address_share", "backlog"})
_FIXED: Final = frozenset(
    {"body_idle_seconds", "body_seconds", "build_body_bytes", "build_spool_bytes", "car_blocks", "car_bytes"}
    | {"drain_seconds", "header_bytes", "header_seconds", "held_roots", "json_body_bytes", "keep_alive_seconds"}
    | {"max_nodes", "min_rate_bytes", "node_budget", "operation_seconds", "payload_bytes", "pipelined_requests"}
    | {"rate_grace_seconds", "resolve_batch_body_bytes", "store_connections", "store_seconds", "store_threads"}
    | {"worker_threads", "write_seconds"}
)
REMOVED: Final = {
    **dict.fromkeys(_FROM_MEMORY, "it is derived from memory now"),
    **dict.fromkeys(_FROM_CONNECTIONS, "it is derived from connections now"),
    **dict.fromkeys(_FIXED, "it is a constant now"),
    "store_unsafe": "it is a parameter of the address in store now, as in postgresql://HOST/DATABASE?unsafe=NAME",
    "tracing": "requests are traced if OTEL_EXPORTER_OTLP_ENDPOINT is set",
    "workers": "one process uses all cores now",
}
"""The settings that there were once, and what is in their place."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a gateway.

    Each field is also the environment variable ``COREGW_<FIELD>``, and a key of the configuration file.

    Raises:
        InvalidInput: If a value is of another type or out of its bounds; the message names the setting.
    """

    data: Annotated[Path, Meta(description="Directory of the RocksDB store; created if missing.")] = Path("coregw-data")
    store: Annotated[
        str,
        Meta(
            description="The store: rocksdb, in the data directory, or postgresql://...; there, "
            "`unsafe=` names risks of losing data that the database may have."
        ),
    ] = _EMBEDDED
    bucket: Annotated[str, Meta(description="Bucket for payload chunks of a PostgreSQL store: s3://..., or none.")] = (
        _NONE
    )
    store_bytes: Annotated[
        int, Meta(ge=0, description="Data in the store beyond which nothing is stored; 0 for no limit.")
    ] = 0
    reserve_bytes: Annotated[int, Meta(ge=0, description="Free disk space below which nothing is stored.")] = 128 * MIB
    gc_seconds: Annotated[float, Meta(ge=0, description="Time between garbage collections; 0 for none.")] = 0.0
    gc_grace_seconds: Annotated[
        float, Meta(ge=0, description="How long garbage is kept after it was last stored or confirmed.")
    ] = GRACE_SECONDS
    gc_revisions: Annotated[
        int, Meta(ge=0, description="Revisions of each published name whose roots are kept; 0 for all.")
    ] = 0

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    hosts: Annotated[
        str, Meta(description="Names in Host: a list, `*` for any, or `auto`: on loopback, no public names.")
    ] = "auto"
    allow_origin: Annotated[
        str, Meta(description="Origin of the web pages that may send requests: one, `*` for any, or none.")
    ] = _NONE
    proxies: Annotated[str, Meta(description="Reverse proxies: addresses without limits per address, or none.")] = (
        LOOPBACK
    )
    tls_certificate: Annotated[
        str, Meta(description="File of the certificate and its chain, as PEM, for HTTPS and HTTP/2; or none.")
    ] = _NONE
    tls_key: Annotated[str, Meta(description="File of the certificate's key, as PEM; or none.")] = _NONE
    management_address: Annotated[
        str, Meta(description="Address for health and administration: host:port, or none.")
    ] = _NONE
    read_only: Annotated[bool, Meta(description="Refuse all writes of clients.")] = False

    memory: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of the gateway; 0: a quarter of what it may use, and at least what is needed.",
        ),
    ] = 0
    connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 20,
            description="Open connections, and further streams of HTTP/2; beyond it, the longest idle one is closed.",
        ),
    ] = 4096
    shutdown_seconds: Annotated[int, Meta(ge=0, description="Time for requests in flight to finish on shutdown.")] = 30

    log_level: Annotated[_Level, Meta(description=f"Minimum severity of log lines: {', '.join(get_args(_Level))}.")] = (
        "info"
    )
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Form of log lines: text, or json with one object per line.")
    ] = "text"
    access_log: Annotated[bool, Meta(description="Log each request.")] = False

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            _convert(f"setting {name}", getattr(self, name), kind, strict=True)
        if _ORIGIN.fullmatch(self.allow_origin) is None:
            example = "an origin such as https://example.org, * or none"
            raise InvalidInput(f"setting allow_origin is {self.allow_origin!r}, expected {example}")
        self._check_store()
        Origins(self.hosts, self.allow_origin, self.host)  # refuses what is no host name
        Proxies(self.proxies)
        _ = self.management_host_and_port
        _ = self.tls_files

    def _check_store(self) -> None:
        """Raise `InvalidInput` if it names no kind of store, or a bucket has none. Addresses may hold passwords."""
        if self.store != _EMBEDDED and not self.store.startswith(_DATABASES):
            raise InvalidInput("setting store is neither rocksdb nor an address that begins with postgresql://")
        if self.bucket != _NONE and not self.bucket.startswith("s3://"):
            raise InvalidInput("setting bucket is neither none nor an address that begins with s3://")
        if self.bucket != _NONE and not self.is_shared:
            raise InvalidInput("setting bucket needs a store in PostgreSQL; RocksDB keeps chunks in its directory")
        if self.is_shared and self.gc_grace_seconds < _LEAST_SHARED_GRACE_SECONDS:
            raise InvalidInput(
                f"setting gc_grace_seconds is {self.gc_grace_seconds:g}, expected at least "
                f"{_LEAST_SHARED_GRACE_SECONDS} with a store in PostgreSQL: if the database's clock is set, up to a "
                "minute passes at once"
            )

    def __repr__(self) -> str:  # a generated one would show the passwords in addresses
        return f"Settings({', '.join(f'{name}={self.toml(name)}' for name in self.__struct_fields__)})"

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
        if self.management_address == _NONE:
            return None
        host, colon, port = self.management_address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (host and colon and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 1 << 16):
            given = repr(self.management_address)
            raise InvalidInput(f"setting management_address is {given}, expected host:port or none")
        return host, int(port)

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """The files of the certificate and of its key; None without TLS.

        Raises:
            InvalidInput: If only one of the two is set.
        """
        given = {"tls_certificate": self.tls_certificate, "tls_key": self.tls_key}
        missing = [name for name, value in given.items() if value == _NONE]
        if len(missing) == 1:
            raise InvalidInput(f"setting {missing[0]} is none, expected a file: a certificate needs a key")
        return None if missing else (Path(self.tls_certificate), Path(self.tls_key))

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
        are those of `load`; what settings require of each other is not checked.
        """
        source = os.environ if environ is None else environ
        path = source.get(CONFIG_VARIABLE)
        in_file = _read_config(path, strict) if path else {}
        found: dict[str, tuple[Any, str]] = {}
        for name, kind in _kinds().items():
            variable = _PREFIX + name.upper()
            override = overrides.pop(name, None)
            if override is not None:
                found[name] = _convert(name, override, kind), "option"
            elif source.get(variable):
                found[name] = _convert(variable, source[variable], kind), variable
            elif name in in_file:
                found[name] = _convert(f"{path}: {name}", in_file[name], kind), f"{path}"
        for name in sorted(overrides):
            raise InvalidInput(f"unknown setting {name!r}{about_unknown(name)}")
        return found

    @property
    def gc_slice_seconds(self) -> float:
        """How exactly the store remembers when pages were put: an eighth of the grace period, 1 to 300 seconds."""
        return min(300.0, max(1.0, self.gc_grace_seconds / 8))

    def toml(self, name: str) -> str:
        """Return the value of a setting as in the configuration file, without passwords."""
        value = getattr(self, name)
        if isinstance(value, bool):
            return str(value).lower()
        text = without_surrogates(shown(name, value))
        return text if text == str(value) and isinstance(value, int | float) else json.dumps(masked(text))

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """Return (environment variable, default, meaning) of every setting, for help texts and documentation."""
        return [
            (_PREFIX + each.name.upper(), shown(each.name, each.default), _about(each.type))
            for each in msgspec.structs.fields(cls)
        ]


def about_unknown(name: str) -> str:
    """Return the end of a message about a name that is no setting: what there is in its place, if anything is."""
    if name in REMOVED:
        return f"; {REMOVED[name]}"
    similar = difflib.get_close_matches(name, Settings.__struct_fields__, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def _kinds() -> dict[str, Any]:
    """Return the types of all settings with their bounds, by name."""
    return {each.name: each.type for each in msgspec.structs.fields(Settings)}


def _about(kind: Any) -> str:  # noqa: ANN401 - an annotated type
    return next(str(each.description) for each in get_args(kind) if isinstance(each, Meta))


def _read_config(path: str, strict: bool) -> dict[str, object]:
    """Return the settings of a configuration file by name.

    Raises:
        InvalidInput: If it cannot be read, is not TOML, or has a setting that is unknown; the message names the file.
    """
    try:
        with Path(path).open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidInput(f"{path}: configuration file was not read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
        raise InvalidInput(f"{path}: configuration file is not TOML: {error}") from None
    for name in document:
        if strict and name not in Settings.__struct_fields__:
            raise InvalidInput(f"{path}: unknown setting {name!r}{about_unknown(name)}")
    return document


def _convert(label: str, value: Any, kind: Any, *, strict: bool = False) -> Any:  # noqa: ANN401 - for all types
    """Return a value as the type of a setting; unless `strict`, text is parsed.

    Raises:
        InvalidInput: If it is none, or out of bounds; the message begins with the label.
    """
    if not strict and _is_size(label) and isinstance(value, str):
        value = _bytes_of(value)
    try:
        return msgspec.convert(value, kind, strict=strict, dec_hook=_path_of)
    except msgspec.ValidationError:
        raise InvalidInput(f"{label} is {value!r:.100}, expected {_expected(label, type_info(kind))}") from None


def _path_of(kind: type, value: object) -> object:
    """Convert text to a path, for msgspec, which has no conversion of its own. Raises TypeError for what is no text."""
    return kind(value)


def _bytes_of(text: str) -> int | str:
    """Return a size with or without a unit in bytes, or the text if it is none."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return text
    unit = (match[2] or "").lower()
    return int(match[1]) * (_DECIMAL_UNITS.get(unit) or _UNITS.get(unit[:1], 1))


def _expected(label: str, kind: Type) -> str:
    """Return the values that a setting may have, for a person."""
    if isinstance(kind, Metadata):  # a description is around it
        kind = kind.type
    match kind:
        case LiteralType():
            return f"one of {', '.join(map(str, kind.values))}"
        case BoolType():
            return "true or false"
        case IntType() | FloatType():
            what = "a number of seconds" if isinstance(kind, FloatType) else "an integer"
            bounds = f"at least {kind.ge}" if kind.le is None else f"{kind.ge} to {kind.le}"
            return f"{what}, {bounds}" + (", optionally with KiB, MiB, GiB, KB, MB or GB" if _is_size(label) else "")
        case _:
            return "text"


def _is_size(name: str) -> bool:
    """Whether a setting, or the variable of one, is a number of bytes."""
    return name.lower().endswith(("_bytes", "memory"))


def shown(name: str, value: object) -> str:
    """Return a value for a person."""
    if isinstance(value, int) and value and _is_size(name):
        for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (10**6, "MB"), (10**3, "KB")):
            if value % unit == 0:
                return f"{value // unit}{word}"
    return str(value)
