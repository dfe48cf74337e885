"""What drives the operations of a client: their calls are exchanged with a gateway, and retried."""
