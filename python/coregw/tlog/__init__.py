"""Transparency logs of published names: trees of RFC 9162, signed checkpoints of C2SP, and their verification.

``tree`` hashes and proves, ``entry`` is the bytes of a leaf, ``note`` signs and verifies, ``checkpoint`` is the text of
a signed tree head, ``policy`` says whose signatures are required, ``proof`` verifies publications. Nothing does I/O.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("msgspec") is None:
    raise missing_extra(ModuleNotFoundError(name="msgspec"), "coregw.tlog", "log")
