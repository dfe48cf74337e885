"""When and where the engine works: thresholds (`placement`), turns in worker threads (`turns`), places (`queries`).

What it does for a caller that has left (`callers`) is dropped.
"""
