"""The HTTP gateway: routes over an engine, and the server that runs them.

`coregw.gateway.server` runs it, `coregw.gateway.app` composes it, `coregw.gateway.settings` configures it. Importing
this package imports no web framework; its modules do.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("litestar") is None:
    raise missing_extra(ModuleNotFoundError(name="litestar"), "coregw.gateway", "server")
