"""State that the connections of one server share: limits on all of them together, and rules for each."""

from __future__ import annotations

from typing import NamedTuple, Self

from coregw._core import Origins
from coregw.gateway.limits.crowd import Crowd
from coregw.gateway.limits.iteration import IterationBudget
from coregw.gateway.limits.pace import Rate
from coregw.gateway.limits.peers import Proxies
from coregw.gateway.limits.unsent import Unsent
from coregw.gateway.settings import Settings

__all__ = ["Shared"]


class Shared(NamedTuple):
    """The shared state of a server's connections.

    Attributes:
        origins: Which hosts requests may name, and which web pages may write.
        proxies: The addresses that many clients share.
        crowd: The open connections.
        share: The event loop's time for request bodies.
        unsent: The bytes of responses that clients have not read.
        body_rate: The pace of request bodies.
        read_rate: The pace at which clients read responses.
    """

    origins: Origins
    proxies: Proxies
    crowd: Crowd
    share: IterationBudget
    unsent: Unsent
    body_rate: Rate
    read_rate: Rate

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the state of a server with these settings, without connections."""
        rate, grace = settings.min_rate_bytes, settings.rate_grace_seconds
        return cls(
            Origins(settings.hosts, settings.allow_origin, settings.host),
            Proxies(settings.proxies),
            Crowd(settings.connections, settings.share_of_address(settings.connections)),
            IterationBudget(),
            Unsent(settings.unsent_bytes),
            Rate(rate, grace, settings.body_idle_seconds),
            Rate(rate, grace, settings.write_seconds),
        )
