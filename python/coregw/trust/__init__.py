"""State that a client trusts: names of accepted roots, and the publications and tree heads that it saw last.

``store`` is the trust store, ``document`` the contents of its file, ``file`` replaces a file under a lock, crash-safe.
"""
