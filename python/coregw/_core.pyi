"""The Rust extension: trees, proofs, verification, pages. Every function here releases the interpreter for long work.

CIDs come out as text (``b...``); inputs take text in any multibase of protocol section 1, binary ``bytes``, or `Cid`.
Paths are a sequence of segments or the text form ``"docs/readme"``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, final, overload

CidLike: TypeAlias = str | bytes | Cid
PathLike: TypeAlias = str | Sequence[str]

__version__: str

@final
class Cid:
    """A CID as protocol section 1 defines it; any other CID is `InvalidInput` (code ``invalid_cid``)."""

    def __new__(cls, value: CidLike) -> Cid: ...
    @property
    def text(self) -> str:
        """CIDv1 in lower-case base32 (``b...``)."""
    @property
    def codec(self) -> int:
        """The multicodec of the content, such as 0x55 for ``raw``."""
    @property
    def hash_code(self) -> int:
        """The multihash function code, such as 0x12 for sha2-256."""
    @property
    def hash_name(self) -> str:
        """``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256`` or ``blake3``."""
    @property
    def digest(self) -> bytes:
        """The digest without its multihash prefix."""
    @property
    def multihash(self) -> bytes:
        """The multihash: function code, length, digest."""
    @property
    def kind(self) -> Literal["map", "list", "cas"]:
        """What the CID names: a map root, a list root, or a payload."""
    @property
    def suite(self) -> str | None:
        """The tree suite of a root (``sha2-256`` or ``blake3``); None for a payload."""
    def __bytes__(self) -> bytes: ...
    def __str__(self) -> str: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

def codec_code(codec: str | int | None) -> int:
    """The number of a multicodec given by name or number (``"raw"``, ``"85"``, ``"0x55"``, 85; None is raw).

    Raises `InvalidInput` (code ``invalid_codec``) for unknown names and for root codecs.
    """

def payload_cid(data: bytes, codec: str | int = "raw", hash: str = "sha2-256") -> str: ...

@final
class PayloadHasher:
    def __new__(cls, codec: str | int = "raw", hash: str = "sha2-256") -> PayloadHasher: ...
    def update(self, chunk: bytes) -> None: ...
    def cid(self) -> str: ...

def payload_matches(cid: CidLike, data: bytes) -> bool:
    """Whether `data` has the CID's digest. All five hash functions of section 1 work."""

def encode_key(segments: PathLike) -> bytes: ...

class Change(NamedTuple):
    coordinate: PathLike | int
    before: CidLike | None
    after: CidLike | None
    size: int | None = None

class Scan(NamedTuple):
    entries: list[tuple[list[str], str]]
    more: bool
    proof: bytes

class Element(NamedTuple):
    target: str | None
    size: int | None
    length: int

class Range(NamedTuple):
    segments: list[str]
    sizes: list[int]
    offset: int | None
    length: int
    total_size: int

def verify_key(root: CidLike, path: PathLike, proof: bytes) -> str | None: ...
def verify_key_many(root: CidLike, items: Sequence[tuple[PathLike, bytes]]) -> list[str | None]: ...
def verify_index(root: CidLike, index: int, proof: bytes) -> Element: ...
def verify_range(root: CidLike, start: int, end: int | None, proof: bytes) -> Range: ...
def verify_scan(root: CidLike, prefix: PathLike, after: PathLike | None, limit: int, proof: bytes) -> Scan: ...
def verify_changes(root: CidLike, changes: Sequence[Change], proof: bytes) -> str: ...

# Whole operations: request and result are JSON (bytes or str). Strict, as protocol section 5 says.
# A request that is no request raises InvalidInput; anything wrong in the result raises ProofError.
def verify_resolve(request: bytes | str, result: bytes | str) -> str: ...
def verify_read(request: bytes | str, result: bytes | str) -> ReadOutcome: ...
def verify_map_proof(request: bytes | str, result: bytes | str) -> str | None: ...
def verify_scan_result(request: bytes | str, result: bytes | str) -> Scan: ...
def verify_transition(request: bytes | str, receipt: bytes | str) -> str: ...

class Diff(NamedTuple):
    """A page of the differences between two maps: (segments, before, after), None where there is no target."""

    entries: list[tuple[list[str], str | None, str | None]]
    more: bool

def verify_diff(
    a: CidLike,
    b: CidLike,
    response: bytes | str,
    prefix: PathLike | None = None,
    after: PathLike | None = None,
    limit: int | None = None,
) -> Diff: ...
def root_block(root: CidLike, page: bytes) -> bytes:
    """The block that a root CID names, from the stored page of its digest: the encoding of the top node."""

class ReadOutcome(NamedTuple):
    """What a verified read proves. `result` may also be the ``details`` of a 404: then `present` is False."""

    present: bool
    target: str | None
    segments: list[str] | None
    sizes: list[int] | None
    offset: int | None
    length: int | None
    total_size: int | None

def split_envelope(body: bytes) -> tuple[bytes, bytes]:
    """The texts of ``request`` and ``result`` in a verification's body, each exactly as written. O(bytes).

    Raises `InvalidInput` if the body is no object of exactly these two members.
    """

def check_json(body: bytes, int64: bool = False) -> None:
    """Refuses JSON that protocol section 5 refuses whatever its shape (duplicate members, depth, numbers, text).

    With `int64`, integers may be -2^63 to 2^63 - 1 instead of 0 to 2^53 - 1: the plant store's exception.
    Raises `InvalidInput` that names line and column. Types and members are the caller's to check.
    """

@final
class PageCache:
    """What is known about one store: parsed pages by digest, and roots that it holds. Threads share it without the GIL.

    Args:
        max_bytes: Bound of the memory for pages, in bytes.
        max_roots: How many roots are remembered.

    >>> cache = PageCache(1 << 20)
    >>> len(cache), cache.max_bytes
    (0, 1048576)
    """

    def __new__(cls, max_bytes: int, max_roots: int = 0) -> PageCache: ...
    def remember(self, root: CidLike) -> None:
        """Remember that the store holds a root, given as binary CID, so that operations do not ask for it.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    def is_held(self, root: CidLike) -> bool:
        """Return whether the store is known to hold a root, given as binary CID.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    def __len__(self) -> int: ...
    @property
    def max_bytes(self) -> int:
        """Bound of the memory for pages, in bytes."""
    @property
    def used_bytes(self) -> int:
        """Memory of the cached pages, in bytes."""
    @property
    def hits(self) -> int:
        """Number of look-ups that found their page."""
    @property
    def misses(self) -> int:
        """Number of look-ups that did not find their page."""

@final
class Need:
    """What an `Operation` waits for. Exactly one of its attributes is set; `budget` is False unless it is the one."""

    @property
    def pages(self) -> list[bytes] | None:
        """Digests (32 bytes each) of pages: read them, and pass them to `supply_pages` in this order; or None."""
    @property
    def roots(self) -> list[bytes] | None:
        """Binary root CIDs: pass to `supply_roots` whether the store has a record of each, in this order; or None."""
    @property
    def span(self) -> tuple[int, int] | None:
        """The (start, end) of bytes of the CAR: pass them to `supply_bytes`, fewer where it ends; or None."""
    @property
    def budget(self) -> bool:
        """Whether the budget of nodes is spent: call `poll` again, best in a worker thread."""
    @property
    def output(self) -> tuple[bytes, list[Cid]] | None:
        """Bytes, and payloads whose blocks follow them: send both, then call `poll`; or None."""
    @property
    def payloads(self) -> list[tuple[int, int]] | None:
        """The (start, end) of blocks (CID and data) of the CAR: store their payloads, then call `poll`; or None."""
    @property
    def store(self) -> tuple[list[tuple[bytes, bytes]], list[bytes]] | None:
        """The (digest, page) pairs and binary root CIDs to store: roots last, durably, then call `poll`; or None."""

@final
class Operation:
    """A query, batch, diff, mutation, import or export on stored trees. Does no I/O.

    Call `poll` until it returns the response; in between, meet the need that it returns.
    """

    @staticmethod
    def resolve(cache: PageCache, request: bytes, max_lookups: int = 10_000) -> Operation:
        """Return an operation for a `core.resolve` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def read(cache: PageCache, request: bytes) -> Operation:
        """Return an operation for a `core.read` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def map_proof(cache: PageCache, request: bytes) -> Operation:
        """Return an operation for a `core.map-proof` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def scan(cache: PageCache, request: bytes) -> Operation:
        """Return an operation for a `core.scan` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def diff(
        cache: PageCache,
        a: CidLike,
        b: CidLike,
        prefix: PathLike | None = None,
        after: PathLike | None = None,
        limit: int | None = None,
    ) -> Operation:
        """Return an operation for one page of the differences between two maps of one suite (docs/protocol.md, *diff*).

        Raises:
            InvalidInput: If a CID is not the root of a map, the suites differ, a path is invalid, or `limit` is not
                from 1 to 1000.
        """
    @staticmethod
    def resolve_batch(
        cache: PageCache, root: CidLike, paths: Sequence[Sequence[str]], max_lookups: int, max_bytes: int
    ) -> Operation:
        """Return an operation that resolves many paths of one root, on all cores.

        Its response is `{"results": [{"result": ...} or {"error": ...}, ...]}`: each outcome is what a resolve of that
        path alone would have answered.

        Args:
            cache: The page cache.
            root: The root of all paths.
            paths: The segments of each path.
            max_lookups: Bound of the look-ups for each path.
            max_bytes: Bound of all outcomes together, in bytes.

        Raises:
            InvalidInput: If a segment is invalid; `details` is `{"index": ...}`, the index of its path.
        """
    @staticmethod
    def create_root(cache: PageCache, request: bytes) -> Operation:
        """Return an operation that makes and stores a map, from the body of `POST /v1/roots`. O(n log n).

        Its response is `{"root": ...}`.

        Raises:
            InvalidInput: If the request is malformed; the message names the arc.
        """
    @staticmethod
    def mutate(cache: PageCache, base_root: CidLike, request: bytes) -> Operation:
        """Return an operation that applies the body of `POST /v1/roots/{root}/mutations`, and stores the results.

        Its response is the receipt. If it raises `Conflict` or `InvalidInput`, naming the delta and the coordinate, it
        has stored nothing.

        Raises:
            InvalidInput: If the request is malformed, or `base_root` is a payload.
        """
    @staticmethod
    def export_car(cache: PageCache, root: CidLike, with_payloads: bool, output_bytes: int) -> Operation:
        """Return an operation that outputs a root as CARv1, about `output_bytes` at a time. Its response is empty.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    @staticmethod
    def import_car(cache: PageCache, reader: CarReader) -> Operation:
        """Return an operation that stores the CAR whose bytes `reader` has read; the reader starts over.

        Its response is `{"roots": [...], "blocks": ..., "bytes": ...}`. If it raises `InvalidInput`, naming the block,
        since the CAR is truncated or its nodes do not form whole trees, it has stored nothing.
        """
    @staticmethod
    def check_car(reader: CarReader) -> Operation:
        """Return an operation that checks the CAR whose bytes `reader` has read; the reader starts over.

        Its response is `{"roots": [...], "missing_payloads": ...}`: the roots whose trees are whole, and the number of
        leaves whose payload is not in the CAR. It raises as an import does.
        """
    def poll(self, budget: int) -> bytes | Need:
        """Run until the operation ends or waits, visiting about `budget` nodes at most: the response body, or the need.

        Raises:
            RootNotFound: If a root is not held.
            PathNotFound: If a path leads nowhere; for a read, `details` has the prooflist of the proven absence.
            IndexNotFound: If a list is shorter; `details` as for `PathNotFound`.
            TooLarge: If a limit is exceeded.
            Conflict: If a change does not fit.
            StoreDamaged: If stored trees are damaged.
        """
    def supply_pages(self, pages: Sequence[bytes | None]) -> None:
        """Supply the pages of the need, in its order; None is a page that the store does not have.

        Raises:
            StoreDamaged: If a page is None or does not have its digest; the message names it.
        """
    def supply_roots(self, held: Sequence[bool]) -> None:
        """Supply whether the store has a record of each root of the need, in its order."""
    def supply_bytes(self, data: bytes) -> None:
        """Supply the bytes of the need's span."""

@final
class CarReader:
    """A push parser for the bytes of a CARv1, in chunks of any size, which checks the hash of every block.

    `Operation.import_car` and `Operation.check_car` continue with what it has read.

    Args:
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks. Each takes about 60 bytes of memory.

    >>> reader = CarReader(1 << 20, 1000)
    >>> reader.feed(b"")
    >>> reader.roots, reader.blocks, reader.bytes
    (None, 0, 0)
    """

    def __new__(cls, payload_bytes: int, blocks: int) -> CarReader: ...
    def feed(self, data: bytes) -> None:
        """Read the next bytes. O(bytes) hashing.

        Raises:
            InvalidInput: If they are not a CAR or a block has another hash; the message names the block and its first
                byte. The reader must not be used after that.
            TooLarge: If a limit is exceeded.
        """
    @property
    def roots(self) -> list[str] | None:
        """The roots that the header names, as text, or None before it is read."""
    @property
    def blocks(self) -> int:
        """Number of whole blocks so far."""
    @property
    def bytes(self) -> int:
        """Bytes so far."""
    def check_end(self) -> None:
        """Check that the bytes so far end after a whole block.

        Raises:
            InvalidInput: If they end inside the header or a block.
        """

def block_head(cid: CidLike, size: int) -> bytes:
    """Return the bytes before the `size` bytes of a block in a CAR: the length of CID and block, and the CID.

    Raises:
        InvalidInput: If `size` is not from 0 to 2^53 - 1.

    >>> block_head("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", 5).hex()[:10]
    '2901551220'
    """

def block_cid(data: bytes) -> Cid:
    """Return the CID at the start of a block of a CAR, after its length. `data` may end before the block does.

    Raises:
        InvalidInput: If `data` does not start with a CID.
    """

@final
class Applied(NamedTuple):
    tree: Map | List
    proof: bytes

@final
class Map(Mapping[str, str]):
    def __new__(
        cls, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]] | bytes, suite: str = "sha2-256"
    ) -> Map: ...
    @property
    def root(self) -> str: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, path: PathLike) -> str: ...
    def __contains__(self, path: object) -> bool: ...
    def prove(self, path: PathLike) -> bytes: ...
    def prove_many(self, paths: Sequence[PathLike]) -> list[bytes]: ...
    def scan(self, prefix: PathLike = (), after: PathLike | None = None, limit: int = 1000) -> Scan: ...
    def apply(self, changes: Sequence[Change]) -> Applied: ...

@final
class List(Sequence[str]):
    def __new__(
        cls, elements: Iterable[CidLike], sizes: Iterable[int] | None = None, suite: str = "sha2-256"
    ) -> List: ...
    @property
    def root(self) -> str: ...
    @property
    def total_size(self) -> int: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def prove(self, index: int) -> bytes: ...
    def prove_range(self, start: int, end: int | None = None) -> bytes: ...
    def apply(self, changes: Sequence[Change]) -> Applied: ...
