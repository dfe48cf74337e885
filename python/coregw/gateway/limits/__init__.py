"""What one client may take of connections, memory and places, so that no client keeps the others out."""
