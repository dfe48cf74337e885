"""Verification of roots whose commitments are KZG (the codecs ``0x30VS01`` of malt-core), in Python.

Such a root is a KZG commitment to the 4,096 cells of a node, and a proof is a list of openings: each shows one cell.
`verify_resolve`, `verify_read` and `verify_map_proof` of `coregw.verify`, and the clients, hand such roots to this
package, which needs the ``kzg`` extra. It verifies and does nothing else: no trees are built, and nothing is proven.

```
  KZG root of a map     commitment ── slot SHA-256(key)[0:12 bits] ──▶ cell: a leaf, another node, or a bucket
                                       │ opening: (π, y, slot), y = SHA-256(cell) mod r
                                       ▼
                        e(C - y·G1, G2) = e(π, [τ - z]G2), z the root of unity of the slot
```

`docs/kzg.md` is the specification; ``docs/decisions`` says why it is like this.
"""

from __future__ import annotations

from types import ModuleType

from coregw.extras import missing_extra
from coregw.kzg.cid import KzgRoot, is_kzg_request, kzg_root

__all__ = ["KzgRoot", "is_kzg_request", "kzg_root", "verifiers"]


def verifiers() -> ModuleType:
    """Return `coregw.kzg.operations`.

    Raises:
        MissingExtraError: The ``kzg`` extra is not installed.
    """
    try:
        from coregw.kzg import operations
    except ModuleNotFoundError as error:
        raise missing_extra(error, "verifying a KZG root", "kzg") from error
    return operations
