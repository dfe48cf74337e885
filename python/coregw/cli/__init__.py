"""The ``coregw`` command: `coregw.cli.main` is the group of its subcommands; the others hold one noun or verb each."""

from coregw.extras import missing_extra

try:
    import click.exceptions  # noqa: F401 - what every command needs, so that a missing extra is reported at once
except ModuleNotFoundError as error:
    raise missing_extra(error, "the coregw command", "cli") from error
