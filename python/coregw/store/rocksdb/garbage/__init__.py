"""What RocksDB remembers for garbage collection: dates of roots and payloads, and the collection itself."""
