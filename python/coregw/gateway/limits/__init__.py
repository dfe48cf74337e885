"""Limits on one client's share of connections, memory and slots, so that no client keeps the others out."""
