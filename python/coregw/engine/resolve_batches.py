"""Resolving many paths of one root (protocol section 5, *batches*).

`ResolveBatch` is driven like one `Operation`: it runs all its resolves as far as they go, and asks for what all of them
wait for at once, so that a page is fetched once and parsed once however many paths lead through it. Does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from coregw._core import Cid, Operation, PageCache
from coregw.engine.items import check_count, of_item
from coregw.errors import InvalidInput, NotFound, TooLarge
from coregw.messages import Error, ResolveRequest, decode, encode
from coregw.messages.batches import MAX_BATCH_PATHS, ResolveBatchRequest

__all__ = ["BatchNeed", "ResolveBatch"]

_TURN: Final = 64
"""How many paths share one turn, and its budget."""


class BatchNeed(NamedTuple):
    """What a `ResolveBatch` waits for; as `coregw._core.Need`: exactly one of the three is set."""

    pages: list[bytes] | None = None
    roots: list[bytes] | None = None
    budget: bool = False


class _Path:
    """One path of a batch, on its way to its outcome."""

    __slots__ = ("operation", "outcome", "pages", "root")

    def __init__(self, operation: Operation) -> None:
        self.operation: Operation | None = operation
        self.outcome = b""
        self.pages: list[bytes] | None = None
        self.root: bytes | None = None


class ResolveBatch:
    """Resolves many paths of one root; run it as an `Operation`.

    Each outcome is what a resolve of that path alone would have answered.

    Args:
        cache: Where pages are found and kept.
        request: The JSON text of ``POST /v1/resolve/batch``.
        max_lookups: Look-ups that one path may need.
        max_bytes: The most bytes of all outcomes together.

    Raises:
        InvalidInput: It is no such request, or one path is wrong: then the message and the details name its index.
        TooLarge: It has more than 1,000 paths.
    """

    def __init__(self, cache: PageCache, request: bytes, max_lookups: int, max_bytes: int) -> None:
        wanted = decode(request, ResolveBatchRequest)
        check_count("paths", len(wanted.paths), MAX_BATCH_PATHS)
        root = Cid(wanted.root).text
        self._paths = []
        for index, segments in enumerate(wanted.paths):
            alone = encode(ResolveRequest(root=root, segments=segments))
            try:
                self._paths.append(_Path(Operation.resolve(cache, alone, max_lookups)))
            except InvalidInput as error:
                raise of_item("paths", index, error) from None
        self._runnable = deque(self._paths)
        self._waiting: list[_Path] = []
        self._asked: list[bytes] = []
        self._arrived: dict[bytes, bytes | None] = {}
        self._held: dict[bytes, bool] = {}
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        """The number of paths."""
        return len(self._paths)

    def run(self, budget: int) -> BatchNeed | None:
        """Goes on with up to 64 paths that can, visiting some `budget` nodes in all. None: `result` is ready.

        Raises:
            InvalidInput: The root is a payload, and a path leads on from it (code ``kind_mismatch``).
            TooLarge: The outcomes together are too long.
            StoreDamaged: A page is missing or is not what its digest says.
        """
        turn = min(_TURN, len(self._runnable))
        for _ in range(turn):
            self._go_on(self._runnable.popleft(), max(1, budget // turn))
        if self._runnable:
            return BatchNeed(budget=True)
        self._asked = list(dict.fromkeys(path.root for path in self._waiting if path.root is not None))
        if self._asked:
            return BatchNeed(roots=self._asked)
        self._asked = list(dict.fromkeys(page for path in self._waiting for page in path.pages or ()))
        return BatchNeed(pages=self._asked) if self._asked else None

    def supply_roots(self, held: Sequence[bool]) -> None:
        """Says of each root of the last need whether the store has its record."""
        self._held.update(zip(self._asked, held, strict=True))
        answered = [path for path in self._waiting if path.root is not None]
        self._waiting = [path for path in self._waiting if path.root is None]
        for path in answered:
            self._supply_root(path)
            self._runnable.append(path)

    def supply_pages(self, pages: Sequence[bytes | None]) -> None:
        """Takes the pages of the last need, in its order."""
        self._arrived = dict(zip(self._asked, pages, strict=True))
        self._runnable.extend(self._waiting)
        self._waiting = []

    def result(self) -> bytes:
        """The response body, once `run` gave None."""
        return b'{"results":[' + b",".join(path.outcome for path in self._paths) + b"]}"

    def _go_on(self, path: _Path, budget: int) -> None:
        """Runs one path until it has its outcome, waits, or has used its budget."""
        operation = path.operation
        if operation is None:
            return
        path.pages = None
        try:
            # Run first: another path may have brought its pages into the cache, and then they are not parsed again.
            need = operation.run(budget)
            while need is not None and need.pages is not None and all(page in self._arrived for page in need.pages):
                operation.supply_pages([self._arrived[page] for page in need.pages])
                need = operation.run(budget)
            outcome = b'{"result":' + operation.result() + b"}" if need is None else None
        except (NotFound, TooLarge) as error:
            need, outcome = None, b'{"error":' + encode(Error(error=error.code, message=error.message)) + b"}"
        if need is None or outcome is not None:
            self._end(path, outcome or b"")
        elif need.roots is not None:
            (path.root,) = need.roots
            if path.root in self._held:
                self._supply_root(path)
                self._runnable.append(path)
            else:
                self._waiting.append(path)
        elif need.pages is not None:
            path.pages = need.pages
            self._waiting.append(path)
        else:
            self._runnable.append(path)

    def _supply_root(self, path: _Path) -> None:
        if path.operation is not None and path.root is not None:
            path.operation.supply_roots([self._held[path.root]])
        path.root = None

    def _end(self, path: _Path, outcome: bytes) -> None:
        path.operation = None  # and the pages that it holds
        path.outcome = outcome
        self._bytes_left -= len(outcome) + 1
        if self._bytes_left < 0:
            raise TooLarge(f"the results together are longer than {self._max_bytes} bytes; ask for fewer paths at once")
