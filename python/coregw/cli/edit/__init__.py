"""The commands that change a root, and print the new one."""
