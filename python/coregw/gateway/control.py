"""The control socket: the Unix socket at which the process that owns the store can be reached.

The data directory holds no socket, since programs that copy directories fail at one. It holds a file that only its
owner can read (mode 0600), which says where the socket is; beside the database, or if the store is elsewhere, at the
top:

```
rocksdb/coregw-control.json   {"socket": "@coregw-5f0c…", "token": "…", "device": 65024, "inode": 131,
                               "store": "5f0c…", "incarnation": "91d2…"}
```

It also says which store the process has (`coregw.store.collection.Identity`). If the marker of the directory names
another one, the directory was replaced under the process, and the file leads nowhere.

The socket has an abstract name (``@``), which ends with its process and needs no directory. Any process of the machine
can connect to it, so each side shows who it is: a request carries the token, and the client asks the kernel for the
user that listens. A copy of the directory has another inode, so a copy of the file leads nowhere.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from coregw.durability import NewFile
from coregw.errors import Unavailable

if TYPE_CHECKING:
    from coregw.store.collection import Identity

__all__ = ["ControlConnection", "ControlListener", "connect_to_control", "control_file", "listen_for_control"]

_NAME: Final = "coregw-control.json"
_DATABASE: Final = "rocksdb"
_MARKER: Final = "coregw-store.json"
_BACKLOG: Final = 64
_MAX_RECORD_BYTES: Final = 4096
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
_HAS_ABSTRACT_NAMES: Final = sys.platform == "linux"
_ADDRESS: Final = re.compile(r"(@|/([^\0]{,70}/)?)coregw-[0-9a-f]{32}(\.sock)?")
_TOKEN: Final = re.compile(r"[0-9a-f]{64}")


class ControlListener(NamedTuple):
    """Where the control socket is listened on.

    Attributes:
        socket: The listening socket.
        address: Its address, for people.
        token: The bearer token that requests must carry.
    """

    socket: socket.socket
    address: str
    token: str


class ControlConnection(NamedTuple):
    """A connection to the control socket, and the bearer token that requests must carry."""

    socket: socket.socket
    token: str


class _Record(NamedTuple):
    """The content of the file, and the user that has written it."""

    address: str
    token: str
    user: int


def _is_of_another(marker: Path, store: object, incarnation: object) -> bool:
    """Whether a marker names another store; one that is missing or malformed does not."""
    try:
        named = json.loads(marker.read_bytes()[:_MAX_RECORD_BYTES])
        return "id" in named and (named["id"], named["incarnation"]) != (store, incarnation)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def control_file(directory: Path) -> Path:
    """Return the file in a data directory that names its control socket."""
    database = directory / _DATABASE
    return (database if database.is_dir() else directory) / _NAME


@contextmanager
def listen_for_control(directory: Path, identity: Identity | None) -> Iterator[ControlListener]:
    """Listen on a new control socket, and name it in a data directory.

    The file stays at the end: on a full disk it can be written again, but not created.

    Args:
        directory: The data directory, whose lock this process holds.
        identity: Which store the process has, if that is known.

    Raises:
        Unavailable: If the socket or the file cannot be created.
    """
    token = os.urandom(32).hex()
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            address = _bind(listener)
            listener.listen(_BACKLOG)
            state = directory.stat()
            record = {"socket": address, "token": token, "device": state.st_dev, "inode": state.st_ino}
            if identity is not None:
                record |= {"store": str(identity.store), "incarnation": str(identity.incarnation)}
            _write(directory, json.dumps(record).encode() + b"\n")
        except OSError as error:
            reason = error.strerror or error
            raise Unavailable(f"cannot create the control socket of {directory}: {reason}") from error
        try:
            yield ControlListener(listener, address, token)
        finally:
            if not address.startswith("@"):
                Path(address).unlink(missing_ok=True)


def connect_to_control(directory: Path) -> ControlConnection | None:
    """Connect to the process that owns the store in a data directory; None if there is none.

    Raises:
        OSError: If the connection fails for another reason, such as a lack of permission.
    """
    try:
        record = _read(directory)
    except (FileNotFoundError, NotADirectoryError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if record is None:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(_name(record.address))
        is_owners = _listening_user(connection, record.address) == record.user
    except (FileNotFoundError, ConnectionRefusedError):  # its process was killed
        is_owners = False
    except BaseException:
        connection.close()
        raise
    if not is_owners:  # its process was killed, and somebody else has taken the name
        connection.close()
        return None
    return ControlConnection(connection, record.token)


def _bind(listener: socket.socket) -> str:
    """Bind a socket to a name that nobody can know before, and return its address."""
    name = f"coregw-{os.urandom(16).hex()}"
    if _HAS_ABSTRACT_NAMES:
        listener.bind(_name(address := f"@{name}"))
        return address
    import tempfile  # noqa: PLC0415 - only where there are no abstract names

    path = Path(tempfile.gettempdir(), f"{name}.sock")
    listener.bind(str(path))
    path.chmod(0o600)  # nobody can connect before `listen`
    return str(path)


def _name(address: str) -> str:
    return f"\0{address[1:]}" if address.startswith("@") else address


def _listening_user(connection: socket.socket, address: str) -> int:
    """Return the user whose process listens at the other end of a connection."""
    if _HAS_ABSTRACT_NAMES:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, user, group
        return int.from_bytes(credentials[4:8], sys.byteorder)
    return os.lstat(address).st_uid


def _write(directory: Path, record: bytes) -> None:
    """Replace the file, or overwrite it on a full disk."""
    path = control_file(directory)
    try:
        with NewFile(path, replaces=True, mode=0o600, partial=path.with_suffix(".new")) as new:
            new.file.write(record)
            new.commit()
    except OSError as error:
        if error.errno not in _FULL or not path.exists():
            raise
        with path.open("r+b") as file:
            file.write(record)
            file.truncate()


def _read(directory: Path) -> _Record | None:
    """Read the file; None if it is that of another directory, which was copied, or of another store.

    Raises:
        OSError: If there is no such file, or it cannot be read.
        ValueError, LookupError, TypeError, RecursionError: If it is not what `listen_for_control` writes.
    """
    # Opening a pipe would wait for somebody who writes to it.
    descriptor = os.open(control_file(directory), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        content = json.loads(os.read(descriptor, _MAX_RECORD_BYTES))
    finally:
        os.close(descriptor)
    state = directory.stat()
    if (content["device"], content["inode"]) != (state.st_dev, state.st_ino):
        return None
    if "store" in content and _is_of_another(directory / _MARKER, content["store"], content["incarnation"]):
        return None
    if not (_ADDRESS.fullmatch(content["socket"]) and _TOKEN.fullmatch(content["token"])):
        raise ValueError("no address or no token")
    return _Record(content["socket"], content["token"], status.st_uid)
