"""The servers that `bench_gateway` compares: the gateway, the gateway with a constant response, and a raw ASGI app.

All use the gateway's sockets, protocol class and limits. A child process runs one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from coregw.engine import Engine
from coregw.gateway import server
from coregw.gateway.access import AccessToken
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.settings import GIB, Settings

MEMORY = 4 * GIB
"""Enough for all pages of a map of 10^6 arcs, so that a warm cache stays warm."""


class _Constant(Engine):
    """An engine with a constant result, so that only the work around it is measured, on the same route."""

    answer = b""

    async def resolve(self, request: bytes) -> bytes:
        return self.answer


def _constant_app(gateway: Gateway, token: AccessToken | None) -> Any:  # noqa: ANN401 - an ASGI app
    gateway.engine.__class__ = _Constant
    return create_app_over(gateway, token)


class _Raw:
    """An application without a framework: reads the body and sends the constant."""

    def __init__(self, gateway: Gateway, token: AccessToken | None) -> None:
        self.headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(_Constant.answer)),
            (b"x-content-type-options", b"nosniff"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI types
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": _Constant.answer})


APPS = {"gateway": create_app_over, "constant": _constant_app, "raw": _Raw}

if __name__ == "__main__":
    kind, data, answer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    _Constant.answer = answer.read_bytes() if answer.exists() else b""
    settings = Settings(data=data, port=0, memory=MEMORY, log_level="error")
    server.create_app_over = APPS[kind]
    server.run(settings)
