"""Folders of this machine: surveys of their files, and their roots, computed offline."""
