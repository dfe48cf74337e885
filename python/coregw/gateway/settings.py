"""Every limit and address of the gateway: one named setting each, with its default, from COREGW_* or the caller.

Leaves out command-line parsing (``coregw.cli``) and secrets. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from coregw.errors import InvalidInput

__all__ = ["GIB", "KIB", "MIB", "Settings"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_PREFIX: Final = "COREGW_"
_DATA: Final = Path("coregw-data")
_SIZE: Final = re.compile(r"\s*([0-9]+)\s*([KMG]i?B?)?\s*", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB}
_ORIGIN: Final = re.compile(r"none|\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+", re.ASCII)
_BOOLEANS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_LEVELS: Final = ("critical", "error", "warning", "info", "debug")


def _about(text: str, least: float = 0, most: float = math.inf) -> dict[str, Any]:
    """What a setting is for, and its bounds."""
    return {"about": text, "least": least, "most": most}


def _setting(default: Any, about: str, *, least: float = 0, most: float = math.inf) -> Any:  # noqa: ANN401 - as `field`
    """A field that documents itself and knows its bounds."""
    return field(default=default, metadata=_about(about, least, most))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a gateway runs with. Each field is also the environment variable ``COREGW_<FIELD>``.

    Raises:
        InvalidInput: A value is out of its bounds; the message names the setting.
    """

    data: Path = field(default=_DATA, metadata=_about("Directory of the RocksDB store; made if missing."))
    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8080, "Port to listen on; 0 picks a free one.", most=65535)
    allow_origin: str = _setting("none", "Web pages that may ask, by their origin: one, `*` for any, or none.")
    workers: int = _setting(1, "Processes that answer, on one store.", least=1, most=256)
    log_level: str = _setting("info", f"Least severe log lines shown: {', '.join(_LEVELS)}.")

    store_cache_bytes: int = _setting(32 * MIB, "Memory for RocksDB's cache of blocks.", least=MIB)
    store_threads: int = _setting(4, "Reads of the store at once.", least=1, most=256)
    reserve_bytes: int = _setting(128 * MIB, "Room left on the disk below which nothing more is stored.")
    salvage: bool = _setting(default=False, about="Open a damaged store with what can be read; data may be lost.")

    cache_bytes: int = _setting(256 * MIB, "Memory for parsed pages.", least=MIB)
    held_roots: int = _setting(65_536, "How many roots known to be held are remembered.", least=1)
    node_budget: int = _setting(4096, "Tree nodes a query may visit before it leaves the event loop.", least=1)
    worker_threads: int = _setting(4, "Threads for long queries, builds and changes.", least=1, most=256)
    heavy_requests: int = _setting(2, "Root creations and mutations over 1 MiB worked on at once.", least=1)
    max_lookups: int = _setting(10_000, "Look-ups that one resolve may need.", least=1)
    operation_seconds: float = _setting(30.0, "Time one query or change may take.", least=0.001)
    store_seconds: float = _setting(5.0, "Time the store may take to answer a health check.", least=0.001)

    json_body_bytes: int = _setting(MIB, "Largest JSON body of resolve, read, scan and map-proof.", least=1)
    verify_body_bytes: int = _setting(24 * MIB, "Largest body of the verify routes (16 MiB of proof).", least=1)
    roots_body_bytes: int = _setting(256 * MIB, "Largest body of POST /v1/roots.", least=1)
    mutation_body_bytes: int = _setting(64 * MIB, "Largest body of POST /v1/roots/{root}/mutations.", least=1)
    payload_bytes: int = _setting(64 * MIB, "Largest payload of POST /v1/cas.", least=1)
    car_bytes: int = _setting(4 * GIB, "Largest CAR of POST /v1/car; it is spooled to the data directory.", least=1)
    car_blocks: int = _setting(4_000_000, "Most blocks of a CAR; each takes 60 bytes of memory.", least=1, most=1 << 31)
    cars_at_once: int = _setting(2, "CARs taken in at once; more get 503.", least=1)
    car_exports: int = _setting(16, "CARs written at once; more get 503.", least=1)
    batch_body_bytes: int = _setting(96 * MIB, "Largest body of POST /v1/cas/batch.", least=1)
    resolve_batch_body_bytes: int = _setting(8 * MIB, "Largest body of POST /v1/resolve/batch.", least=1)
    batches_at_once: int = _setting(8, "Batches of resolves worked on at once; more wait.", least=1)
    batch_answer_bytes: int = _setting(64 * MIB, "Longest answer of POST /v1/resolve/batch.", least=1)
    buffered_bytes: int = _setting(GIB, "Memory for request bodies of all requests; past it they get 503.", least=MIB)

    connections: int = _setting(4096, "Connections open at once; more are closed at once.", least=1)
    backlog: int = _setting(4096, "Connections that may wait to be accepted.", least=1)
    header_bytes: int = _setting(32 * KIB, "Largest request line and headers together.", least=KIB)
    header_seconds: float = _setting(10.0, "Time for a request line and headers to arrive.", least=0.001)
    body_idle_seconds: float = _setting(20.0, "Longest pause within a request body.", least=0.001)
    body_seconds: float = _setting(600.0, "Time for a whole request body to arrive.", least=0.001)
    drain_seconds: float = _setting(30.0, "Time to take the rest of a body that was refused.", least=0.0)
    write_seconds: float = _setting(60.0, "Longest time for a client to take no more of an answer.", least=0.001)
    keep_alive_seconds: int = _setting(30, "Time an idle connection is kept.", least=1)
    shutdown_seconds: int = _setting(30, "Time for requests under way to finish after a signal to stop.", least=0)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not item.metadata["least"] <= value <= item.metadata["most"]:
                raise InvalidInput(f"setting {item.name} is {value}, must be {_bounds(item)}")
        if self.log_level not in _LEVELS:
            raise InvalidInput(f"setting log_level is {self.log_level!r}, must be one of {', '.join(_LEVELS)}")
        if _ORIGIN.fullmatch(self.allow_origin) is None:
            example = "an origin such as https://example.org, * or none"
            raise InvalidInput(f"setting allow_origin is {self.allow_origin!r}, must be {example}")

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:  # noqa: ANN401 - checked below
        """Settings from the environment; an override that is not None wins over it.

        Args:
            environ: Where to look for ``COREGW_<FIELD>``; the process environment if None. An empty variable counts as
                not set. Sizes may end in ``KiB``, ``MiB`` or ``GiB``.
            overrides: Values by field name, such as ``port=0``; text is read like a variable's.

        Raises:
            InvalidInput: A value can't be read or is out of its bounds; the message names the variable or setting.
        """
        source = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for item in fields(cls):
            variable = _PREFIX + item.name.upper()
            given = overrides.pop(item.name, None)
            if given is not None:
                values[item.name] = _read(item.name, given, type(item.default))
            elif source.get(variable):
                values[item.name] = _read(variable, source[variable], type(item.default))
        if overrides:
            raise InvalidInput(f"no such setting: {', '.join(sorted(overrides))}")
        return cls(**values)

    def environ(self) -> dict[str, str]:
        """The variables by which another process gets these settings from `load`."""
        return {_PREFIX + item.name.upper(): str(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def describe(cls) -> list[tuple[str, str, str]]:
        """Every setting as (environment variable, default, meaning), for help texts and documentation."""
        return [(_PREFIX + f.name.upper(), _shown(f.name, f.default), f.metadata["about"]) for f in fields(cls)]


def _read(name: str, value: Any, kind: type) -> Any:  # noqa: ANN401 - one reader for every kind
    """`value` as a `kind` (Path, str, bool, int or float)."""
    if not isinstance(value, str):
        value = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if issubclass(kind, Path):
        return Path(value)
    if kind is str:
        return value
    if kind is bool:
        if value.lower() not in _BOOLEANS:
            raise InvalidInput(f"{name} is {value!r}, must be true or false")
        return _BOOLEANS[value.lower()]
    if kind is float:
        try:
            return float(value)
        except ValueError:
            raise InvalidInput(f"{name} is {value!r}, must be a number of seconds") from None
    match = _SIZE.fullmatch(value)
    if match is None:
        raise InvalidInput(f"{name} is {value!r}, must be a whole number, perhaps with KiB, MiB or GiB")
    return int(match[1]) * _UNITS[(match[2] or "")[:1].lower()]


def _bounds(item: Field[Any]) -> str:
    """The values that a setting may have, as a person would write them."""
    least, most = (_shown(item.name, item.metadata[each]) for each in ("least", "most"))
    return f"at least {least}" if most == str(math.inf) else f"{least} to {most}"


def _shown(name: str, default: object) -> str:
    """A default as a person would write it."""
    if isinstance(default, int) and default and name.endswith("_bytes"):
        for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if default % unit == 0:
                return f"{default // unit}{word}"
    return str(default)
