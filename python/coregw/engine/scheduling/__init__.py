"""When and where the engine works: thresholds (`placement`), turns in worker threads (`turns`), places (`queries`)."""
