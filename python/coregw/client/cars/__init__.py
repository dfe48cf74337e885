"""CARs in transit: with many payloads or a whole tree as they are received, and in parts as they are sent."""
