"""One store for several processes of a machine: an owner process, and worker processes.

The owner opens the store and serves it to each worker over a Unix socket (`share_store`). A worker's store
(`open_remote`) sends writes and mutable rows to the owner, and reads write-once rows and payloads from the SSTs first.
So an acknowledged write is visible to every process at once, and there is one committer. Both ends are of the same
version. ``docs/decisions/0090`` gives the reasons and the failure modes.

```
worker process                          owner process
RemoteStore -- Connection --socket-- SharedStore -- RocksStore
     |                                                  |
  Replica ------------------- SSTs --------------------+
```
"""

from coregw.store.workers.owner import SharedStore, share_store
from coregw.store.workers.remote import RemotePayloadWriter, RemoteStore, open_remote

__all__ = ["RemotePayloadWriter", "RemoteStore", "SharedStore", "open_remote", "share_store"]
