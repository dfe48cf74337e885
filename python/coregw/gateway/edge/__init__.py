"""What an edge does beside reading objects through: it passes writes on, if it may, and reads published names."""
