"""``coregw heal``: restore what a store has lost, from another gateway or a CAR file."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from click.exceptions import Exit

from coregw.cli.common import counted, json_option
from coregw.cli.control import data_option, find_control
from coregw.cli.framework import click, print_json
from coregw.cli.gateways import GatewayChoice, client_settings, side_option
from coregw.cli.main import EXIT_DAMAGED, EXIT_FAILURE
from coregw.cli.progress import shown_progress
from coregw.errors import CoregwError, InvalidInput, RootNotFound, Unavailable
from coregw.text import display_name, without_surrogates

if TYPE_CHECKING:
    from typing import TextIO

    from coregw.cli.control import BlockingStore
    from coregw.client import Client
    from coregw.messages.management import Progress
    from coregw.store import Store
    from coregw.upkeep.heal import Wanted

__all__ = ["Fetch", "heal_command"]

TOKEN: Final = "COREGW_SOURCE_TOKEN"  # noqa: S105 - the name of a variable

Show = Callable[[dict[str, Any]], None]


@click.command("heal")
@side_option("from", "source", "URL|FILE", "Another gateway, or a CAR file.")
@click.option(
    "--records",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help=f"Also restore the published records of a scope, as the other gateway has them; {TOKEN} is its admin token.",
)
@click.option(
    "--named",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="File of CIDs that the store should hold, one per line, such as those that its clients know.",
)
@data_option
@json_option
def heal_command(
    source: GatewayChoice, scopes: tuple[str, ...], named: TextIO | None, data: Path, as_json: bool
) -> None:
    """Restore what a store has lost from another gateway or a CAR file, checked against its CIDs.

    Restores what "coregw fsck" lists as missing: roots that lack pages, and payloads that a repair could not copy. From
    a gateway, it also fetches whatever else a tree, a published record, a pin or --named names and the store does not
    hold, as far as that gateway holds it. Published records have no CID, so they are restored only from a gateway that
    you trust with them (--records).

    Works whether or not a gateway runs on the store. Exit codes: 0 nothing is missing; 1 FILE was refused;
    4 something is still missing.
    """
    import msgspec

    from coregw.cli.control import is_shared, shared_store
    from coregw.upkeep.offline import as_owner

    with ExitStack() as stack:
        control = find_control(data)
        if control is not None:
            with control:
                pass
        elif not is_shared():
            stack.enter_context(as_owner(data))
        show = stack.enter_context(shown_progress("heal", as_json=as_json))
        shared = stack.enter_context(shared_store(data)) if is_shared() else None
        heal = _Heal(data, shared, source, show)
        cids = [] if named is None else [line.strip() for line in named if line.strip()]
        if heal.is_gateway:
            heal.from_gateway(scopes, cids)
        elif scopes or cids:
            raise InvalidInput("--records and --named need a gateway as the source")
        else:
            heal.from_file()
        left = heal.missing()
    result = {
        "restored": heal.restored,
        "missing": msgspec.to_builtins(left),
        "absent": len(heal.absent - set(cids)),
        "refused": heal.refused + [f"{cid}: the other gateway does not hold it" for cid in cids if cid in heal.absent],
        "conflicts": heal.conflicts,
    }
    if as_json:
        print_json(result)
    else:
        _show(result)
    is_whole = not (left.roots or left.payloads or heal.absent & set(cids) or heal.conflicts)
    if not is_whole:
        raise Exit(EXIT_DAMAGED)
    if heal.refused and not heal.is_gateway:
        raise Exit(EXIT_FAILURE)


class _Heal:
    """One run of the command: what it restored so far, and what it could not."""

    def __init__(self, data: Path, shared: BlockingStore | None, source: GatewayChoice, show: Show) -> None:
        self._data = data
        self._shared = shared
        self._source = source.only_address
        self._connection = source.connection
        self.is_gateway = self._source.startswith(("http://", "https://"))
        self.show = show
        self.restored: dict[str, list[str]] = {"roots": [], "payloads": [], "records": []}
        self.refused: list[str] = []
        self.absent: set[str] = set()
        self.conflicts: list[str] = []

    def missing(self) -> Wanted:
        """Check the store, and return what it has lost."""
        from coregw.upkeep.check import check_online
        from coregw.upkeep.file_check import check_database
        from coregw.upkeep.heal import wanted
        from coregw.upkeep.repair import readable

        if (shared := self._shared) is not None:
            return wanted(shared.call(check_online(shared.store, self._report)))
        with readable(self._data) as database:
            return wanted(check_database(database, self._report))

    def from_file(self) -> None:
        """Restore what a CAR has."""
        from coregw.upkeep.heal import CAR_SUFFIX

        self.missing()  # raises if the store has to be repaired first
        with _directory(self._data) as directory:
            name = without_surrogates(Path(self._source).stem) + CAR_SUFFIX
            shutil.copyfile(self._source, directory / name)
            self._restore(directory)
        given = display_name(Path(self._source))
        self.refused = [f"{given}: {reason.removeprefix(f'{name}: ')}" for reason in self.refused]

    def from_gateway(self, scopes: tuple[str, ...], named: list[str]) -> None:
        """Restore what is lost, then what something names: the trees that come back name more."""
        from coregw.client import Client

        missing = self.missing()
        with Client(self._source, client_settings(), self._connection()) as client:
            with _directory(self._data) as directory:
                fetch = Fetch(client, directory, self.show)
                fetch.wanted(missing)
                self._note(fetch)
                self._restore(directory)
            with _directory(self._data) as directory:
                fetch = Fetch(client, directory, self.show)
                self._fetch_named(client, fetch, scopes, named)
                self._note(fetch)
                self._restore(directory)

    def _fetch_named(self, client: Client, fetch: Fetch, scopes: tuple[str, ...], named: list[str]) -> None:
        from coregw.store.rocksdb.salvage import RawDatabase
        from coregw.upkeep.check import StoreCheck, absent_targets
        from coregw.upkeep.file_check import FileCheck
        from coregw.upkeep.inventory import StoreInventory
        from coregw.upkeep.repair import readable

        token = os.environ.get(TOKEN, "")
        if scopes and not token:
            raise InvalidInput(f"--records needs the admin token of {client.base_url} in {TOKEN}")
        roots = [root for scope in scopes for root in fetch.records(scope, token)]
        if (shared := self._shared) is not None:
            inventory = StoreInventory(shared.store, loop=shared.loop)
            fetch.if_held(absent_targets(StoreCheck(inventory, self._report), [*named, *roots]))
            return
        with readable(self._data) as directory, RawDatabase(directory) as database:
            fetch.if_held(absent_targets(FileCheck(database, self._report), [*named, *roots]))

    def _note(self, fetch: Fetch) -> None:
        self.refused += fetch.refused
        self.absent |= fetch.absent

    def _restore(self, directory: Path) -> None:
        """Store what was fetched, by way of the gateway that runs on the store, or without one."""
        if not any(directory.iterdir()):
            return
        restored = _restored(self._data, self._shared is not None, directory, self.show)
        for kind in self.restored:
            self.restored[kind] += restored[kind]
        self.refused += restored["refused"]
        self.conflicts += restored["conflicts"]

    def _report(self, progress: Progress) -> None:
        import msgspec

        self.show(msgspec.to_builtins(progress))


@contextmanager
def _directory(data: Path) -> Iterator[Path]:
    """Make a directory for what is fetched, in the data directory, where the gateway can read it."""
    from coregw.upkeep.repair import HEALING, fresh_directory

    directory = fresh_directory(data, HEALING)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _restored(data: Path, is_shared: bool, directory: Path, show: Show) -> dict[str, Any]:
    import msgspec

    def report(progress: Progress) -> None:
        show(msgspec.to_builtins(progress))

    from coregw.gateway.settings import Settings
    from coregw.gateway.stores import open_shared
    from coregw.store.rocksdb import open_store
    from coregw.upkeep.heal import restore_here

    built: dict[str, Any]
    if is_shared:
        opening: Awaitable[Store] = open_shared(Settings.load(strict=False, data=data))
    elif (control := find_control(data)) is not None:
        with control:
            return control.run("heal", {"directory": directory.name}, show)
    else:
        opening = open_store(data)
    built = msgspec.to_builtins(asyncio.run(restore_here(opening, directory, report)))
    return built


def _show(result: dict[str, Any]) -> None:
    for kind, names in result["restored"].items():
        for name in names:
            click.echo(f"restored: {'records of ' if kind == 'records' else ''}{name}")
    for kind in ("roots", "payloads"):
        for cid in result["missing"][kind]:
            click.echo(f"missing: {cid}")
    for reason in (*result["refused"], *result["conflicts"]):
        click.echo(f"refused: {reason}")
    if result["absent"]:
        click.echo(f"named somewhere, but held neither here nor by the source: {counted(result['absent'], 'object')}")
    missing = len(result["missing"]["roots"]) + len(result["missing"]["payloads"])
    click.echo("nothing is missing" if not missing else f"{counted(missing, 'object')} missing")


_AT_ONCE: Final = 1000


class Fetch:
    """Fetches from one gateway; everything with a CID is verified by the client.

    Args:
        client: The gateway's client.
        directory: Where the files go.
        show: Called with the progress.

    Attributes:
        refused: Why something was not fetched.
        absent: The CIDs that the gateway does not hold either.
    """

    def __init__(self, client: Client, directory: Path, show: Show) -> None:
        self._client = client
        self._directory = directory
        self._show = show
        self._count = 0
        self.refused: list[str] = []
        self.absent: set[str] = set()

    def wanted(self, missing: Wanted) -> None:
        """Fetch what a check of the store found to be lost. Raises `Unavailable`."""
        for cid in missing.roots:
            self._root(cid)
        for cid in missing.payloads:
            self._payload(cid)

    def if_held(self, cids: Iterable[str]) -> None:
        """Fetch what the gateway holds of `cids`, and note the others in `absent`. Raises `Unavailable`."""
        from coregw._core import Cid

        for some in _batches(cids):
            payloads = [cid for cid in some if Cid(cid).kind == "cas"]
            for cid, is_held in zip(payloads, self._client.has_payloads(payloads), strict=True):
                if is_held:
                    self._payload(cid)
                else:
                    self.absent.add(cid)
            for cid in some:
                if Cid(cid).kind != "cas":
                    self._root(cid)

    def records(self, scope: str, token: str) -> list[str]:
        """Fetch the published records of a scope, and return their roots. Raises `Unavailable`, `Unauthorized`."""
        import msgspec

        from coregw.durability import reported_as
        from coregw.upkeep.heal import RECORDS_FILE

        kept = self._directory / RECORDS_FILE
        roots: dict[str, None] = {}
        with reported_as(kept), kept.open("ab") as file:
            for record in self._client.history_of_scope(scope, token):
                file.write(msgspec.json.encode(record) + b"\n")
                roots[record.root] = None
                self._tell("records")
        return list(roots)

    def _root(self, cid: str) -> None:
        from coregw.upkeep.heal import CAR_SUFFIX

        self._tell("objects")
        try:
            self._client.export_car(cid, self._directory / f"{cid}{CAR_SUFFIX}", payloads=True)
        except RootNotFound:
            self.absent.add(cid)
        except Unavailable:
            raise
        except CoregwError as error:
            self.refused.append(f"{cid}: {error.message}")

    def _payload(self, cid: str) -> None:
        self._tell("objects")
        try:
            self._client.save_payload(cid, self._directory / cid)
        except Unavailable:
            raise
        except CoregwError as error:
            self.refused.append(f"{cid}: {error.message}")

    def _tell(self, unit: str) -> None:
        self._count += 1
        self._show({"step": "fetching", "done": self._count, "total": None, "unit": unit})


def _batches(cids: Iterable[str]) -> Iterator[Sequence[str]]:
    rest = iter(cids)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
