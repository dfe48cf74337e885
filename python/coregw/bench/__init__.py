"""``coregw bench``: how fast this machine proves and verifies, alone and over HTTP.

`local` measures trees and proofs in this process, `scaling` verifies in several processes at once, and `service` asks a
gateway. Each returns `figures.Figure` values.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("msgspec") is None:
    raise missing_extra(ModuleNotFoundError(name="msgspec"), "coregw.bench", "client")
