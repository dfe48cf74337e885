"""Commands that need no gateway."""
