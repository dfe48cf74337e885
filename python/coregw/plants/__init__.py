"""The sample plant store: a small HTTP service, version 1.0.0, that stores plants under their ids.

`coregw.plants.app` is a plain Litestar application, and ``coregw serve-plants`` runs it. Only that command imports it.
It takes RocksDB, strict JSON and bearer tokens from the rest of the package; its messages, errors and OpenAPI document
are its own. Importing it loads no web framework.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("litestar") is None:
    raise missing_extra(ModuleNotFoundError(name="litestar"), "coregw.plants", "server")
