"""Upkeep of a store as a whole: checks, repairs, backups and collections, beside the engine that serves requests.

Between the gateway and the engine: it needs the files of a store, the extension that interprets what is in them, and
the engine's layout of roots and records.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("rocksdict") is None:
    raise missing_extra(ModuleNotFoundError(name="rocksdict"), "coregw.upkeep", "server")
