"""A witness of transparency logs (c2sp.org/tlog-witness), for tests and for the examples of the documentation.

It cosigns a checkpoint that a log has signed and that continues what it cosigned last. Its state is in memory.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from coregw.errors import InvalidInput, ProofError
from coregw.tlog.checkpoint import Checkpoint, parse_hash, parse_size
from coregw.tlog.note import COSIGNATURE, Note, Signer, VerifierKey, load_private_key, new_private_key
from coregw.tlog.tree import EMPTY_ROOT, verify_consistency

COSIGNED_AT = 1_700_000_000
"""The time of every cosignature, in POSIX seconds."""


class Answer(NamedTuple):
    status: int
    body: str
    media_type: str = "text/plain; charset=utf-8"


class Witness:
    def __init__(self, signer: Signer, logs: tuple[VerifierKey, ...]) -> None:
        self._signer = signer
        self._logs = logs
        self._lock = threading.Lock()
        self._heads: dict[str, Checkpoint] = {}

    def add_checkpoint(self, body: bytes) -> Answer:
        try:
            lines, _, rest = body.decode().partition("\n\n")
            first, *hashes = lines.split("\n")
            note = Note.parse(rest)
            head = Checkpoint.parse(note.text)
            old, proof = parse_size(first.removeprefix("old ")), [parse_hash(each) for each in hashes]
        except (InvalidInput, UnicodeDecodeError) as error:
            return Answer(400, f"{error}\n")
        keys = [key for key in self._logs if key.name == head.origin]
        if not keys:
            return Answer(404, "unknown log\n")
        try:
            if all(key.verify(note) is None for key in keys):
                return Answer(403, "no signature by a key of the log\n")
        except ProofError as error:
            return Answer(403, f"{error}\n")
        with self._lock:
            known = self._heads.get(head.origin, Checkpoint(head.origin, 0, EMPTY_ROOT))
            if old != known.size:
                return Answer(409, f"{known.size}\n", "text/x.tlog.size")
            try:
                verify_consistency(known.size, known.root, head.size, head.root, proof)
            except ProofError as error:
                return Answer(422, f"{error}\n")
            self._heads[head.origin] = head
        return Answer(200, self._signer.sign(note.text, COSIGNED_AT).line())


@contextmanager
def witness(name: str, *logs: VerifierKey, port: int = 0) -> Iterator[tuple[str, VerifierKey]]:
    """Run a witness of these logs on loopback. Yields its address and its key."""
    signer = Signer(name, load_private_key(new_private_key(), "witness"), COSIGNATURE)
    cosigning = Witness(signer, logs)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = cosigning.add_checkpoint(body) if self.path == "/add-checkpoint" else Answer(404, "not found\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.media_type)
            self.send_header("Content-Length", str(len(answer.body.encode())))
            self.end_headers()
            self.wfile.write(answer.body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads the log."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", signer.key
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":  # NAME VKEY...: runs until it is killed
    with witness(sys.argv[1], *map(VerifierKey.parse, sys.argv[2:])) as (url, key):
        print(key, url, flush=True)
        threading.Event().wait()
