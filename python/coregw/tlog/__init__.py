"""Transparency logs of published names: trees of RFC 9162, signed checkpoints of C2SP, and their verification.

``tree`` hashes and proves, ``entry`` is the bytes of a leaf, ``note`` signs and verifies, ``checkpoint`` is the text of
a signed tree head, ``policy`` says whose signatures are required, ``proof`` verifies publications. Nothing does I/O.
"""
