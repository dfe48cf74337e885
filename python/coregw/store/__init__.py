"""The `Store` protocol: what a gateway needs from its storage.

A store holds rows in a few tables, and payloads, which are streamed. It interprets neither: it computes no digest and
checks none. The core checks pages when it loads them, and clients check payloads.

Implementations: `coregw.store.memory` (tests, short-lived gateways), `coregw.store.rocksdb` (the default) and
`coregw.store.postgres` (many machines). Each of them passes the contract suite in ``tests/store``.

A store does not understand pages. So whoever puts a page above inner pages may say where the keys below each of these
begin: a guide. Guides are hints: what a store returns is checked like any page, and a wrong guide costs a round.
"""

from coregw.store.protocol import (
    CHUNK_BYTES,
    MAX_PAYLOADS_BYTES,
    MAX_PUT_BYTES,
    PayloadWriter,
    Store,
    Stored,
    Table,
)

__all__ = ["CHUNK_BYTES", "MAX_PAYLOADS_BYTES", "MAX_PUT_BYTES", "PayloadWriter", "Store", "Stored", "Table"]
