"""Drivers of a client's operations: their calls are exchanged with a gateway, and retried."""
