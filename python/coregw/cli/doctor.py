"""``coregw doctor`` and ``coregw status``: whether the installation, the settings and the gateway work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from click.exceptions import Exit

from coregw.cli.common import counted, json_option, printable
from coregw.cli.control import data_option, require_control
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client_settings, gateway_option
from coregw.cli.progress import print_result
from coregw.cli.serve import known_variables, unknown_variables
from coregw.errors import CoregwError
from coregw.extras import EXTRAS
from coregw.text import duration

__all__ = ["doctor_command", "status_command"]

_STEPS = {
    "Connection refused": "start one with coregw serve, or give the address of another with --gateway",
    "no route has the path": "give the address for clients with --gateway: a management address serves no data",
    "resolve proxy": "check the name in --proxy, COREGW_PROXY or https_proxy",
    "resolve host": "check the name in --gateway or COREGW_GATEWAY",
    "wrong version number": "it speaks no TLS at this port: try http:// instead of https://",
    "certificate": "if its authority is your own, give that with --ca-cert",
    "without an error document": "check the address in --gateway or COREGW_GATEWAY",
    "bearer token": "give the token in COREGW_BEARER_TOKEN",
}
"""What a person can do, by what the message of a failure has in it."""

_MIN_FILES = 1024


class Finding(NamedTuple):
    """What one check says.

    Attributes:
        check: What was looked at.
        state: ``ok``, ``warning`` or ``error``.
        about: What was found, and what to do if it is not well.
    """

    check: str
    state: str
    about: str


@click.command("doctor", short_help="Check the installation, the settings and the gateway.")
@json_option
@gateway_option
def doctor_command(as_json: bool, gateway: GatewayChoice) -> None:
    """Check this installation, its environment variables, the user's files, and whether the gateway answers.

    Nothing is changed or stored. The exit code is 1 if something does not work; warnings alone do not count.
    """
    findings: list[Finding] = []
    for check in (_installation, _variables, _files, _limits):
        findings += check()
    findings += _gateway(gateway)
    if as_json:
        print_json([each._asdict() for each in findings])
    else:
        for each in findings:
            click.echo(f"{each.state:<7}  {each.check:<13}  {each.about}")
    if any(each.state == "error" for each in findings):
        raise Exit(1)


def _installation() -> Iterator[Finding]:
    from importlib.util import find_spec

    import coregw
    from coregw import _core

    version = f"coregw {coregw.__version__}, Python {sys.version.split()[0]}, {sys.platform}"
    if _core.__version__ != coregw.__version__:
        yield Finding("installation", "error", f"{version}: the extension is {_core.__version__}: install it again")
    else:
        yield Finding("installation", "ok", version)
    missing = [extra for extra, needed in EXTRAS.items() if any(find_spec(name) is None for name in needed)]
    present = [extra for extra in EXTRAS if extra not in missing]
    about = f"installed: {', '.join(present)}"
    if missing:
        about += f"; not installed: {', '.join(missing)}"
    yield Finding("extras", "ok", about)


def _variables() -> Iterator[Finding]:
    """Find variables that nothing reads, which are most often misspelt."""
    settings: list[str] = []
    malformed: list[Finding] = []
    try:
        from coregw.gateway.settings import Settings

        settings = [variable for variable, _, _ in Settings.describe()]
        Settings.load()
    except ModuleNotFoundError:  # without the extra "server"
        pass
    except CoregwError as error:
        malformed.append(Finding("settings", "error", printable(error.message)))
    unknown = unknown_variables(settings)
    yield from (Finding("variables", "warning", about) for about in unknown)
    if not unknown:
        known = known_variables(settings)
        used = sum(1 for name in os.environ if name in known)
        yield Finding("variables", "ok", f"{used} set, all of them known")
    yield from malformed


def _files() -> Iterator[Finding]:
    """Check the files of the user: the trust store, and the caches of `add` and `get`."""
    from coregw.trust import TrustStore

    try:
        store = TrustStore()
        count = len(store.names())
        yield Finding("trust store", "ok", f"{counted(count, 'name')} in {store.path}")
    except (CoregwError, OSError) as error:
        yield Finding("trust store", "error", printable(str(error)))


def _limits() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    state = "ok" if hard == resource.RLIM_INFINITY or hard >= _MIN_FILES else "warning"
    yield Finding("open files", state, f"{soft:,} allowed, {hard:,} at most (ulimit -n)")


def _gateway(gateway: GatewayChoice) -> Iterator[Finding]:
    """Ask each gateway of the command for a payload: whether it holds it does not matter."""
    import dataclasses

    from coregw import payload_cid
    from coregw.client import Client
    from coregw.client.transport.gateways import Address
    from coregw.errors import PayloadNotFound

    settings = dataclasses.replace(client_settings(), attempts=1)
    for address in gateway.addresses:
        try:
            shown = Address.parse(address).shown
            start = perf_counter()
            with Client(address, settings, gateway.connection()) as opened, suppress(PayloadNotFound):
                opened.get_payload(payload_cid(b"coregw doctor"))
            yield Finding("gateway", "ok", f"{shown} answers in {1000 * (perf_counter() - start):.0f} ms")
        except CoregwError as error:
            why = error.message.partition(": ")[2] or error.message  # without what was asked for
            yield Finding("gateway", "error", f"{printable(why)}; {_step(why)}")


def _step(why: str) -> str:
    """Return what a person can do about a gateway that does not answer."""
    return next((step for part, step in _STEPS.items() if part in why), "give the address of another with --gateway")


@click.command("status")
@data_option
@json_option
def status_command(data: Path, as_json: bool) -> None:
    """Show what the gateway that runs on a data directory is doing.

    Prints its version, process and addresses, whether its store works, and the jobs in progress.
    """
    with require_control(data) as control:
        status = control.get("status")
    print_result(status if as_json else _for_people(status), as_json=as_json)


def _for_people(status: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "version": status["version"],
        "pid": str(status["pid"]),
        "running for": duration(status["seconds"]),
        "data": status["data"],
        "store": status.get("store"),
        "incarnation": status.get("incarnation"),
        "clients at": status.get("urls", []),  # a gateway that was started before an update does not say
        "management at": status["addresses"],
    }
    return shown | {name: status[name] for name in ("healthy", "jobs")}
