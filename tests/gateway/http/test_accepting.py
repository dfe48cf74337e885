"""How many connections an event loop iteration accepts: no client waits for as many as are before it."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import ExitStack

import uvloop

from coregw.gateway.http.connection import refusal
from coregw.gateway.http.server import ACCEPTS_AT_ONCE, HttpServer
from coregw.gateway.settings import Settings

CLIENTS = 4 * ACCEPTS_AT_ONCE
SPARE_ITERATIONS = 8


async def unused(scope: object, receive: object, send: object) -> None:
    """No request is sent."""


def test_an_iteration_accepts_several_connections() -> None:
    async def count_iterations() -> int:
        ready = asyncio.Event()
        server = HttpServer(Settings.load({}, port=0), unused, refusal, ready.set, handles_signals=False)
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=CLIENTS))
            serving = asyncio.create_task(server.serve([listener]))
            await ready.wait()
            for _ in range(CLIENTS):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            iterations = 0
            while len(server.server_state.connections) < CLIENTS:
                await asyncio.sleep(0)
                iterations += 1
            server.should_exit = True
            await serving
        return iterations

    iterations = uvloop.run(count_iterations())
    assert iterations <= math.ceil(CLIENTS / ACCEPTS_AT_ONCE) + SPARE_ITERATIONS
