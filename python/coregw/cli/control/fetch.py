"""Fetching of ``coregw heal``: from another gateway into files, from which the store restores what it has lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coregw.errors import CoregwError, RootNotFound, Unavailable

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.upkeep.integrity.heal import Wanted

__all__ = ["Fetch"]

_AT_ONCE: Final = 1000

Show = Callable[[dict[str, Any]], None]


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

        from coregw.upkeep.integrity.heal import RECORDS_FILE

        roots: dict[str, None] = {}
        with (self._directory / RECORDS_FILE).open("ab") as file:
            for record in self._client.history_of_scope(scope, token):
                file.write(msgspec.json.encode(record) + b"\n")
                roots[record.root] = None
                self._tell("records")
        return list(roots)

    def _root(self, cid: str) -> None:
        from coregw.upkeep.integrity.heal import CAR_SUFFIX

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
