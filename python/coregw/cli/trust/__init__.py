"""The commands about names: which roots are trusted, and what is published."""
