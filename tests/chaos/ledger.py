"""What was asked of a gateway, what of it was acknowledged, and a check of a gateway against both."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx2

import serving
from coregw.client import Client
from coregw.client.settings import ClientSettings
from coregw.errors import CoregwError, NotFound

SCOPE = "/admin/v1/scopes/chaos/roots"
AUTHORIZATION = {"authorization": f"Bearer {serving.ADMIN_TOKEN}"}

_BATCH = 1000

T = TypeVar("T")


def cid_of(data: bytes) -> str:
    """The CID of a raw payload, computed without coregw."""
    binary = b"\x01\x55\x12\x20" + hashlib.sha256(data).digest()
    return "b" + base64.b32encode(binary).decode().lower().rstrip("=")


@dataclass
class Entry(Generic[T]):
    """Something that was asked for; `acknowledged` is when the answer arrived, by the ledger's clock."""

    value: T
    acknowledged: int | None = None


@dataclass
class Ledger:
    """Everything asked of one store, by any number of threads."""

    clock: Callable[[], int] = lambda: 0
    payloads: dict[str, Entry[int]] = field(default_factory=dict)
    """CID -> size."""
    roots: dict[str, Entry[dict[str, str]]] = field(default_factory=dict)
    """Root -> its paths and targets."""
    published: dict[str, list[Entry[tuple[int | None, str]]]] = field(default_factory=dict)
    """Name -> (revision, None before it is known, and root) of each publication."""
    false: list[str] = field(default_factory=list)
    """Answers that contradict what was asked."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, entries: Iterable[Entry[T]]) -> None:
        """Note that the answer for these entries has arrived."""
        now = self.clock()
        with self.lock:
            for entry in entries:
                entry.acknowledged = now

    def acknowledged(self) -> int:
        """The number of acknowledged writes."""
        return sum(entry.acknowledged is not None for entry in self._entries())

    def settle(self) -> None:
        """Start another clock: what is acknowledged now is acknowledged at its first moment."""
        for entry in self._entries():
            if entry.acknowledged is not None:
                entry.acknowledged = 0

    def _entries(self) -> list[Entry[Any]]:
        publications = [entry for entries in self.published.values() for entry in entries]
        return [*self.payloads.values(), *self.roots.values(), *publications]


@dataclass
class Verdict:
    """What a check found."""

    checked: int = 0
    lost: list[str] = field(default_factory=list)
    """Acknowledged, and answered with a plain "not found"."""
    wrong: list[str] = field(default_factory=list)
    """Other bytes than were stored, half of something, or a contradiction."""
    unreadable: list[str] = field(default_factory=list)
    """Acknowledged, and answered with an error of the gateway."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.wrong or self.unreadable)

    def add(self, other: Verdict) -> None:
        self.checked += other.checked
        self.lost += other.lost
        self.wrong += other.wrong
        self.unreadable += other.unreadable

    def figures(self) -> dict[str, int]:
        return {
            "checked": self.checked,
            "lost": len(self.lost),
            "wrong": len(self.wrong),
            "unreadable": len(self.unreadable),
        }

    def examples(self) -> list[str]:
        """A few of the findings, for a person."""
        return [*self.lost[:3], *self.wrong[:3], *self.unreadable[:3]]


def check(url: str, ledger: Ledger, rng: random.Random, *, moment: float = float("inf"), sample: int = 100) -> Verdict:
    """Compare a gateway with a ledger.

    What was acknowledged by `moment` must be there. Anything else may be missing, but if it is there, it must be whole.

    Args:
        url: The gateway.
        ledger: What was asked; nothing may be asking it now.
        rng: Chooses the sample.
        moment: A time of the ledger's clock.
        sample: How many payloads and roots are read in full; the others are only looked up.
    """
    return _Check(url, ledger, rng, moment, sample).run()


_REPEATS = 10


class _Check:
    def __init__(self, url: str, ledger: Ledger, rng: random.Random, moment: float, sample: int) -> None:
        self._url = url
        self._ledger = ledger
        self._rng = rng
        self._moment = moment
        self._sample = sample
        self._verdict = Verdict()
        self._repeats = _REPEATS

    def run(self) -> Verdict:
        with httpx2.Client(base_url=self._url, timeout=60) as self._http:
            self._check_payloads()
            with Client(self._url, ClientSettings(attempts=1)) as self._client:
                self._check_roots()
            self._check_records()
        return self._verdict

    def _asked(self, method: str, path: str, **options: Any) -> httpx2.Response:  # noqa: ANN401 - of httpx
        """Ask the gateway, and once more after a second whenever it asks to try again later, a few times in all."""
        answer = self._http.request(method, path, **options)
        while answer.status_code == 503 and self._repeats:
            self._repeats -= 1
            time.sleep(1)
            answer = self._http.request(method, path, **options)
        return answer

    def _is_due(self, entry: Entry[T]) -> bool:
        return entry.acknowledged is not None and entry.acknowledged <= self._moment

    def _chosen(self, names: Iterable[str]) -> list[str]:
        every = list(names)
        return self._rng.sample(every, min(self._sample, len(every)))

    def _missing(self, what: str, entry: Entry[T]) -> None:
        if self._is_due(entry):
            self._verdict.lost.append(what)

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _check_payloads(self) -> None:
        payloads = self._ledger.payloads
        cids = list(payloads)
        present: set[str] = set()
        for start in range(0, len(cids), _BATCH):
            asked = cids[start : start + _BATCH]
            body = {"profile": "cas.has-batch/v0alpha1", "cids": asked}
            answer = self._asked("POST", "/v1/cas/has", json=body)
            self._verdict.checked += len(asked)
            if answer.status_code != 200:
                self._verdict.unreadable.append(f"has-batch: {answer.status_code} {answer.text[:200]}")
                present |= set(asked)
                continue
            present |= {each["cid"] for each in answer.json()["results"] if each["present"]}
        for cid in payloads.keys() - present:
            self._missing(f"payload {cid}", payloads[cid])
        for cid in self._chosen(sorted(present)):
            try:
                answer = self._asked("GET", f"/v1/cas/{cid}")
            except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:  # a chunk after the first cannot be read
                self._verdict.unreadable.append(f"payload {cid}: {error}")
                continue
            if answer.status_code == 200 and cid_of(answer.content) != cid:
                self._verdict.wrong.append(f"payload {cid}: {len(answer.content)} other bytes")
            elif answer.status_code >= 500:
                self._verdict.unreadable.append(f"payload {cid}: {answer.status_code}")
            elif answer.status_code != 200:
                self._verdict.wrong.append(f"payload {cid}: said to be present, then {answer.status_code}")

    # --- roots --------------------------------------------------------------------------------------------------------

    def _check_roots(self) -> None:
        roots = self._ledger.roots
        in_full = set(self._chosen(roots))
        for root, entry in roots.items():
            self._verdict.checked += 1
            arcs = entry.value
            try:
                if root in in_full:
                    found = {"/".join(leaf.segments): str(leaf.target) for leaf in self._client.entries(root)}
                else:
                    key = next(iter(arcs))
                    found = {**arcs, key: str(self._client.read_key(root, key))}
            except NotFound:
                self._missing(f"root {root}", entry)
            except CoregwError as error:
                said = f"root {root}: {type(error).__name__}: {error}"
                is_told = error.code in {"internal", "unavailable"}
                (self._verdict.unreadable if is_told else self._verdict.wrong).append(said)
            else:
                if found != arcs:
                    self._verdict.wrong.append(f"root {root}: {len(found)} entries that are not its {len(arcs)}")

    # --- published records --------------------------------------------------------------------------------------------

    def _check_records(self) -> None:
        for name, entries in self._ledger.published.items():
            self._verdict.checked += len(entries)
            revisions = self._history(name)
            if revisions is None:
                continue
            if sorted(revisions) != list(range(1, len(revisions) + 1)):
                self._verdict.wrong.append(f"record {name}: revisions {sorted(revisions)}")
            asked = {root for _, root in (entry.value for entry in entries)}
            for revision, root in revisions.items():
                if root not in asked:
                    self._verdict.wrong.append(f"record {name}: revision {revision} is {root}, which nobody published")
            twice = Counter(revisions.values()) - Counter(root for _, root in (entry.value for entry in entries))
            self._verdict.wrong += [f"record {name}: {root} was published more often than asked" for root in twice]
            for entry in entries:
                revision, root = entry.value
                if revision is None or not self._is_due(entry):
                    continue
                if revision not in revisions:
                    self._verdict.lost.append(f"record {name}: revision {revision}")
                elif revisions[revision] != root:
                    self._verdict.wrong.append(f"record {name}: revision {revision} is not the acknowledged root")

    def _history(self, name: str) -> dict[int, str] | None:
        """The root of each revision; None if they cannot be read."""
        found: dict[int, str] = {}
        query = ""
        while True:
            answer = self._asked("GET", f"{SCOPE}/{name}/history{query}", headers=AUTHORIZATION)
            if answer.status_code == 404:
                return found
            if answer.status_code != 200:
                self._verdict.unreadable.append(f"record {name}: {answer.status_code}")
                return None
            page = answer.json()
            found |= {each["revision"]: each["root"] for each in page["records"]}
            if not page.get("next"):
                return found
            query = f"?after={page['next']}"
