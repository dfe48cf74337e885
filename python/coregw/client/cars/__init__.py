"""CARs on their way: with many payloads as they are received, and in parts as they are sent."""
