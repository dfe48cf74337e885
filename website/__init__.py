"""The site of the documentation: its pages, the reference that is made of code, and the build."""
