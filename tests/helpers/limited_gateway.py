"""A gateway with limits that no setting names, as a process: ``limited_gateway.py DATA LIMITS``, the latter as JSON.

Its settings are in variables, as for ``coregw serve``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from coregw.gateway.access import WRITE_TOKEN_VARIABLE, AccessToken
from coregw.gateway.limits.machine import Limits
from coregw.gateway.listener import announce, run_in_thread
from coregw.gateway.logs import log_to_stderr
from coregw.gateway.routes.publications import TOKEN_VARIABLE
from coregw.gateway.server import GatewayServer
from coregw.gateway.settings import Settings
from coregw.heap import limit_heap

if __name__ == "__main__":
    settings = Settings.load(data=sys.argv[1])
    log_to_stderr(settings)
    limit_heap()
    server = GatewayServer(
        settings,
        on_ready=announce,
        admin_token=AccessToken.from_environment(TOKEN_VARIABLE),
        write_token=AccessToken.from_environment(WRITE_TOKEN_VARIABLE),
        limits=replace(Limits.of(settings), **json.loads(sys.argv[2])),
    )
    run_in_thread(server.serve, server.stop)
