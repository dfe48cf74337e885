"""The client's limits and timeouts. The limits on proofs are fixed by the verifiers (protocol section 4)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from coregw.errors import InvalidInput

__all__ = ["DEFAULT_GATEWAY", "MIB", "ClientSettings"]

MIB = 1 << 20
DEFAULT_GATEWAY = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The limits and timeouts of a client.

    Attributes:
        connect_seconds: Timeout of a connection attempt.
        idle_seconds: Timeout between two chunks, sent or received. The answer to a streamed body may take longer: what
            ``stream_bytes_per_second`` allows for that body.
        answer_seconds: Timeout of one whole exchange, from connecting to the last byte of the answer, so that a gateway
            that sends byte by byte does not hold a client.
        stream_bytes_per_second: A streamed body (a CAR file, or a payload in a file), sent or received, gets one second
            more for this many bytes.
        connections: Maximum number of connections, open and kept alive.
        attempts: Maximum attempts of a request, None for as many as there is time for. 1 disables retries.
        retry_seconds: How long after its first failure a request is attempted again if no gateway can be reached, or
            answers that it is unavailable. A ``Retry-After`` is honoured within this time. All requests of a client are
            idempotent, so repeating them is safe.
        backoff_seconds: The wait after all gateways have failed once, at most; it doubles each time. Half of it is
            random.
        backoff_max_seconds: Maximum wait between two attempts.
        max_result_bytes: Maximum size of a JSON answer, errors included.
        max_payload_bytes: Maximum size of a payload, sent or received; by default the gateway's own limit.
        max_car_bytes: Maximum size of an exported CAR.
        max_car_blocks: Maximum number of blocks of a CAR, exported or imported; each needs about 60 bytes of memory.
        list_changes: Maximum number of elements that one mutation appends to a list.
        batch_bytes: Maximum size of the payloads in one batch.
        window_bytes: The initial span of a range read of a list, in units of its measure.
        cache_bytes: Maximum size of what the open files of a client keep: their payloads, and what is known of lists.
            A single payload may be larger, and is then kept by its file until that reads another.
        read_ahead_bytes: How many bytes after those that were asked for are requested with them, at most, when a file
            is read in sequence. At most half of ``cache_bytes``.
        max_entries: Maximum number of entries that a walk of a tree yields, nested maps included. Getting a folder
            counts those of its map of attributes as well. An entry of a nested map counts once more for every 16
            folders that the map is below. The files of a folder that are lists have no more elements than this, beyond
            one for every 16 KiB.
        max_nesting: Maximum depth of maps inside maps that a walk follows.

    Raises:
        InvalidInput: A setting is not above 0.
    """

    connect_seconds: float = 5.0
    idle_seconds: float = 120.0
    answer_seconds: float = 600.0
    stream_bytes_per_second: int = MIB
    connections: int = 16
    attempts: int | None = None
    retry_seconds: float = 10.0
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 5.0
    max_result_bytes: int = 48 * MIB
    max_payload_bytes: int = 64 * MIB
    max_car_bytes: int = 64 * 1024 * MIB
    max_car_blocks: int = 16_000_000
    list_changes: int = 20_000
    batch_bytes: int = 16 * MIB
    window_bytes: int = 64 * MIB
    cache_bytes: int = 64 * MIB
    read_ahead_bytes: int = 4 * MIB
    max_entries: int = 4_000_000
    max_nesting: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise InvalidInput(f"client setting {field.name} is {value}; it must be above 0")
