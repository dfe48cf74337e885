"""Incremental backups of a store, and restoring them.

A backup repository is a directory (`coregw.upkeep.backup.repository` describes it) in which every backup is one
generation: complete by itself, while files that several generations share are stored once. ``docs/decisions/0135``
gives the reasons.
"""

from coregw.upkeep.backup.refill import refill
from coregw.upkeep.backup.repository import Repository
from coregw.upkeep.backup.restore import Restored, restore
from coregw.upkeep.backup.track import Track
from coregw.upkeep.backup.verify import Verified, verify
from coregw.upkeep.backup.write import DEFAULT_KEEP, BackedUp, back_up

__all__ = [
    "DEFAULT_KEEP",
    "BackedUp",
    "Repository",
    "Restored",
    "Track",
    "Verified",
    "back_up",
    "refill",
    "restore",
    "verify",
]
