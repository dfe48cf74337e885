"""Maintenance of a whole store, on a running gateway or without one."""
