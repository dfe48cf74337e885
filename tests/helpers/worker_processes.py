"""Looking at the workers of a gateway process from outside, by what Linux tells of processes and sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_SECONDS = 60


def workers_of(pid: int) -> set[int]:
    """The processes that a process has started and that have not ended."""
    threads = Path(f"/proc/{pid}/task").iterdir()  # any of which may have started them
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    return {int(child) for child in children if is_alive(int(child))}


def is_alive(pid: int) -> bool:
    """Whether any thread of a process is: a killed one keeps its sockets until the last has ended."""
    try:
        is_zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not is_zombie or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except FileNotFoundError:
        return False


def client_ports(pid: int) -> set[int]:
    """The ports of the clients whose connections a worker has taken."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    ports = {f"socket:[{row[9]}]": int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01"}
    return {ports[name] for name in open_files(pid) & ports.keys()}


def has_connection(pid: int, local_port: int) -> bool:
    """Whether a worker is the one that took the connection from this port of a client."""
    return local_port in client_ports(pid)


def open_files(pid: int) -> set[str]:
    """What a process has open, as Linux names it."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, which must come true."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
