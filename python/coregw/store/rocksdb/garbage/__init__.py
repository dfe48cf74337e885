"""Garbage collection in RocksDB: dates of roots and payloads, and the collection itself."""
