"""State that a client trusts: names of accepted roots, and the publications and tree heads that it saw last.

``store`` is the trust store, ``document`` the contents of its file, ``file`` replaces a file under a lock, crash-safe.
"""

from importlib.util import find_spec

from coregw.extras import missing_extra

if find_spec("msgspec") is None:
    raise missing_extra(ModuleNotFoundError(name="msgspec"), "coregw.trust", "client")
