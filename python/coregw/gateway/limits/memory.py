"""Memory of request bodies: a budget with a share for small bodies, one for each address, and none for stalled ones."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from coregw.errors import Unavailable

__all__ = ["Account", "ArrivingBody", "BodyMemory"]

SMALL_BYTES: Final = 64 << 10
"""A body that holds at most this much is small."""

_SMALL_SHARE: Final = 8
"""One part in this many of the budget is for small bodies only."""


class ArrivingBody(Protocol):
    """A body that is still arriving."""

    def is_stalled(self) -> bool:
        """Whether the client has sent nothing, or too little, for a while, although the gateway waits for it."""

    def refuse(self, error: Exception) -> None:
        """End it: whoever reads the body gets this exception."""


class BodyMemory:
    """The memory of all request bodies together.

    Only bytes that have arrived count. When they exceed the budget, stalled bodies are refused first, those that hold
    most before others; then the body that needs more.
    """

    def __init__(self, limit: int, *, largest: int, per_address: int) -> None:
        """Begin with nothing held.

        Args:
            limit: Limit on all bodies together, in bytes.
            largest: What the largest body needs. There is always room for one, whatever the shares are.
            per_address: Limit on the bodies of one address that are not small.
        """
        self._limit = limit
        self._large_limit = max(limit - limit // _SMALL_SHARE, min(limit, largest))
        self._address_limit = max(per_address, largest)
        self._large = 0
        self._by_address: Counter[str] = Counter()
        self._arriving: dict[Account, ArrivingBody] = {}
        self.held = 0
        """Bytes that are held."""

    def account(self, address: str | None = None, upload: ArrivingBody | None = None) -> Account:
        """Return an account for one body. `Account.close` must be called.

        Args:
            address: What its limit per address is counted under; None if that does not apply.
            upload: The body, if it may stall.
        """
        account = Account(self, address)
        if upload is not None:
            self._arriving[account] = upload
        return account

    def count(self, size: int) -> None:
        """Count `size` further bytes of a small, complete body as held; fewer if it is negative.

        Raises:
            Unavailable: If all bodies together exceed the budget.
        """
        if size > 0 and self.held + size > self._limit:
            self._relieve(self.held + size - self._limit, None)
            if self.held + size > self._limit:
                raise _short()
        self.held += size

    def add(self, account: Account, size: int) -> None:
        """See `Account.add`."""
        held = account.held + size
        large = 0 if held <= SMALL_BYTES else size if account.held > SMALL_BYTES else held
        address = account.address
        if large and address is not None and self._by_address[address] + large > self._address_limit:
            raise Unavailable(
                "the request bodies of your address exceed its share of the gateway's memory; retry later"
            )
        if (excess := self._excess(size, large)) > 0:
            self._relieve(excess, account)
            if self._excess(size, large) > 0:
                raise _short()
        self.held += size
        self._large += large
        if large and address is not None:
            self._by_address[address] += large
        account.held = held

    def _excess(self, size: int, large: int) -> int:
        """Return by how much this many further bytes, and this many of large bodies, would exceed the budget."""
        return max(self.held + size - self._limit, self._large + large - self._large_limit if large else 0)

    def close(self, account: Account) -> None:
        """See `Account.close`."""
        self._arriving.pop(account, None)
        held, account.held = account.held, 0
        self.held -= held
        if held > SMALL_BYTES:
            self._large -= held
            if account.address is not None:
                self._by_address[account.address] -= held
                if not self._by_address[account.address]:
                    del self._by_address[account.address]

    def _relieve(self, needed: int, asking: Account | None) -> None:
        """Refuse stalled bodies until they have freed this many bytes. O(bodies that are arriving)."""
        stalled = [each for each, upload in self._arriving.items() if each is not asking and upload.is_stalled()]
        for account in sorted(stalled, key=lambda each: each.held, reverse=True):
            if needed <= 0:
                return
            needed -= account.held
            upload = self._arriving[account]
            self.close(account)
            upload.refuse(_short())


class Account:
    """What one body holds; made by `BodyMemory.account`."""

    __slots__ = ("_memory", "address", "held")

    def __init__(self, memory: BodyMemory, address: str | None) -> None:
        self._memory = memory
        self.address = address
        self.held = 0

    def add(self, size: int) -> None:
        """Count further bytes as held.

        Raises:
            Unavailable: If all bodies together, or those of its address, exceed their budget.
        """
        self._memory.add(self, size)

    def close(self) -> None:
        """Count nothing any more. Idempotent."""
        self._memory.close(self)


def _short() -> Unavailable:
    return Unavailable("request bodies exceed the gateway's memory for them; retry later")
