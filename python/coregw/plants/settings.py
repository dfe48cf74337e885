"""Settings of a server with the plant store: those of the gateway, and the plant store's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from coregw.gateway.settings import KIB, Settings

__all__ = ["PlantSettings", "body_limit"]

_BODY_BYTES: Final = 64 * KIB


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSettings(Settings):
    """The gateway's `Settings` with those of the plant store."""

    plant_body_bytes: int = field(
        default=_BODY_BYTES, metadata={"about": "Largest body of POST /plants.", "least": 1, "most": math.inf}
    )


def body_limit(settings: Settings) -> int:
    """The largest body of ``POST /plants`` in bytes; the default under the settings of a gateway alone."""
    return settings.plant_body_bytes if isinstance(settings, PlantSettings) else _BODY_BYTES
