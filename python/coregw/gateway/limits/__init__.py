"""What one client may take of connections, memory and slots, so that no client keeps the others out."""
