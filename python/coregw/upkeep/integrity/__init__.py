"""Damage to a store: finding it, copying what is readable, and restoring what is not.

```
check   -> pages, payloads, records     what is damaged, missing or affected, by CID (`CheckResult`)
repair  -> check, copy                  a new database with everything readable, and notes of what is lost
heal    -> what is lost, from elsewhere, checked against its CID
salvage -> what RocksDB can read of a damaged database, in place
online  -> check and repair of a store that several gateways share, by its calls
```

The others read a database's files without RocksDB (`coregw.store.rocksdb.raw`), since it reads nothing of a database of
which one file is malformed. ``docs/decisions/0120`` gives the reasons.
"""
