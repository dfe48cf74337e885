"""Whole folders: survey one, add it to a gateway, and restore it from one. Built on `AsyncClient`."""
