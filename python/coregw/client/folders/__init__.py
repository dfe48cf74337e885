"""Whole folders: add one to a gateway, and restore it from one. Built on `AsyncClient`."""
