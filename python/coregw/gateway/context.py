"""What every route needs: the engine, the settings, and the reader of bodies. Leaves out how they are made (`app`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, cast

from litestar import Response

from coregw.engine import Engine
from coregw.gateway.bodies import Bodies
from coregw.gateway.problems import AnyRequest
from coregw.gateway.settings import Settings

__all__ = ["Gateway", "json_response"]


@dataclass(frozen=True, slots=True)
class Gateway:
    """One running gateway."""

    engine: Engine
    settings: Settings
    bodies: Bodies

    @classmethod
    def of(cls, request: AnyRequest) -> Self:
        """The gateway that a request came to."""
        return cast("Self", request.app.state["gateway"])


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """An answer that is JSON already."""
    return Response(body, status_code=status, media_type="application/json", headers=headers)
