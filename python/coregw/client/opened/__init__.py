"""Open files: seekable and read-only, by what is needed of their payloads, each of which is verified."""
