"""``coregw serve``, its options, and the variables of the environment that it reads."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coregw.cli.common import printable
from coregw.cli.framework import LOCAL_PATH, click, ending_signals, print_json

if TYPE_CHECKING:
    from coregw.gateway.settings import Settings

__all__ = ["announce_as_json", "handle_hangup", "in_place_of", "known_variables", "serve_command", "unknown_variables"]


def _show(settings: Settings, origins: Mapping[str, str]) -> None:
    """Print all settings as a configuration file, with what nobody has set as comments, and the limits that follow."""
    import dataclasses

    from coregw.gateway.limits.machine import Limits
    from coregw.gateway.settings import shown

    click.echo("# Each setting is also an environment variable: COREGW_ and its name in capitals.")
    for variable, _, about in settings.describe():
        name = variable.removeprefix("COREGW_").lower()
        line = f"{name} = {settings.toml(name)}" + (f"  # {origins[name]}" if name in origins else "")
        click.echo(f"\n# {about}\n" + (line if name in origins else f"# {line}"))
    click.echo("\n# What follows from them:")
    limits = Limits.of(settings)
    for each in dataclasses.fields(limits):
        click.echo(f"# {each.name}: {shown(each.name, getattr(limits, each.name))}")


def _show_json(settings: Settings, origins: Mapping[str, str]) -> None:
    """Print all settings as a JSON object: of each its value, where that is from, and what it is."""
    import tomllib

    shown = {}
    for variable, _, about in settings.describe():
        name = variable.removeprefix("COREGW_").lower()
        value = tomllib.loads(f"value = {settings.toml(name)}")["value"]
        shown[name] = {"value": value, "origin": origins.get(name), "about": about}
    print_json(shown)


def _chosen_settings(
    *,
    config: Path | None,
    assignments: tuple[str, ...],
    show_settings: bool,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    **short: object,
) -> Settings:
    """Return the settings of the configuration file and the environment, overridden by the options.

    Args:
        config: The configuration file; that of the environment if None.
        assignments: Settings as ``NAME=VALUE``.
        show_settings: Whether to print the settings and exit instead.
        quiet: Whether only errors are logged.
        verbose: Whether each request is logged.
        as_json: Whether log lines, and the settings if they are printed, are JSON.
        short: Settings that have options of their own, by name; None if the option is not given.
    """
    from coregw.gateway.settings import CONFIG_VARIABLE, Settings, about_unknown

    known = Settings.__struct_fields__
    short |= {"log_level": "error"} if quiet else {}
    short |= {"access_log": "true"} if verbose else {}
    short |= {"log_format": "json"} if as_json else {}
    for text in assignments:
        name, equals, value = text.partition("=")
        field = name.strip().lower().removeprefix("coregw_")
        if not equals or field not in known:
            about = about_unknown(field) if equals else ""
            raise click.BadParameter(
                f"{text!r}: expected NAME=VALUE with a name that --settings lists{about}", param_hint="--set"
            )
        short[field] = value
    environ = {**os.environ} if config is None else {**os.environ, CONFIG_VARIABLE: str(config)}
    given = Settings.given(environ, strict=True, **short)
    settings = Settings(**{name: value for name, (value, _) in given.items()})
    if show_settings:
        origins = {name: origin for name, (_, origin) in given.items()}
        if as_json:
            _show_json(settings, origins)
        else:
            _show(settings, origins)
        raise SystemExit(0)
    return settings


def _warn_of_unknown_variables(settings: Settings) -> None:
    """Log what nothing reads: a setting that is misspelt in the environment would have no effect."""
    import logging

    from coregw.gateway.logs import log_to_stderr

    try:
        found = unknown_variables([variable for variable, _, _ in settings.describe()])
    except ModuleNotFoundError:
        return
    log_to_stderr(settings)
    for about in found:
        logging.getLogger("coregw.settings").warning("%s", about)


def announce_as_json(url: str) -> None:
    """Print the address of a service as a JSON object."""
    print_json({"url": url})


def handle_hangup() -> None:
    """Let SIGHUP end the service as SIGTERM does if its terminal is gone; otherwise it is logged, and changes nothing.

    Settings and tokens are read once, at the start; a gateway by TLS reads its certificate again (`_reload_on_hangup`).
    A SIGHUP that is ignored, as by ``nohup``, stays so.
    """
    hangup = next((each for each in ending_signals() if each is not signal.SIGTERM), None)
    if hangup is not None:
        signal.signal(hangup, _end_with_the_terminal if _has_terminal() else _keep_running)


def _reload_on_hangup(reload: Callable[[], None]) -> None:
    """Let SIGHUP read the certificate's files again, if it would change nothing otherwise."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is _keep_running:
        signal.signal(hangup, lambda *_: reload())


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end_with_the_terminal(*_: object) -> None:
    signal.raise_signal(signal.SIGTERM)


def _keep_running(*_: object) -> None:
    import logging

    logging.getLogger("coregw.settings").warning("SIGHUP reloads nothing: restart the service to change its settings")


@click.command("serve")
@click.option("--data", type=LOCAL_PATH, help="Folder of the store; created if missing.")
@click.option(
    "--config",
    type=LOCAL_PATH,
    help="TOML file of settings, like COREGW_CONFIG; variables and options override it.",
)
@click.option("--host", help="Address to listen on; loopback by default.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the address as JSON, and log JSON lines, as does log_format=json.",
)
@click.option("-q", "--quiet", is_flag=True, help="Log errors only, like log_level=error.")
@click.option("-v", "--verbose", is_flag=True, help="Log each request, like access_log=true.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Any other setting; repeatable.")
@click.option(
    "--settings",
    "show_settings",
    is_flag=True,
    help="Show all settings as a configuration file, with the source of each, and exit.",
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Take over the bucket of a PostgreSQL store from an earlier incarnation, which no gateway uses any more.",
)
def serve_command(
    adopt: bool,
    assignments: tuple[str, ...],
    as_json: bool,
    **options: Any,  # noqa: ANN401 - those of `_chosen_settings`
) -> None:
    """Run a gateway on a RocksDB store, and print its address.

    Settings come from a configuration file; COREGW_* environment variables override it, and options override both. On
    SIGINT or SIGTERM, or when its terminal is closed, requests in flight finish, and the store is closed.
    """
    gc.disable()  # loading modules makes no garbage; `run` enables it when it serves
    settings = _chosen_settings(**options, assignments=assignments, as_json=as_json)
    if adopt:
        _adopt(settings)
    handle_hangup()
    from coregw.gateway import server  # fails where it cannot run, so before anything is logged

    _warn_of_unknown_variables(settings)
    server.run(settings, announce_as_json if as_json else server.announce, _reload_on_hangup)


def _adopt(settings: Settings) -> None:
    """Claim the bucket of a store in PostgreSQL for it. Raises a usage error if the store has none."""
    import asyncio

    from coregw.gateway.stores import open_shared

    if not settings.is_shared or settings.bucket == "none":
        raise click.UsageError("--adopt is for a store in PostgreSQL with a bucket")

    async def claim() -> None:
        await (await open_shared(settings, adopt=True)).close()

    asyncio.run(claim())


_OTHER_VARIABLES = (
    *("COREGW_GATEWAY", "COREGW_RETRY_SECONDS", "COREGW_DEBUG", "COREGW_CONFIG", "COREGW_TRUST"),
    *("COREGW_LOG_KEY", "COREGW_LOG_ORIGIN", "COREGW_LOG_POLICY"),
    *("COREGW_ADMIN_TOKEN", "COREGW_FROM_TOKEN", "COREGW_TO_TOKEN", "COREGW_SOURCE_TOKEN"),
)
"""Variables that are neither settings of a gateway nor of connections."""


def known_variables(settings: Iterable[str]) -> set[str]:
    """Return the names of all variables that this package reads, given those of the settings of a gateway."""
    from coregw.client.settings import SIDES, variables_of

    return {*_OTHER_VARIABLES, *settings}.union(*(variables_of(side).values() for side in ("", *SIDES)))


def unknown_variables(settings: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the environment that looks like one of this package and is not known.

    Raises:
        ModuleNotFoundError: There may be some, and the extra ``client`` is missing, which has variables of its own.
    """
    suspects = {name for name in os.environ if name.startswith("COREGW_")} - {*_OTHER_VARIABLES, *settings}
    if not suspects:  # loading the client takes a gateway time and memory
        return []
    known = known_variables(settings)
    return [_sentence(name, known) for name in sorted(suspects - known)]


def in_place_of(name: str) -> str | None:
    """Return what there is in place of a setting that there was once; None if there was none of this name."""
    try:
        from coregw.gateway.settings import REMOVED
    except ModuleNotFoundError:  # without the extra "server"
        return None
    return REMOVED.get(name.lower())


def _sentence(name: str, known: set[str]) -> str:
    removed = in_place_of(name.removeprefix("COREGW_"))
    if removed is not None:
        return f"nothing reads {name}: {removed}"
    similar = get_close_matches(name, known, n=1)
    return f"nothing reads {printable(name)}{f'; did you mean {similar[0]}?' if similar else ''}"
