"""The plant store as a service: alone (``coregw serve-plants``), or in front of a gateway (``coregw serve``)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coregw.gateway.app import create_app as create_gateway
from coregw.gateway.context import Gateway
from coregw.gateway.http.dispatch import Counted
from coregw.gateway.routes import health
from coregw.gateway.server import GATEWAY, Service
from coregw.gateway.tokens import AccessToken
from coregw.plants.app import PATH, TOKEN_VARIABLE, create_app
from coregw.plants.problems import refusal

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ["alone", "beside_gateway", "token_from_environment"]

logger = logging.getLogger("coregw.plants")

_DOCUMENT: Final = "/openapi.json"


def token_from_environment() -> AccessToken | None:
    """Return the bearer token of ``PLANTS_ACCESS_TOKEN``, or None if it is not set."""
    return AccessToken.from_environment(TOKEN_VARIABLE)


def alone(token: AccessToken | None) -> Service:
    """The plant store only, with its document at ``/openapi.json`` and the gateway's ``/healthz``.

    Args:
        token: The token that clients must send; None omits the route that creates plants, and logs a warning.
    """

    def make(shared: Gateway, _: AccessToken | None) -> ASGIApp:
        if token is None:
            logger.warning("%s is not set, so there is no %s", TOKEN_VARIABLE, PATH)
        app = create_app(shared, token, _DOCUMENT, health.handlers)
        app.state["gateway"] = shared  # for the gateway's own handlers
        return Counted(app)

    return Service(make, refusal)


def beside_gateway(token: AccessToken | None) -> Service:
    """A gateway, and the plant store at ``/plants`` with its document at ``/plants/openapi.json``.

    They share the store and the memory for request bodies.

    Args:
        token: The token that clients of the plant store must send; None omits the plant store.
    """
    if token is None:
        return GATEWAY

    def make(shared: Gateway, admin_token: AccessToken | None) -> ASGIApp:
        plants = Counted(create_app(shared, token, PATH + _DOCUMENT))
        return _ByPath(create_gateway(shared, admin_token), plants)

    def refuse(target: bytes, code: str, message: str) -> bytes:
        path = target.partition(b"?")[0].decode("latin-1")
        return (refusal if _is_plants(path) else GATEWAY.refusal)(target, code, message)

    return Service(make, refuse)


@dataclass(frozen=True, slots=True)
class _ByPath:
    """Passes each request to the gateway or the plant store, by its path."""

    gateway: ASGIApp
    plants: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.plants if _is_plants(scope.get("path", "")) else self.gateway
        await app(scope, receive, send)


def _is_plants(path: str) -> bool:
    return path == PATH or path.startswith(PATH + "/")
