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
    """What is known of a store: parsed pages by digest, bounded in bytes, and roots that it holds. For all threads."""

    def __new__(cls, max_bytes: int, max_roots: int = 0) -> PageCache: ...
    def remember(self, root: CidLike) -> None:
        """Notes that the store holds a root: operations need not ask for it. Raises `InvalidInput` for no root."""
    def is_held(self, root: CidLike) -> bool:
        """Whether the store is known to hold a root. Raises `InvalidInput` for no root."""
    @property
    def max_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...

@final
class Need:
    """What an `Operation` or `Mutation` waits for. Exactly one of `pages`, `roots`, `budget` is set."""

    @property
    def pages(self) -> list[bytes] | None:
        """Digests (32 bytes each) of pages to fetch from the store and give to `supply_pages`, in this order."""
    @property
    def roots(self) -> list[bytes] | None:
        """Binary root CIDs: say with `supply_roots` whether the store has a record of each, in this order."""
    @property
    def budget(self) -> bool:
        """True: the budget of nodes is spent; call `run` again (a worker thread is the place)."""

@final
class Operation:
    """A query on stored trees, from request JSON to response JSON (protocol section 5). Does no I/O.

    ``run`` until it returns the response, supplying what it needs. The first need is the record of the request's own
    root, unless the cache remembers it or the path is empty (strict root identity needs nothing).
    """

    @staticmethod
    def resolve(cache: PageCache, request: bytes, max_lookups: int = 10_000) -> Operation: ...
    @staticmethod
    def read(cache: PageCache, request: bytes) -> Operation: ...
    @staticmethod
    def map_proof(cache: PageCache, request: bytes) -> Operation: ...
    @staticmethod
    def scan(cache: PageCache, request: bytes) -> Operation: ...
    @staticmethod
    def diff(
        cache: PageCache,
        a: CidLike,
        b: CidLike,
        prefix: PathLike | None = None,
        after: PathLike | None = None,
        limit: int | None = None,
    ) -> Operation: ...
    def run(self, budget: int) -> bytes | Need:
        """The response body, or what it needs.

        Raises `RootNotFound`, `PathNotFound` or `IndexNotFound` (whose `details` are the JSON ``{"prooflist": ...}``
        of the proven absence, for a read), or `TooLarge`.
        """
    def supply_pages(self, pages: Sequence[bytes | None]) -> None:
        """Raises `StoreDamaged`, naming the page, for a page that is None or does not have its digest."""
    def supply_roots(self, held: Sequence[bool]) -> None: ...

@final
class CarReader:
    """Takes in the bytes of a CARv1, in pieces of any size, and checks the hash of every block."""

    def __new__(cls, payload_bytes: int, blocks: int) -> CarReader: ...
    def feed(self, data: bytes) -> None:
        """Raises `InvalidInput`, naming the block, for what is no CAR or has another hash; `TooLarge` past a limit."""
    @property
    def roots(self) -> list[str] | None:
        """The roots that the header names, or None before it is read."""
    @property
    def blocks(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def finish(self) -> Car:
        """Raises `InvalidInput` if the bytes end inside a block. The reader begins anew."""

@final
class Car:
    """A CAR all of whose blocks have their hashes. First ``check`` until None, then ``next_pages``, ``next_payloads``.

    Where a span (start, end) is returned, ``supply`` those bytes of the CAR, as far as there are so many, and call
    again.
    """

    def check(self) -> tuple[int, int] | None:
        """Raises `InvalidInput`, naming the block, where the blocks are not whole trees."""
    def supply(self, start: int, data: bytes) -> None: ...
    @property
    def roots(self) -> list[bytes]:
        """Binary CIDs of the header's roots, and of those nested in them whose nodes are here."""
    @property
    def missing_payloads(self) -> int:
        """How many leaves name a payload that is not here."""
    def next_pages(self, max_bytes: int) -> list[tuple[bytes, bytes]] | tuple[int, int]:
        """The next (digest, page) pairs, at most `max_bytes` in all but at least one; empty when none is left."""
    def next_payloads(self, count: int) -> list[tuple[int, int]]:
        """Where the next payloads lie: the first byte of the CID, and the end; empty when none is left."""

@final
class CarExport:
    """A held root on its way out as CARv1. Runs like an `Operation`, but gives bytes as it goes."""

    def __new__(cls, cache: PageCache, root: CidLike, payloads: bool) -> CarExport: ...
    def run(self, max_bytes: int) -> Need | tuple[bytes, list[Cid]] | None:
        """A need, or the next bytes and the payloads to write behind them; None: that was all."""
    def supply_pages(self, pages: Sequence[bytes | None]) -> None: ...
    def supply_roots(self, held: Sequence[bool]) -> None: ...

def block_head(cid: CidLike, size: int) -> bytes:
    """What stands in a CAR before the `size` bytes of a block."""

def block_cid(data: bytes) -> Cid:
    """The CID that the bytes of a block of a CAR begin with, behind its length."""

@final
class ResolveBatch:
    """Resolves of many paths of one root, on all cores. Runs like an `Operation`.

    Each outcome is what a resolve of that path alone would have answered; all together have at most `max_bytes`.
    """

    def __new__(cls, cache: PageCache, root: CidLike, max_lookups: int, max_bytes: int) -> ResolveBatch: ...
    def add(self, segments: list[str]) -> None:
        """Adds a path. Raises `InvalidInput` for segments that are none."""
    def __len__(self) -> int: ...
    def run(self, budget: int) -> bytes | Need:
        """The response body, or what it needs.

        Raises `InvalidInput` for a payload as root, `TooLarge` for too long outcomes, `StoreDamaged`.
        """
    def supply_pages(self, pages: Sequence[bytes | None]) -> None: ...
    def supply_roots(self, held: Sequence[bool]) -> None: ...

@final
class Build:
    """A new map, from the JSON body of ``POST /v1/roots``: its root and the pages to store."""

    @staticmethod
    def arcs(request: bytes) -> Build:
        """`request` is ``{"arcs": {path: cid}, "suite"?}``. Raises `InvalidInput` naming the arc. O(n log n)."""
    @property
    def root(self) -> str: ...
    @property
    def count(self) -> int: ...
    def next_pages(self, max_bytes: int) -> list[tuple[bytes, bytes]]:
        """The next (digest, page) pairs, at most `max_bytes` in all (but at least one); empty when none is left."""

@final
class Mutation:
    """The deltas of ``POST /v1/roots/{root}/mutations`` applied to stored trees. Runs like an `Operation`."""

    def __new__(cls, cache: PageCache, base_root: CidLike, request: bytes) -> Mutation: ...
    def run(self, budget: int) -> bytes | Need:
        """The receipt as JSON, or what it needs.

        Raises `Conflict` or `InvalidInput` naming delta and coordinate; then nothing is to be stored.
        """
    def supply_pages(self, pages: Sequence[bytes | None]) -> None: ...
    def supply_roots(self, held: Sequence[bool]) -> None: ...
    @property
    def roots(self) -> list[bytes]:
        """Binary CIDs of the result of every delta: the root records to write after the pages."""
    def next_pages(self, max_bytes: int) -> list[tuple[bytes, bytes]]: ...

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
