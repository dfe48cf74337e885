"""The engine: request bytes in, response bytes out, over one store. The only place where a store and `_core` meet.

An operation of the extension does all work on trees, and says what it lacks (pages, root records, more time); the
driver (`coregw.engine.driver`) supplies that. What is cached is answered on the event loop without a thread; long work
runs in worker threads (`coregw.engine.scheduling`). Writes are ordered: pages, then root records, then the answer.

HTTP, limits on bodies and status codes are the gateway's (``coregw.gateway``).
"""

from coregw.extras import missing_extra

try:
    from coregw.engine.builds import Builds
    from coregw.engine.cars import Cars
    from coregw.engine.engine import Engine, EngineFigures
    from coregw.engine.objects import Objects
    from coregw.engine.payloads import Payloads, StoredPayload
    from coregw.engine.publications import PublicationStore
    from coregw.engine.scheduling import EngineLimits
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.engine", "server") from error

__all__ = [
    "Builds",
    "Cars",
    "Engine",
    "EngineFigures",
    "EngineLimits",
    "Objects",
    "Payloads",
    "PublicationStore",
    "StoredPayload",
]
