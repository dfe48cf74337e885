"""The client's operations, each once, for the sync and the async client: what to send and what to check.

Sans-I/O: an operation is a generator that yields a `Call`, is sent its `Answer` (or has the gateway's error thrown
into it), and returns a value that is checked. A stream also yields `Piece`, a value for the caller. Nothing that a
gateway says is returned unless it is proven or recomputed here. Leaves out directories and files (``trees``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from coregw import _core
from coregw.client.payloads import Download, NewFile, Upload
from coregw.client.questions import CidLike, PathLike, Proven, Question, encode, read_index, read_key, read_range
from coregw.client.settings import ClientSettings
from coregw.client.wire import Answer, Call, decode
from coregw.errors import CoregwError, IndexNotFound, InvalidInput, PathNotFound, ProofError
from coregw.messages import CasCreated, Change, Delta, Endpoint, MutationReceipt, MutationRequest, RootCreated

__all__ = [
    "Piece",
    "Steps",
    "Stream",
    "ask",
    "create_list",
    "create_root",
    "download",
    "get_payload",
    "naming",
    "put_payload",
    "resume",
    "same_cid",
    "save_payload",
    "verified",
]

T = TypeVar("T")
Y = TypeVar("Y")


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """A value that a stream hands to its caller."""

    value: T


def resume(steps: Generator[Y, Any, object], outcome: Answer | CoregwError) -> Y:
    """Goes on with an operation after an exchange; raises `StopIteration` with its value at its end."""
    return steps.throw(outcome) if isinstance(outcome, CoregwError) else steps.send(outcome)


# The send type is Any because a generator that yields both calls and pieces is sent answers and None.
Steps = Generator[Call, Any, T]
Stream = Generator[Call | Piece[T], Any, None]


def ask(settings: ClientSettings, question: Question[T]) -> Steps[Proven[T]]:
    """Asks, and verifies the answer locally, always.

    A 404 of a question that proves absence is verified as well: its value says ``present`` False.

    Raises:
        ProofError: The answer is not proven, or an absence came without its proof.
        RootNotFound: The gateway says that it has no such root; nothing proves that.
        PathNotFound: For a resolve only: the gateway found no way; nothing proves that either.
    """
    call = Call("POST", question.route, settings.max_result_bytes, question.what, content=question.request)
    try:
        answer: Answer = yield call
    except PathNotFound as absent:
        if not question.proves_absence:
            raise
        if absent.details is None:
            raise ProofError(f"{question.what}: an absence without a proof", check="absence") from None
        result = absent.details
    else:
        result = answer.body
    return Proven(verified(question, result), question.request, result)


def verified(question: Question[T], result: bytes) -> T:
    """The value that a result proves. Raises `ProofError`, naming the question, for one that proves none."""
    with naming(question.what):
        return question.verify(question.request, result)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts what was asked, in words, before the message of a `ProofError`."""
    try:
        yield
    except ProofError as error:
        why = error.message.removeprefix("not proven: ")  # which the class says already
        raise ProofError(f"{what}: {why}", check=error.check, step=error.step, offset=error.offset) from None


def key_target(settings: ClientSettings, root: CidLike, path: PathLike) -> Steps[str]:
    """The target of exactly this key of a map. Raises `PathNotFound` for a proven absence."""
    question = read_key(root, path)
    proven = yield from ask(settings, question)
    if not proven.value.present or proven.value.target is None:
        raise PathNotFound(f"{question.what}: proven absent", details=proven.result)
    return proven.value.target


def index_target(settings: ClientSettings, root: CidLike, index: int) -> Steps[str]:
    """The target of an element of a list. Raises `IndexNotFound` for a list that is proven to be shorter."""
    question = read_index(root, index)
    proven = yield from ask(settings, question)
    if not proven.value.present or proven.value.target is None:
        raise IndexNotFound(f"{question.what}: the list has {proven.value.length} elements", details=proven.result)
    return proven.value.target


def range_outcome(settings: ClientSettings, root: CidLike, start: int, end: int | None) -> Steps[_core.ReadOutcome]:
    """The elements of a list that meet a range."""
    proven = yield from ask(settings, read_range(root, start, end))
    return proven.value


def answered(settings: ClientSettings, question: Question[T]) -> Steps[T]:
    """The value of `ask` alone."""
    proven = yield from ask(settings, question)
    return proven.value


def put_payload(
    settings: ClientSettings, data: bytes | Path, codec: str | int = "raw", hash: str = "sha2-256"
) -> Steps[str]:
    """Stores a payload, from memory or streamed from a file; the CID is computed here, and the gateway's compared.

    Raises:
        InvalidInput: An unknown codec or hash function.
        ProofError: The gateway names another CID than the bytes have.
        TooLarge: More bytes than ``max_payload_bytes``.
    """
    upload = Upload(data, codec, hash, settings.max_payload_bytes)
    params = {"codec": str(_core.codec_code(codec))}
    if hash != "sha2-256":
        params["hash"] = hash
    call = Call(
        "POST",
        "/v1/cas",
        settings.max_result_bytes,
        f"put {upload.name}",
        content=upload.content,
        content_type="application/octet-stream",
        params=params,
    )
    answer: Answer = yield call
    same_cid(call.what, decode(call, answer, CasCreated).cid, upload.cid)
    return upload.cid


def get_payload(settings: ClientSettings, cid: CidLike, max_bytes: int | None = None) -> Steps[bytes]:
    """The bytes of a payload, hashed and compared with the CID before they are returned.

    Raises:
        PayloadNotFound: The gateway says that it has no such payload.
        ProofError: The bytes are others.
        TooLarge: More bytes than `max_bytes`, or than ``max_payload_bytes`` if that is not given.
    """
    call = _get_call(settings, cid, max_bytes)
    answer: Answer = yield call
    if not _core.payload_matches(cid, answer.body):
        raise ProofError(f"{call.what}: the bytes have another hash", check="payload hash")
    return answer.body


def download(settings: ClientSettings, cid: CidLike, file: BinaryIO, max_bytes: int | None = None) -> Steps[int]:
    """Streams a payload into an open file, in constant memory, and returns its size in bytes.

    The bytes are verified once all are there: after an exception, what the file holds is not to be used.

    Raises:
        PayloadNotFound: The gateway says that it has no such payload.
        ProofError: The bytes are others.
        TooLarge: More bytes than allowed, as for `get_payload`.
    """
    coming = Download(_core.Cid(cid), file)
    call = replace(_get_call(settings, cid, max_bytes), sink=coming.restarted)
    yield call
    if not coming.matches():
        raise ProofError(f"{call.what}: the bytes have another hash", check="payload hash")
    return coming.size


def save_payload(settings: ClientSettings, cid: CidLike, path: Path, max_bytes: int | None = None) -> Steps[int]:
    """Streams a payload to a new file, which appears whole and verified, or not at all. Returns its size in bytes.

    Raises:
        InvalidInput: Something exists at `path` already (code ``invalid_path``).
        PayloadNotFound, ProofError, TooLarge: As `download`.
    """
    with NewFile(path) as new:
        size = yield from download(settings, cid, new.file, max_bytes)
        new.commit()
        return size


def _get_call(settings: ClientSettings, cid: CidLike, max_bytes: int | None) -> Call:
    text = _core.Cid(cid).text
    limit = settings.max_payload_bytes if max_bytes is None else max_bytes
    return Call("GET", f"/v1/cas/{text}", limit, f"get {text}")


def create_root(settings: ClientSettings, arcs: Mapping[str, CidLike], suite: str = "sha2-256") -> Steps[str]:
    """Makes a map of `arcs` (path text to CID); its root is computed here and the gateway's compared. O(n log n).

    Raises:
        InvalidInput: A path or CID that the protocol does not allow, or an unknown suite.
        ProofError: The gateway names another root.
    """
    plain = {path: cid if isinstance(cid, str) else _core.Cid(cid).text for path, cid in arcs.items()}
    document = encode(plain)
    expected = _core.Map(document, suite).root
    body = b'{"arcs":' + document + b',"suite":' + encode(suite) + b"}"
    call = Call("POST", "/v1/roots", settings.max_result_bytes, f"create a root of {len(plain)} arcs", content=body)
    answer: Answer = yield call
    same_cid(call.what, decode(call, answer, RootCreated).root, expected)
    return expected


def create_list(
    settings: ClientSettings,
    elements: Iterable[CidLike],
    sizes: Iterable[int] | None = None,
    *,
    suite: str = "sha2-256",
    base: CidLike | None = None,
) -> Steps[str]:
    """Makes a list by list deltas; its root is computed here and the gateway's compared. O(n).

    Args:
        settings: The client's settings; ``list_changes`` elements go in one mutation.
        elements: The targets, in order.
        sizes: The measure of each element, at least 1; 1 each if not given.
        suite: The suite of the list, unless `base` says it.
        base: A map root to start the mutations from, whose suite the list gets. None makes the empty map first.

    Raises:
        InvalidInput: A CID, size, suite or base that the protocol does not allow.
        ProofError: The gateway names another root.
    """
    targets = [cid if isinstance(cid, str) else _core.Cid(cid).text for cid in elements]
    measures = [1] * len(targets) if sizes is None else list(sizes)
    if base is not None:
        start = _core.Cid(base)
        if start.kind != "map" or start.suite is None:
            raise InvalidInput(f"create a list: the base {start.text} is no map root", code="kind_mismatch")
        suite = start.suite
    expected = _core.List(targets, measures, suite).root
    current: str = _core.Cid(base).text if base is not None else (yield from create_root(settings, {}, suite))
    what = f"create a list of {len(targets)} elements"
    for deltas in _appends(targets, measures, suite, settings.list_changes):
        body = encode(MutationRequest(deltas=deltas))
        call = Call("POST", f"/v1/roots/{current}/mutations", settings.max_result_bytes, what, content=body)
        answer: Answer = yield call
        current = _list_root(call, decode(call, answer, MutationReceipt).new_root)
    same_cid(what, current, expected)
    return expected


def _appends(targets: Sequence[str], measures: Sequence[int], suite: str, at_most: int) -> list[list[Delta]]:
    """The deltas of each mutation. Without ``object``, one appends to a base that is a list, else starts a list."""
    if not targets:
        # A delta without changes is no delta, so the empty list is an appended element that is taken away again.
        element = Endpoint(target=_core.payload_cid(b""), size=1)
        added, removed = Change(index=0, after=element), Change(index=0, before=element)
        full = _core.List([element.target], [1], suite).root
        return [[Delta(kind="list", changes=[added]), Delta(kind="list", object=full, changes=[removed])]]
    changes = [
        Change(index=index, after=Endpoint(target=target, size=size))
        for index, (target, size) in enumerate(zip(targets, measures, strict=True))
    ]
    batches = range(0, len(changes), at_most)
    return [[Delta(kind="list", changes=changes[at : at + at_most])] for at in batches]


def _list_root(call: Call, root: str) -> str:
    """`root` in the form that is safe in a URL; it is untrusted until the last one is compared."""
    try:
        cid = _core.Cid(root)
    except InvalidInput as error:
        raise ProofError(f"{call.what}: the gateway's root is none: {error.message}", check="root") from None
    if cid.kind != "list":
        raise ProofError(f"{call.what}: the gateway's root {cid.text} is no list", check="root")
    return cid.text


def same_cid(what: str, claimed: str, computed: str) -> None:
    """Raises `ProofError` if the gateway's CID is not the one that was computed here."""
    try:
        same = _core.Cid(claimed) == _core.Cid(computed)
    except InvalidInput:
        same = False
    if not same:
        raise ProofError(f"{what}: the gateway's CID is not {computed}, which was computed here", check="cid")
