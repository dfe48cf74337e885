"""``python -m coregw`` is the command line."""

from coregw.cli import main

if __name__ == "__main__":
    main()
