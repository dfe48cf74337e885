"""The client's limits and timeouts, each a named setting with a stated default.

Leaves out the gateway's address, which every client is given on its own, and the limits on proofs, which the
verifiers of ``coregw._core`` hold themselves (protocol section 4).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from coregw.errors import InvalidInput

__all__ = ["DEFAULT_GATEWAY", "MIB", "ClientSettings"]

MIB = 1 << 20
DEFAULT_GATEWAY = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a client waits for, how often it tries, and how much it takes from a gateway.

    Attributes:
        connect_seconds: Longest wait for a connection.
        idle_seconds: Longest silence while sending or receiving.
        answer_seconds: Longest time for one whole answer, so that a gateway that drips bytes is given up.
        connections: Most connections at a time, and most that are kept open.
        attempts: How often a request is tried when the gateway is unreachable or says that it can't answer now.
            Every request here is idempotent, so that trying again is always safe. 1 means no retries.
        backoff_seconds: The wait before the second attempt; it doubles from there, and is jittered.
        backoff_max_seconds: Longest wait between two attempts.
        max_result_bytes: Most bytes of a JSON answer, an error's included.
        max_payload_bytes: Most bytes of a payload, sent or received; the gateway's own limit by default.
        max_car_bytes: Most bytes of a CAR that is exported.
        max_car_blocks: Most blocks of a CAR, exported or imported; each takes some 60 bytes of memory.
        list_changes: Most elements that one mutation appends to a list.
        batch_bytes: Most bytes of payloads in one batch.
        window_bytes: How much of a list one range read covers at first, in units of its measure.
        max_entries: Most entries, nested maps included, that a walk of a tree yields.
        max_nesting: Deepest nesting of maps inside maps that a walk follows.

    Raises:
        InvalidInput: A setting that is not above 0.
    """

    connect_seconds: float = 5.0
    idle_seconds: float = 120.0
    answer_seconds: float = 600.0
    connections: int = 16
    attempts: int = 4
    backoff_seconds: float = 0.1
    backoff_max_seconds: float = 5.0
    max_result_bytes: int = 48 * MIB
    max_payload_bytes: int = 64 * MIB
    max_car_bytes: int = 64 * 1024 * MIB
    max_car_blocks: int = 16_000_000
    list_changes: int = 20_000
    batch_bytes: int = 16 * MIB
    window_bytes: int = 64 * MIB
    max_entries: int = 1_000_000
    max_nesting: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InvalidInput(f"client setting {field.name} is {value}; it must be above 0")
