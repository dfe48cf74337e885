"""What RocksDB remembers for the collection of garbage: dates of roots and payloads, and the collection itself."""
