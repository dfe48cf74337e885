"""Reader of RocksDB's files without RocksDB: every row that can still be parsed, whatever is damaged around it.

RocksDB opens a database as a whole: one malformed record of its MANIFEST, or one log that does not end as expected, and
nothing can be read. Its own repair drops whole files. This package reads each file by itself, block by block and record
by record, and says of each row whether the checksums around it hold. It only reads. ``docs/decisions/0120`` gives the
reasons.

```
tables.py   SST files: data blocks -> rows          logs.py      records of a log file, by their checksums
batches.py  records of a WAL -> rows                manifest.py  which files and families a database has
database.py all of them, merged as RocksDB would: the newest version of each key first
state.py    the rows that a store keeps about itself
```
"""
