"""Scheduling of the engine's work: thresholds (`placement`), worker threads (`pool`), slots for queries (`queries`).

What it does for a caller that has left (`callers`) is dropped.
"""
