"""Commands that copy whole roots: to a file and from one, to a static tree, and from one gateway to another."""
