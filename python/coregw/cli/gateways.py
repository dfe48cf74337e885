"""The gateways of a command: ``--gateway`` and the options of connections, and clients of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coregw.cli.framework import click, is_quiet
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from coregw.client import AsyncClient, Client, ClientSettings, ConnectionOptions

__all__ = ["GatewayChoice", "async_client", "client", "client_settings", "gateway_option", "side_option"]

_DEFAULT_GATEWAY = "http://127.0.0.1:8080"
"""`coregw.client.settings.DEFAULT_GATEWAY`, repeated: importing it would import the HTTP client."""

_FILE_OPTIONS = {
    "ca_cert": "PEM file, or folder, of the only authorities to trust.",
    "client_cert": "PEM file with a certificate of this client.",
    "client_key": "PEM file with its key; COREGW_CLIENT_KEY_PASSWORD decrypts it.",
    "netrc": "File with users and passwords by host, in the format of .netrc.",
}

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class GatewayChoice:
    """The gateways of a command, and how they are reached.

    Attributes:
        addresses: Their addresses, the preferred one first.
        headers: Lines ``Name: value``.
        options: Options of `coregw.client.ConnectionOptions` as text.
        side: Whose variables apply: one of `coregw.client.settings.SIDES`, or nothing.
    """

    addresses: list[str]
    headers: list[str] = field(repr=False)
    options: dict[str, str | None] = field(repr=False)
    side: str = ""

    @property
    def only_address(self) -> str:
        """The address, for a command that reads from one gateway."""
        if len(self.addresses) > 1:
            raise InvalidInput("this command reads from one gateway: give one address")
        return self.addresses[0]

    def connection(self) -> ConnectionOptions:
        """Return how the gateways are reached. Raises `InvalidInput` if an option or variable is malformed."""
        from coregw.client import ConnectionOptions

        return ConnectionOptions.from_environment(self.options, self.headers, side=self.side)


def gateway_option(command: F) -> F:
    """Add the option ``--gateway URL`` and those of connections; the command gets a `GatewayChoice` as `gateway`."""

    @wraps(command)
    def chosen(*args: object, gateway: Sequence[str], **others: object) -> object:
        from coregw.client.transport.gateways import addresses_in

        given = gateway or [os.environ.get("COREGW_GATEWAY") or _DEFAULT_GATEWAY]
        addresses = [address for text in given for address in addresses_in(text)]
        return command(*args, gateway=_choice(addresses, "", others), **others)

    gateways = click.option(
        "--gateway",
        metavar="URL",
        multiple=True,
        help="Address of the gateway (repeatable: the next one is used if one fails). "
        f"[env var: COREGW_GATEWAY, separated by commas; default: {_DEFAULT_GATEWAY}]",
    )
    return cast("F", gateways(_with_connection_options(chosen, "")))


def side_option(side: str, parameter: str, metavar: str, about: str) -> Callable[[F], F]:
    """Add the option ``--from URL``, and as ``--from-header`` etc. those of its connections, for the side ``from``.

    Args:
        side: One of `coregw.client.settings.SIDES`.
        parameter: As what the command gets a `GatewayChoice`.
        metavar: What the option takes.
        about: The option's help.
    """

    def decorated(command: F) -> F:
        @wraps(command)
        def chosen(*args: object, **others: object) -> object:
            address = cast("str", others.pop(parameter))
            return command(*args, **{parameter: _choice([address], side, others)}, **others)

        named = click.option(f"--{side}", parameter, metavar=metavar, required=True, help=about)
        return cast("F", named(_with_connection_options(chosen, side)))

    return decorated


def _choice(addresses: list[str], side: str, given: dict[str, object]) -> GatewayChoice:
    """Return gateways with the options of connections, which are removed from `given`."""
    prefix = f"{side}_" if side else ""
    options = {name: cast("str | None", given.pop(prefix + name)) for name in (*_FILE_OPTIONS, "proxy")}
    return GatewayChoice(addresses, _header_lines(cast("Sequence[str]", given.pop(f"{prefix}header"))), options, side)


def _with_connection_options(command: Callable[..., object], side: str) -> Callable[..., object]:
    dashes, variables = (f"{side}-", f"COREGW_{side.upper()}_") if side else ("", "COREGW_")
    about_header = "A header of every request, Name: value, or a file with a line for each (repeatable)."
    about_header += f" [env var: {variables}HEADERS]"
    about_proxy = f"An http, https or socks5h proxy, or none. [env var: {variables}PROXY; default: https_proxy etc., "
    about_proxy += "none for loopback]"
    added = [
        click.option(f"--{dashes}header", metavar="LINE|@FILE", multiple=True, help=about_header),
        click.option(f"--{dashes}proxy", metavar="URL", help=about_proxy),
    ]
    for name, what in _FILE_OPTIONS.items():
        about = f"{what.replace('COREGW_', variables)} [env var: {variables}{name.upper()}]"
        file = click.Path(readable=False)  # for completion; who opens it reports what is wrong
        added.append(click.option(f"--{dashes}{name.replace('_', '-')}", type=file, metavar="FILE", help=about))
    for option in reversed(added):
        command = option(command)
    return command


def _header_lines(given: Sequence[str]) -> list[str]:
    """Return the lines of headers, with those of files in their places."""
    lines: list[str] = []
    for each in given:
        if each.startswith("@"):
            with open(each[1:], encoding="latin-1") as file:  # noqa: PTH123 - pathlib takes time to load
                lines += file.read(1 << 20).splitlines()
        else:
            lines.append(each)
    return lines


def client(gateway: GatewayChoice) -> Client:
    """Return a blocking client of the gateways."""
    from coregw.client import Client

    return Client(gateway.addresses, client_settings(), gateway.connection())


def async_client(gateway: GatewayChoice) -> AsyncClient:
    """Return an asyncio client of the gateways."""
    from coregw.client import AsyncClient

    return AsyncClient(gateway.addresses, client_settings(), gateway.connection())


def client_settings() -> ClientSettings:
    """Return the settings of a command's client: a gateway that restarts is waited for, which a line says."""
    import logging

    from coregw.client import ClientSettings

    level = logging.ERROR if is_quiet() else logging.WARNING
    logging.basicConfig(format="coregw: %(message)s", level=level)  # no effect after -v
    text = os.environ.get("COREGW_RETRY_SECONDS", "60")
    try:
        return ClientSettings(retry_seconds=float(text))
    except ValueError:
        raise InvalidInput(f"COREGW_RETRY_SECONDS: {text!r:.100} is not a number of seconds above 0") from None
