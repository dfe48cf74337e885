"""The parts of an edge beside its store: it passes writes on, if it may, and reads published names."""
