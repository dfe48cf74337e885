"""The control socket: the Unix socket in the data directory at which the process that owns the store can be reached.

The directory is its owner's alone (mode 0700), and so is the socket (0600): whoever can connect may administer. Only
the process that holds the store's lock calls `listen_for_control`, so a socket that exists already belongs to a process
that was killed, and is replaced.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from coregw.errors import Unavailable

__all__ = ["CONTROL_SOCKET", "connect_to_control", "listen_for_control"]

CONTROL_SOCKET: Final = "control.sock"

_NEW: Final = CONTROL_SOCKET + ".new"
_BACKLOG: Final = 64
_MAX_ADDRESS_BYTES: Final = 107
"""The longest path that fits in Linux's ``sockaddr_un``, without its terminating zero."""


@contextmanager
def listen_for_control(directory: Path) -> Iterator[socket.socket]:
    """Listen on the control socket of a data directory; remove it at the end.

    Args:
        directory: The data directory, whose lock this process holds.

    Raises:
        Unavailable: If the socket cannot be created, or something else has its name.
    """
    listener = socket.socket(socket.AF_UNIX)
    descriptor = -1
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        _require_socket(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(_NEW, dir_fd=descriptor)
        with _address(directory, _NEW) as address:
            listener.bind(address)
        os.chmod(_NEW, 0o600, dir_fd=descriptor)  # nobody can connect before `listen`
        listener.listen(_BACKLOG)
        os.replace(_NEW, CONTROL_SOCKET, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except OSError as error:
        listener.close()
        if descriptor >= 0:
            os.close(descriptor)
        reason = error.strerror or error
        raise Unavailable(f"cannot listen on {directory / CONTROL_SOCKET}: {reason}") from error
    try:
        with listener:
            yield listener
    finally:
        with suppress(OSError):
            os.unlink(CONTROL_SOCKET, dir_fd=descriptor)
        os.close(descriptor)


def connect_to_control(directory: Path) -> socket.socket | None:
    """Connect to the process that owns the store in a data directory; None if there is none.

    Raises:
        OSError: If the connection fails for another reason, such as a lack of permission.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _address(directory, CONTROL_SOCKET) as address:
            connection.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):  # refused: its process was killed
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _require_socket(descriptor: int) -> None:
    """Raise `OSError` if the name of the control socket is taken by something that is not a socket."""
    with suppress(FileNotFoundError):
        mode = os.stat(CONTROL_SOCKET, dir_fd=descriptor, follow_symlinks=False).st_mode
        if not stat.S_ISSOCK(mode):
            raise FileExistsError(None, "there is a file of this name that is not a socket")


@contextmanager
def _address(directory: Path, name: str) -> Iterator[str]:
    """Yield an address of a socket in a directory; if its path is too long, one by way of the open directory."""
    path = directory / name
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
