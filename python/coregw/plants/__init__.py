"""The sample plant store: a small HTTP service, version 1.0.0, that stores plants under their ids.

`coregw.plants.app` is the application; `coregw.plants.service` serves it alone or in front of a gateway. It shares the
gateway's store, server, limits and strict parsing; its messages, errors and OpenAPI document are its own. No module
outside this package mentions plants, except the commands that serve them. Importing it loads no web framework.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("litestar") is None:
    raise missing_extra(ModuleNotFoundError(name="litestar"), "coregw.plants", "server")
