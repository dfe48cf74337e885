"""The HTTP gateway: `coregw.gateway.server` runs it, `coregw.gateway.app` is it, `coregw.gateway.settings` bounds it.

Leaves out everything about trees and proofs (``coregw.engine`` and the extension) and about storage
(``coregw.store``). Importing this package imports no web framework; its modules do.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("litestar") is None:
    raise missing_extra(ModuleNotFoundError(name="litestar"), "coregw.gateway", "server")
