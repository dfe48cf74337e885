"""The Rust extension: trees, proofs, verification, and operations on stored pages.

It does no I/O, but for folders (`survey`, `hash_survey`, `FolderUpload`, `FolderWriter`, `files_match`), the temporary
file of an `ArcSorter`, and the connections of a `Front`.

Results contain CIDs as text (``b...``); arguments take text in any multibase of protocol section 1, the binary form as
bytes, or a `Cid`. A path is a sequence of segments or the text form ``"docs/readme"``. Bytes are taken from any object
with the buffer protocol (`bytes`, `bytearray`, `memoryview`, `mmap`), and copied unless they are `bytes`. Long work
releases the GIL.

The docstrings are those of the extension, copied by ``tests/helpers/stub.py``.
"""

import builtins
import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer

_Default = TypeVar("_Default")

CidLike: TypeAlias = str | Buffer | Cid
PathLike: TypeAlias = str | Sequence[str]
_EntryFields: TypeAlias = tuple[
    tuple[str, ...], Literal["file", "link", "folder", "map"], str | None, Attributes | None
]

__version__: str

@final
class Cid:
    """A content identifier as protocol section 1 defines it. Immutable, hashable, equal to a `Cid` of the same bytes.

    Args:
        value: Text in any multibase of section 1 (``b``, ``f``, ``k``, ``z``, ``m``, ``u``, or a CIDv0 ``Qm``), the
            binary form as bytes, or a `Cid`.

    Raises:
        InvalidInput: If `value` is not a CID that section 1 allows; its code is ``invalid_cid``.

    >>> cid = Cid("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG")
    >>> cid.text[:8], hex(cid.codec), cid.hash_name, cid.kind
    ('bafybeie', '0x70', 'sha2-256', 'cas')
    """

    def __new__(cls, value: CidLike) -> Cid: ...
    @property
    def text(self) -> str:
        """CIDv1 in lower-case base32, ``b...``: the form of all results."""
    @property
    def codec(self) -> int:
        """The number of the content's multicodec, such as 0x55 for ``raw``."""
    @property
    def hash_code(self) -> int:
        """The number of the hash function, such as 0x12 for ``sha2-256``."""
    @property
    def hash_name(self) -> str:
        """The hash function: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or ``identity``."""
    @property
    def digest(self) -> bytes:
        """The digest without its multihash prefix, 32 or 64 bytes; the payload itself in an identity CID."""
    @property
    def multihash(self) -> bytes:
        """The multihash: number of the hash function, length, digest."""
    @property
    def kind(self) -> Literal["map", "list", "cas"]:
        """What the CID names: ``map`` or ``list`` for the root of one, ``cas`` for a payload."""
    @property
    def suite(self) -> str | None:
        """The tree suite of a root, ``sha2-256`` or ``blake3``; None for a payload."""
    def __bytes__(self) -> bytes: ...
    def __str__(self) -> str: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

def codec_code(codec: str | int | None) -> int:
    """Return the number of a multicodec. O(log n) in the size of the multicodec table.

    Args:
        codec: A name of the multicodec table (``"dag-cbor"``), a number as text (``"85"``, ``"0x55"``) or as an int;
            None means ``raw``.

    Raises:
        InvalidInput: If the name is unknown, the number exceeds 2^63 - 1, or it is a codec of roots (0x300000 to
            0x30ffff); its code is ``invalid_codec``.

    >>> codec_code("raw"), codec_code("0x55"), codec_code(85), codec_code(None)
    (85, 85, 85, 85)
    """

def payload_cid(data: Buffer, codec: str | int = "raw", hash: str = "sha2-256") -> str:
    """Return the CID of a payload, as text (protocol section 1).

    O(bytes); the GIL is released above 32 KiB.

    Args:
        data: The payload.
        codec: What the bytes are, in the forms that `codec_code` takes.
        hash: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3``, or ``identity``: the CID then
            contains the payload itself, at most 128 bytes.

    Raises:
        InvalidInput: If `codec` is not a codec of payloads (code ``invalid_codec``) or `hash` is unknown.
        TooLarge: If the payload is too long for an identity CID.

    >>> payload_cid(b"hello")
    'bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq'
    """

@final
class PayloadHasher:
    """Computes the CID of a payload that arrives in chunks. Threads may share one.

    Args:
        codec: What the bytes are, in the forms that `codec_code` takes.
        hash: ``sha2-256``, ``sha2-512``, ``sha3-256``, ``blake2b-256``, ``blake3`` or ``identity``.

    Raises:
        InvalidInput: If `codec` is not a codec of payloads (code ``invalid_codec``) or `hash` is unknown.

    >>> hasher = PayloadHasher()
    >>> hasher.update(b"hel")
    >>> hasher.update(b"lo")
    >>> hasher.cid() == payload_cid(b"hello")
    True
    """

    def __new__(cls, codec: str | int = "raw", hash: str = "sha2-256") -> PayloadHasher: ...
    def update(self, chunk: Buffer) -> None:
        """Append bytes to the payload. O(bytes); the GIL is released above 32 KiB."""
    def cid(self) -> str:
        """Return the CID of the bytes so far, as text. More may follow. O(1).

        Raises:
            TooLarge: If they are too long for an identity CID.
        """

@final
class PayloadCheck:
    """Checks a payload that arrives in chunks against its CID. Threads may share one.

    Args:
        cid: The CID that was requested.

    Raises:
        InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.

    >>> check = PayloadCheck(payload_cid(b"hello", hash="sha3-256"))
    >>> check.update(b"hel")
    >>> check.matches()
    False
    >>> check.update(b"lo")
    >>> check.matches()
    True
    """

    def __new__(cls, cid: CidLike) -> PayloadCheck: ...
    def update(self, chunk: Buffer) -> None:
        """Append bytes to the payload. O(bytes); the GIL is released above 32 KiB."""
    def matches(self) -> bool:
        """Return whether the bytes so far are the whole payload that the CID names. More may follow. O(1)."""

def is_linkless(cid: CidLike, data: Buffer) -> bool:
    """Return whether a payload is DAG-CBOR or DAG-JSON by its CID, is strictly encoded, and has no links.

    False for any other codec, and for a payload that decoders may read in different ways. O(bytes log bytes); the GIL
    is released above 16 KiB.

    Args:
        cid: The CID of the payload. Its digest is not checked.
        data: The payload.

    Raises:
        InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.

    >>> data = bytes.fromhex("d82a450001550000")
    >>> is_linkless(payload_cid(data, "dag-cbor"), data), is_linkless(payload_cid(data[2:], "dag-cbor"), data[2:])
    (False, True)
    """

def payload_matches(cid: CidLike, data: Buffer) -> bool:
    """Return whether `data` has the digest that `cid` names, by any hash function of protocol section 1.

    An identity CID contains the payload itself. For a root, `data` is the encoding of the tree's top node. O(bytes);
    the GIL is released above 32 KiB.

    Args:
        cid: The CID that was requested, not one that came with the bytes.
        data: The bytes that were received.

    Raises:
        InvalidInput: If `cid` is not a valid CID; its code is ``invalid_cid``.

    >>> cid = payload_cid(b"hello", hash="blake3")
    >>> payload_matches(cid, b"hello"), payload_matches(cid, b"hullo")
    (True, False)
    """

def encode_key(segments: PathLike) -> bytes:
    r"""Return the key under which a tree stores a path (protocol section 2). O(bytes).

    Args:
        segments: The path, as segments or in text form.

    Raises:
        InvalidInput: If there is no segment, a segment is empty or contains ``/``, or the text form is longer than
            4,096 bytes; its code is ``invalid_path``.

    >>> encode_key(["docs", "readme"])
    b'docs\x00\x01readme\x00\x00'
    """

class Change(NamedTuple):
    """A change of a map or a list at one coordinate.

    None for `before` adds, None for `after` removes (protocol section 5, *mutate*).

    >>> Change("docs/readme", None, payload_cid(b"hello")).before is None
    True
    """

    coordinate: PathLike | int
    """The path in a map (text form or segments), or the index in a list."""
    before: CidLike | None
    """The current target, or None if the coordinate is absent."""
    after: CidLike | None
    """The target that will be there, or None to remove it."""
    size: int | None = None
    """The measure of a list's element `after`; None means 1. Always None for a map."""

class Scan(NamedTuple):
    """A complete page of a map's listing: entries of a window, in key order."""

    entries: list[tuple[list[str], str]]
    """Pairs of the path's segments and the target's CID as text."""
    more: bool
    """Whether the window has entries after the last one."""
    proof: bytes
    """The listing proof of the page, for `verify_scan`."""

class Element(NamedTuple):
    """A proven element of a list, or the proof that the list is shorter."""

    target: str | None
    """The target's CID as text, or None if the list is shorter."""
    size: int | None
    """The element's measure, or None if the list is shorter."""
    length: int
    """The number of elements of the list."""

class Attributes(NamedTuple):
    """What is known of a path of a folder (protocol section 7). None for what is unknown."""

    kind: Literal["file", "link", "folder"]
    """``file``, ``link`` (a symbolic link) or ``folder``."""
    size: int | None
    """The size of a file in bytes."""
    mode: int | None
    """The permission bits of a file or folder, at most ``0o7777``."""
    mtime_ns: int | None
    """The time of the last modification, in nanoseconds since 1970."""
    link: bytes | None
    """The target of a symbolic link, as bytes; None for anything else."""
    owner: tuple[int, int] | None
    """The numeric ids of the owner and the group."""
    xattrs: dict[str, bytes]
    """Extended attributes by name; empty if there are none."""

class SurveyEntry(NamedTuple):
    """A file, symbolic link or folder that a survey found."""

    path: str
    """Its path in the folder's map, in text form."""
    kind: Literal["file", "link", "folder"]
    """``file``, ``link`` or ``folder``."""
    size: int
    """The size of a file, or of a link's target, in bytes; 0 for a folder."""
    mode: int
    """The permission bits, at most ``0o7777``."""
    mtime_ns: int
    """The time of the last modification, in nanoseconds since 1970; at most 292 years from then."""
    ctime_ns: int
    """The time of the last change of content or state, in nanoseconds since 1970."""
    inode: int
    """The number of the inode."""
    device: int
    """The number of the device."""
    owner: tuple[int, int]
    """The numeric ids of the owner and the group."""

@final
class Survey:
    """What a folder, or a single file, has: its files, symbolic links and folders, in key order, and what is left out.

    A sequence of ``SurveyEntry(path, kind, size, mode, mtime_ns, ctime_ns, inode, device, owner)``, each made when it
    is accessed: an entry takes about 120 bytes of memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey(folder).files
    0
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SurveyEntry: ...
    def __iter__(self) -> Iterator[SurveyEntry]: ...
    @property
    def files(self) -> int:
        """The number of files."""
    @property
    def links(self) -> int:
        """The number of symbolic links."""
    @property
    def folders(self) -> int:
        """The number of folders, without the top one."""
    @property
    def bytes(self) -> int:
        """The sum of the files' sizes in bytes when they were found."""
    @property
    def skipped(self) -> list[tuple[Path, str]]:
        """What was skipped: pairs of the location and the reason, in the order of locations."""
    @property
    def left_out(self) -> list[tuple[Path, str]]:
        """What is excluded, without what is below it: pairs of the location and the reason, in order."""
    def location(self, index: int) -> Path:
        """Return the location of an entry on the disk. O(depth).

        Args:
            index: The position of the entry in this survey.

        Raises:
            IndexError: If there is no such position.
        """

@final
class FolderUpload:
    """A folder that is added to a gateway: its files are read and hashed once, and kept until they are sent.

    Its own threads read the files, and wait while too much is kept. The memory is some 35 bytes for each entry
    besides the survey, and at most two batches of 4 MiB besides those that the caller has. Each of `start`,
    `start_again` and `start_records` is followed by `next_batch` until `is_read`. A file that changes while it is read
    is read again, at most three times. If the bytes that it had at first are the same again, it has only grown, and
    these bytes are its content; otherwise it is skipped and reported.

    Args:
        found: What the folder has.
        suite: The hash function of lists and maps: ``sha2-256`` or ``blake3``.
        xattrs: Whether extended attributes are read as well.
        cache: What is known of the folder since it was added last: the file, the folder's path, whatever else the
            targets depend on, and the nanoseconds for which a file has to be unchanged when it is read, so that its
            times say whether it has changed since. A file that is missing, damaged, or of another folder is ignored.

    Raises:
        InvalidInput: If `suite` is neither of these.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a").write_bytes(b"hello")
    ...     upload = FolderUpload(survey(folder))
    ...     upload.start()
    ...     while not upload.is_read:
    ...         _ = upload.next_batch(1)
    >>> upload.arcs() == {"a": payload_cid(b"hello")}
    True
    """

    def __new__(
        cls,
        found: Survey,
        suite: str = "sha2-256",
        xattrs: bool = False,
        cache: tuple[str | os.PathLike[str], str | os.PathLike[str], str, int] | None = None,
    ) -> FolderUpload: ...
    @staticmethod
    def probable_root(file: str | os.PathLike[str], folder: str | os.PathLike[str], options: str) -> str | None:
        """Return the root of a folder when it was added last, as a cache says that may be damaged; None if it does not.

        O(1), where `cached_root` comes after the survey.

        Args:
            file: The file of the cache.
            folder: The folder's path.
            options: Whatever else the targets depend on.
        """
    @property
    def cached_root(self) -> str | None:
        """The root of the folder when it was added last, as text; None if that is not known."""
    @property
    def cached_attributes(self) -> str | None:
        """The root of its map of attributes then; None if it had none."""
    def start(self) -> None:
        """Start to read and hash the files that the cache does not know."""
    def start_again(self) -> None:
        """Start to read the files again whose payloads are missing."""
    def start_records(self, attributes: str, owner: bool, has_base: bool) -> None:
        """Start to collect the records of attributes that are payloads.

        Args:
            attributes: As for `roots`.
            owner: As for `roots`.
            has_base: Whether the gateway holds all records of the last time.

        Raises:
            InvalidInput: If `attributes` is unknown.
        """
    def stop(self) -> None:
        """Let all threads end soon. What was read remains."""
    def next_batch(self, seconds: float) -> PayloadBatch | None:
        """Return the next batch of payloads that is full; None if there is none yet, or no more.

        Args:
            seconds: How long to wait.

        Raises:
            InvalidInput: If an entry's attributes take more than 1 MiB.
        """
    @property
    def is_read(self) -> bool:
        """Whether all was read that was to be read, and all full batches were taken."""
    def flush(self) -> None:
        """Let `next_batch` return the last batch, though it is not full. Nothing is being read meanwhile."""
    def acknowledge(self, batch: PayloadBatch) -> None:
        """Note that the gateway holds the payloads of a batch."""
    def take_progress(self) -> int:
        """The number of bytes that were read, or need not be read, since it was asked for last."""
    @property
    def files_read(self) -> int:
        """The number of files that were read, those that were read again counted again."""
    def lists_car(self, all: bool) -> tuple[bytes, int]:
        """Return a CAR with the trees of up to 500 lists all of whose chunks are acknowledged, and their number.

        Args:
            all: False while files are read: then there are none unless many wait. True when all batches are
                acknowledged.
        """
    def next_question(self) -> bytes | None:
        """Return the CIDs of the next payloads that were not read, because the cache knows them; None at the end.

        Returns:
            Up to 16,384 binary CIDs, one after the other. `answer` follows.
        """
    def answer(self, held: Buffer) -> None:
        """Note which payloads of the last question are held; the files of the others are read by `start_again`.

        Args:
            held: A bit for each, the lowest one of a byte first.

        Raises:
            ValueError: If there is not one bit for each.
        """
    def roots(self, attributes: str = "all", owner: bool = False) -> tuple[str, str | None]:
        """Return the root of the folder's map, and that of the map of attributes, as `HashedFolder.roots` does.

        Args:
            attributes: What is recorded: ``whole``, ``all``, ``no-times``, ``exec`` or ``none``.
            owner: Whether the numeric ids of owner and group are recorded; not with ``exec`` and ``none``.

        Raises:
            InvalidInput: If `attributes` is unknown, or an entry's extended attributes take more than 1 MiB.
        """
    def changes(
        self, attributes: str, owner: bool, most: int
    ) -> tuple[list[tuple[str, str | None, str | None]], list[tuple[str, str | None, str | None]]] | None:
        """Return what has changed since the folder was added last: paths with the targets before and after. O(entries).

        Args:
            attributes: As for `roots`.
            owner: As for `roots`.
            most: The limit on the number of changes.

        Returns:
            The changes of the folder's map, without the one of the reserved path, and of the map of attributes; None if
            there are more than `most`, or nothing is known of the last time.

        Raises:
            InvalidInput: If `attributes` is unknown.
        """
    def file_lines(self, attributes_root: CidLike | None, size: int) -> FolderLines:
        """Iterate over the arcs of the folder's map: chunks of lines ``["path","CID"]`` of about `size` bytes.

        Args:
            attributes_root: The root of the map of attributes, which has the reserved path.
            size: Bytes of a chunk, at most 1 GiB.

        Raises:
            InvalidInput: If `size` is out of range.
        """
    def record_lines(self, attributes: str, owner: bool, size: int) -> FolderLines:
        """Iterate over the arcs of the map of attributes, as `file_lines` does.

        Args:
            attributes: As for `roots`.
            owner: As for `roots`.
            size: As for `file_lines`.

        Raises:
            InvalidInput: If `attributes` is unknown, or `size` is out of range.
        """
    def save(self, file: str | os.PathLike[str], roots: tuple[str, str | None], attributes: str, owner: bool) -> None:
        """Write the cache for the next time to a file. O(entries).

        Args:
            file: The file, which is replaced.
            roots: What `roots` has returned.
            attributes: As for `roots`.
            owner: As for `roots`.

        Raises:
            InvalidInput: If `attributes` is unknown.
            OSError: If the file cannot be written.
        """
    def arcs(self) -> dict[str, str]:
        """The target of each file's path. O(files), also in memory."""
    def totals(self) -> tuple[int, int, int]:
        """The number of files that have targets, how many of them are lists, and the sum of their sizes. O(entries)."""
    @property
    def skipped(self) -> list[tuple[Path, str]]:
        """What was skipped, by the survey or since: pairs of location and reason, in the order of locations."""
    @property
    def top_skipped(self) -> list[tuple[Path, str]]:
        """What could not be recorded of the folder itself, as `skipped`, where that has a record."""

@final
class PayloadBatch:
    """Payloads that were read, some of which a gateway may hold. Made by `FolderUpload.next_batch`."""

    def __len__(self) -> int: ...
    @property
    def cids(self) -> bytes:
        """The binary CIDs of the payloads, one after the other."""
    def car(self, held: Buffer) -> tuple[bytes, int, int]:
        """Return a CAR of the payloads that are not held, and free the memory of all. O(bytes).

        Args:
            held: A bit for each payload, the lowest one of a byte first: whether it is held.

        Returns:
            The CAR; the number of payloads in it, and the sum of their lengths. An empty CAR if all are held.

        Raises:
            ValueError: If `held` does not have one bit for each payload.
        """

@final
class FolderLines:
    """Iterates over the arcs of a folder's map in chunks of lines."""

    def __iter__(self) -> FolderLines: ...
    def __next__(self) -> bytes: ...

@final
class HashedFolder:
    """A folder whose files were read: their targets, and the roots of the folder's maps. Made by `hash_survey`.

    A sequence of the survey's entries, with the sizes, modes and times with which the files were read.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SurveyEntry: ...
    def __iter__(self) -> Iterator[SurveyEntry]: ...
    @property
    def files(self) -> int:
        """The number of files that have targets."""
    @property
    def bytes(self) -> int:
        """The sum of their sizes in bytes."""
    @property
    def skipped(self) -> list[tuple[Path, str]]:
        """What was skipped, by the survey or since: pairs of location and reason, in the order of locations."""
    @property
    def top_skipped(self) -> list[tuple[Path, str]]:
        """What could not be recorded of the folder itself, as `skipped`, where that has a record."""
    def target(self, index: int) -> str | None:
        """Return the target of an entry of the survey as text; None if it is not a file, or was skipped. O(1).

        Args:
            index: The position of the entry in the survey.

        Raises:
            IndexError: If there is no such position.
        """
    def chunks(self, index: int) -> list[tuple[str, int]] | None:
        """Return the chunks of a file that was read and is a list: pairs of payload CID and length. O(chunks).

        Args:
            index: The position of the entry in the survey.

        Returns:
            None for any other entry: its target says all, or was known before.
        """
    def roots(self, attributes: str = "all", owner: bool = False) -> tuple[str, str | None]:
        """Return the root of the folder's map, and that of the map of attributes (protocol section 7). O(entries).

        Args:
            attributes: What is recorded: ``whole``, ``all``, ``no-times``, ``exec`` or ``none``.
            owner: Whether the numeric ids of owner and group are recorded; not with ``exec`` and ``none``.

        Returns:
            Both as text; None instead of the second if nothing is recorded. Extended attributes are recorded if they
            were read.

        Raises:
            InvalidInput: If `attributes` is unknown, or an entry's extended attributes take more than 1 MiB.
            KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
        """
    def records(self, attributes: str = "all", owner: bool = False) -> list[tuple[str, str, builtins.bytes]]:
        """Return the records of the map of attributes: path, target, and the record's bytes. O(entries).

        That of the folder itself, at the reserved name, comes first.

        Args:
            attributes: As for `roots`.
            owner: As for `roots`.

        Raises:
            InvalidInput: As for `roots`.
        """

class Range(NamedTuple):
    """All elements of a list that overlap a range of its measure, proven."""

    segments: list[str]
    """The targets' CIDs as text, in order."""
    sizes: list[int]
    """The measures of these elements."""
    offset: int | None
    """The start of the first of them in the list's measure, or None if the range is empty."""
    length: int
    """The number of elements of the whole list."""
    total_size: int
    """The sum of all measures of the list."""

def verify_key(root: CidLike, path: PathLike, proof: Buffer) -> str | None:
    """Verify an inclusion or absence proof of a path (protocol section 4, *get*).

    O(depth) hashes, a few microseconds. A proof has at most 2,892,588 bytes.

    Args:
        root: The trusted root of the map.
        path: The path, in text form or as segments.
        proof: The proof that came with the answer.

    Returns:
        The target's CID as text, or None if the path is proven absent.

    Raises:
        ProofError: If `proof` does not prove either. The message names the check that failed, and where.
        InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), or `path` is malformed.

    >>> m = Map({"docs/readme": payload_cid(b"hello")})
    >>> verify_key(m.root, "docs/readme", m.prove("docs/readme")) == payload_cid(b"hello")
    True
    >>> verify_key(m.root, "docs/guide", m.prove("docs/guide")) is None
    True
    """

def verify_key_many(root: CidLike, items: Sequence[tuple[PathLike, Buffer]]) -> list[str | None]:
    """Verify many proofs of one map as `verify_key` does, on all cores with the GIL released.

    O(sum of depths) hashes.

    Args:
        root: The trusted root of the map.
        items: Pairs of a path and its proof.

    Returns:
        For each pair the target's CID as text, or None if the path is proven absent.

    Raises:
        ProofError: If a proof is wrong. The message names the first such item.
        InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), or a path is malformed. The message
            names the first such item; this check comes before all proofs.

    >>> m = Map({"a": payload_cid(b"hello")})
    >>> verify_key_many(m.root, [(path, m.prove(path)) for path in ("a", "b")]) == [payload_cid(b"hello"), None]
    True
    """

def encode_attributes(
    kind: str = "file",
    size: int | None = None,
    mode: int | None = None,
    mtime_ns: int | None = None,
    link: Buffer | None = None,
    owner: tuple[int, int] | None = None,
    xattrs: Mapping[str, Buffer] | None = None,
) -> tuple[str, bytes]:
    """Return the record of what is known of a path of a folder (protocol section 7), and the CID that names it.

    O(bytes). The arguments are the fields of `Attributes`, so ``encode_attributes(*attributes)`` encodes a decoded
    record again.

    Args:
        kind: ``file``, ``link`` (a symbolic link) or ``folder``.
        size: The size of a file in bytes.
        mode: The permission bits of a file or folder, at most ``0o7777``.
        mtime_ns: The time of the last modification, in nanoseconds since 1970.
        link: The target of a symbolic link: 1 to 4,095 bytes.
        owner: The numeric ids of the owner and the group.
        xattrs: Extended attributes by name.

    Returns:
        The target in the map of attributes as text, and the record. The record is a payload to be stored unless the
        target is an identity CID.

    Raises:
        InvalidInput: If an argument is out of range, or does not fit the kind.

    >>> target, record = encode_attributes("file", size=5, mode=0o755)
    >>> Cid(target).hash_name, record.hex(" ")
    ('identity', 'a2 64 6d 6f 64 65 19 01 ed 64 73 69 7a 65 05')
    """

def decode_attributes(target: CidLike, payload: Buffer | None = None) -> Attributes:
    """Return what a record of a folder's map of attributes says (protocol section 7). O(bytes).

    Args:
        target: The record's target in the map of attributes.
        payload: The payload that `target` names; not needed for an identity CID, which holds the record.

    Returns:
        ``Attributes(kind, size, mode, mtime_ns, link, owner, xattrs)``; None for what is unknown.

    Raises:
        InvalidInput: If it is not a record in its one encoding, `target` is not the record's one CID, or `payload` is
            needed and missing.

    >>> decode_attributes(encode_attributes("link", link=b"go")[0]).link
    b'go'
    """

def join_folder(
    files: Iterable[tuple[Iterable[str], str]], records: Iterable[tuple[Iterable[str], Attributes]]
) -> JoinedFolder:
    """Join the listings of a folder's two maps (protocol section 7).

    Args:
        files: Paths and targets of the folder's map, in key order, as it is listed. The reserved path is left out.
        records: Paths and attributes of the map of attributes, in key order. That of the folder itself, at the reserved
            name, is left out.

    Returns:
        An iterator over every path once, in key order: tuples of segments, kind, target and attributes. It asks for
        files and records as it needs them, and raises `InvalidInput` with the code ``invalid_path`` if a record
        contradicts the folder's map.

    >>> list(join_folder([(["a"], "bafkqaaa")], []))
    [(('a',), 'file', 'bafkqaaa', None)]
    """

@final
class JoinedFolder:
    """Iterates over the paths of a folder. Made by `join_folder`."""

    def __iter__(self) -> JoinedFolder: ...
    def __next__(self) -> _EntryFields: ...

class FolderRights:
    """Gives this user all rights to a folder of the user's own that lacks some, until `close`.

    Nothing happens to a folder that does not exist, or in which the user may do everything, as a superuser may.

    Args:
        folder: The folder. Its path may lead through links.

    Raises:
        OSError: If the folder can't be opened, or its mode not be changed.
    """

    def __new__(cls, folder: str | os.PathLike[str]) -> Self: ...
    def close(self) -> None:
        """Give the folder the mode that it had. What others may no longer do stays so. Idempotent.

        Raises:
            OSError: If the mode can't be changed.
        """

def remove_tree(folder: str | os.PathLike[str], progress: Callable[[int], object] | None = None) -> None:
    """Remove a folder with all that is in it, as far as that is possible, without following links. O(entries).

    Folders of this user get the rights that this needs; one that is not removed has its mode again.

    Args:
        folder: The folder; nothing happens if it does not exist.
        progress: Called about every 50 milliseconds with 0, in the caller's thread. An exception that it raises ends
            the work.

    Raises:
        KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.
    """

def files_match(
    top: str | os.PathLike[str],
    files: Sequence[tuple[str | os.PathLike[str], Sequence[tuple[CidLike, int | None]]]],
    progress: Callable[[int], object] | None = None,
) -> list[bool]:
    """Return whether each of these files consists of its payloads. O(bytes), on all cores, with the GIL released.

    A file that is missing, can't be read, is not a regular file or is not below `top` does not match. No symbolic link
    below `top` is followed, also if it is put there meanwhile.

    Args:
        top: The folder that the files are below. Its own path may lead through links.
        files: The files: the path of each, relative to `top`, and its payloads in order, as CIDs and sizes. The size
            of the last one may be None.
        progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
            thread. An exception that it raises ends the work.

    Raises:
        TooLarge: If the sizes of a file's payloads sum to 2^63 or more.
        OSError: If `top` can't be opened.
        KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.

    >>> files_match("/", [("does/not/exist", [("bafkqaaa", 0)])])
    [False]
    """

class FolderListing:
    """The listings of a folder's two maps (protocol section 7), verified and joined page by page.

    Args:
        root: The root of the folder's map.
        xattrs: Whether attributes have the extended ones.

    Raises:
        InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``).
    """

    def __init__(self, root: CidLike, xattrs: bool = True) -> None: ...
    def nested(self, root: CidLike) -> FolderListing:
        """Return the listing of a map that is nested in the same tree. Both know the same records that are payloads.

        Raises:
            InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``).
        """

    def add_files(self, request: Buffer, result: Buffer) -> tuple[int, list[str] | None]:
        """Verify the next page of the folder's map, and add it. O(depth + entries) hashes, with the GIL released.

        Args:
            request: The `core.scan` request that the caller sent, as JSON.
            result: The result that it received, as JSON.

        Returns:
            The number of entries, and the last path if others follow.

        Raises:
            InvalidInput: If the request is malformed or not for the page that follows the last one, or the reserved
                path does not name a map of the folder's suite.
            ProofError: If anything is wrong in the result.
        """

    def add_records(self, request: Buffer, result: Buffer) -> tuple[int, list[str] | None]:
        """Verify the next page of the map of attributes, and add it. As `add_files`.

        Raises:
            InvalidInput: If the request is malformed or not for the page that follows the last one, no map of
                attributes is listed, or a target is not a record.
            ProofError: If anything is wrong in the result.
        """

    @property
    def attributes_root(self) -> str | None:
        """The root of the map of attributes, if its path is listed."""

    @property
    def may_have_attributes(self) -> bool:
        """Whether more of the folder's map has to be listed to know whether there is a map of attributes."""

    @property
    def waiting(self) -> tuple[int, int]:
        """Entries that wait for the other listing: those of the folder's map, and those of the map of attributes."""

    @property
    def missing_records(self) -> list[str]:
        """The records that are payloads and not here yet, as CIDs, each once."""

    @property
    def top(self) -> Attributes | None:
        """What is recorded of the folder itself: an `Attributes`. None without a record, and until it is joined."""
    def supply_record(self, target: CidLike, payload: Buffer) -> None:
        """Supply a record that is a payload, whose bytes are verified.

        Raises:
            InvalidInput: If it is not a record.
        """

    def take(self) -> list[_EntryFields]:
        """Return the entries that are joined, and forget them: as far as both listings have come. O(entries).

        Returns:
            Tuples of the fields of `coregw.folders.tree.FolderEntry`, in key order.

        Raises:
            InvalidInput: If a record contradicts the folder's map (code ``invalid_path``); the message names the path.
        """

class FolderWriter:
    """Restores a tree to a folder: its own threads verify and write payloads, with the GIL released.

    Entries are added with their listings, before and after `start`. Each `request` makes the folders that were added,
    and names payloads whose bytes are given to its `PayloadSink`. `finish` makes links and sets the attributes of
    folders. Nothing outside the folder is touched: paths are opened name by name, and symbolic links are not followed.
    What is known of a file is forgotten when it is complete.

    If the folder has content, all entries are added first, and `survey`, `recall`, `compare`, `decide` and `apply`
    follow instead of `start`: what is there and is right stays, and what is replaced is replaced when its new version
    is complete.

    Args:
        folder: The folder, which exists.
        incomplete: An empty folder on the same file system, for files until they are complete: each is renamed to its
            path then. None: files are created at their paths.
        is_moved: Whether what is in `folder` itself is moved elsewhere in the end. Then `finish` does not set the
            attributes of folders there: see `finish_moved`.
        has_content: Whether something may be in the folder.
        gives_rights: Whether folders of this user get rights that they lack, until `close`.
        destination: What messages name as the folder; None for `folder`.
        max_bytes: Bytes that all files together may have; None for any number. A file that exceeds them is refused when
            it is added, or, if its size is not known then, before its first byte is written.
        cache: The stat cache: its file, and the absolute path of the folder that it is of.
        all_links: Whether symbolic links that lead out of the tree are made as well.
        allow_git: Whether what is in a ``.git`` that was there may be changed: git runs programs that it names.
        extras: What else is restored: owners, extended attributes, and names of extended attributes that are restored
            in any case. To root, only those of users (``user.``) are restored without being named.

    Raises:
        OSError: If a folder can't be opened.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        incomplete: str | os.PathLike[str] | None = None,
        *,
        is_moved: bool = False,
        has_content: bool = False,
        gives_rights: bool = True,
        destination: str | os.PathLike[str] | None = None,
        max_bytes: int | None = None,
        cache: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        all_links: bool = False,
        allow_git: bool = False,
        extras: tuple[bool, bool, Sequence[str]] = ...,
    ) -> None: ...
    def add_listed(
        self, listing: FolderListing, below: int
    ) -> tuple[list[tuple[int, int, str]], list[tuple[int, str, str, int | None]]]:
        """Add the entries that `listing` has joined. O(entries), with the GIL released.

        Args:
            listing: The listing of a map.
            below: The number of the folder that the map is; 0 is the folder itself.

        Returns:
            The nested maps: the number of the folder that each is, how many folders it is below in its map, and its
            root; and the files that are lists, whose payloads `supply_list` needs: the number of each, its path, the
            list, and the size that is recorded.

        Raises:
            InvalidInput: If a segment can't be a file name, a path is a file and a folder, or that of the folder for
                incomplete files, or the tree has a path twice (code ``invalid_path``); or as `FolderListing.take`.
            TooLarge: If the sizes of a file's payloads sum to 2^63 or more, or those of all files to more than
                `max_bytes`.
        """

    def supply_list(self, number: int, parts: Sequence[tuple[CidLike, int | None]]) -> None:
        """Supply the payloads of a file that is a list.

        Args:
            number: The number of the list.
            parts: The payloads in order, at least one: their CIDs and sizes. The size of the last one may be None.

        Raises:
            InvalidInput: If a CID is invalid or a root, or as `add_listed`.
            TooLarge: As `add_listed`.
        """

    def survey(self) -> int:
        """Find what is there of what was added, and return the bytes of files at paths of files. O(entries).

        Raises:
            InvalidInput, OSError: If a link has taken the place of a folder, or the system refuses something.
        """

    def recall(self) -> int:
        """Take files for right, unread, that have not changed since they were, as the cache says. O(files).

        Returns:
            Their bytes.
        """

    def compare(self) -> int | None:
        """Compare the next files that are there, about 256 MiB or 1,000 files. O(bytes), on all cores.

        Returns:
            The bytes of those that are right; None if no file is left.

        Raises:
            TooLarge: If the sizes of a file's payloads sum to 2^63 or more.
        """

    def decide(self, delete: Sequence[str | os.PathLike[str]] | None) -> None:
        """Decide what becomes of what is there.

        Args:
            delete: Paths of what stays of that which the tree does not have, without what is below them. None deletes
                nothing: it stays.

        Raises:
            InvalidInput: If a folder is in the place of a file, or the reverse, and nothing is deleted; or if a
                ``.git`` that was there would be changed (code ``invalid_path``).
        """

    def preview(self) -> tuple[list[list[str]], list[list[str]], list[list[str]], int]:
        """Return what `apply` and all that follows would do. O(entries).

        Returns:
            The paths of files, links and empty folders that are created, those that are replaced, and those that are
            deleted, without what is in deleted folders; and the number of files that are right.
        """

    def apply(self, free_bytes: int | None) -> None:
        """Plan what is to be made, remove what is in the way of it, and start, as `start` does.

        Args:
            free_bytes: Bytes that all files together may have, besides those of files that are replaced; None for any
                number.

        Raises:
            TooLarge: If there are more.
            InvalidInput, OSError: As `start`.
        """

    def start(self) -> None:
        """Make the folders that were added, write the payloads that are in their CIDs, and start the threads.

        Raises:
            InvalidInput: If a path can't be made here, or exists (code ``invalid_path``); the message names it.
            OSError: If the system refuses something.
        """

    def request(self, max_bytes: int, max_payload_bytes: int) -> PayloadSink | None:
        """Return the sink of the next payloads to request, or None if all that were added have been.

        Args:
            max_bytes: The approximate total size of the payloads, unless it is a single one.
            max_payload_bytes: Limit on one payload.

        Raises:
            InvalidInput, OSError: As `start`.
        """

    def finish(self) -> None:
        """Make the links and set the attributes of folders, when all payloads are written.

        Raises:
            InvalidInput, OSError: As `start`.
        """

    def prepare_top(self, folder: str | os.PathLike[str]) -> None:
        """Give the folder that the content is in, or is moved to, a mode that is no looser than in the end.

        Raises:
            OSError: If the system refuses it.
        """

    def finish_moved(self, folder: str | os.PathLike[str]) -> None:
        """Set the attributes of the folders that were moved to a folder.

        Raises:
            OSError: If the system refuses it.
        """

    def finish_top(self, folder: str | os.PathLike[str]) -> None:
        """Set what is recorded of the folder itself, where its content is now: nothing in it changes after that.

        Raises:
            OSError: If the system refuses it.
        """

    def save_cache(
        self, file: str | os.PathLike[str], clock: str | os.PathLike[str], folder: str | os.PathLike[str]
    ) -> None:
        """Write to a file, for the next time, what is known of files that were written or right. O(n log n).

        Waits for up to a tick of the file system's clock, mostly 10 ms or less.

        Args:
            file: The file, which is replaced.
            clock: A folder of this user on the file system of `folder`, whose times are changed.
            folder: The folder that has the files now.

        Raises:
            OSError: If the file cannot be written.
        """

    @property
    def added(self) -> tuple[int, int | None]:
        """The number of files that were added, and the sum of their sizes; None if one of them is not known."""

    @property
    def done(self) -> tuple[int, int, int, int]:
        """The numbers of files that were written, files that were right, deletions, and files that were replaced.

        What was in deleted folders does not count. A file that was replaced is one of those that were written.
        """

    @property
    def links_left_out(self) -> list[str]:
        """The paths of symbolic links that lead out of the tree and are not made."""

    @property
    def unrestored_xattrs(self) -> list[tuple[str, str, int]]:
        """Recorded extended attributes that are not restored: the first path, the name and the number of each."""

    @property
    def has_enough(self) -> bool:
        """Whether so many files wait to be requested that no more should be added."""

    @property
    def written(self) -> int:
        """Bytes written to files so far."""

    def stop(self) -> None:
        """Let every call and all threads end soon: nothing more is written. Idempotent."""

    def close(self) -> None:
        """Stop writing, and wait until the threads have ended. Idempotent."""

class PayloadSink:
    """Takes the answers to one request of a `FolderWriter`: a CAR with the payloads that `cids` names.

    After an answer that was truncated, another CAR may follow (`restart`).
    """

    @property
    def cids(self) -> list[str]:
        """The CIDs to request, in this order."""

    @property
    def size(self) -> int | None:
        """The sum of the sizes of the payloads to request; None if one of them is not known."""

    @property
    def received(self) -> int:
        """Number of bytes of payloads that have come and need not come again, as far as is known."""

    def write(self, chunk: Buffer) -> None:
        """Take the next bytes of the answer: a thread parses, verifies and writes them. O(1).

        Waits, with the GIL released, while 32 MiB of all sinks wait for threads.

        Raises:
            ProofError: If bytes that were taken before are not the requested payloads.
            InvalidInput: If a path can't be made here, or a file's parts have other sizes; the message names the path.
            OSError: If the system refuses something.
        """

    def writelines(self, chunks: Sequence[Buffer]) -> None:
        """Take the next bytes of the answer as several chunks. O(chunks). Waits and raises as `write`."""

    def restart(self) -> None:
        """Keep the payloads that are complete. The answer to a request for `cids`, the others, is written next."""

    def finish(self) -> list[str]:
        """Wait until all that has been taken is written, and return the CIDs of the payloads that did not arrive.

        Raises:
            ProofError, InvalidInput, OSError: As `write`. Also `ProofError` if the answer is not complete.
        """

def chunk_sizes(data: Buffer) -> list[int]:
    """Return the lengths of the chunks into which the bytes of a file are cut (protocol section 7).

    O(bytes); the GIL is released above 32 KiB. A file of at most 262,144 bytes is one chunk; a longer one is cut by its
    content, so that after a change most chunks are the same.

    Args:
        data: All bytes of the file.

    >>> chunk_sizes(bytes(262_144)), chunk_sizes(bytes(262_145)), chunk_sizes(b"")
    ([262144], [262144, 1], [0])
    """

def hash_survey(
    found: Survey,
    suite: str = "sha2-256",
    known: Mapping[int, tuple[CidLike, int]] | None = None,
    xattrs: bool = False,
    progress: Callable[[int], object] | None = None,
) -> HashedFolder:
    """Read and hash the files of a survey on all cores, with the GIL released. Each byte is read once. O(bytes).

    A file that changes while it is read is read again, at most three times. If the bytes that it had at first are the
    same again, it has only grown, and these bytes are its content; otherwise it is skipped and reported. Each thread
    reads into 2 MiB of memory.

    Args:
        found: The survey.
        suite: The hash function of lists and maps: ``sha2-256`` or ``blake3``.
        known: The targets and sizes of files that need not be read, by their positions in the survey.
        xattrs: Whether extended attributes are read as well.
        progress: Called about every 50 milliseconds with the number of bytes that were read since, in the caller's
            thread. An exception that it raises ends the work.

    Raises:
        InvalidInput: If `suite` is neither of these, or a known target is not that of a file of a folder.
        IndexError: If a known target belongs to no file of the survey.
        KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a").write_bytes(b"hello")
    ...     hashed = hash_survey(survey(folder))
    >>> hashed.target(0) == payload_cid(b"hello")
    True
    """

def survey(
    top: str | os.PathLike[str],
    exclude: Sequence[str] = (),
    gitignore: bool = False,
    purpose: Literal["add", "keep", "strict", "as-added"] = "add",
    named: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Survey:
    """Walk a folder on all cores, with the GIL released, and return what it has. O(entries).

    Symbolic links are not followed, except for `top` itself. Anything else, and what cannot be read, is
    skipped and reported; so is a file or folder of `top` that is named ``.coregw``, which is reserved. Folders and
    files that patterns exclude are not entered and not reported.

    Patterns are those of git, which compares bytes. Those of `exclude` come first; then those of ``.coregwignore``
    files, of the nearest one first; then ``.git`` is excluded. A pattern that begins with ``!`` includes what later
    ones exclude.

    Args:
        top: The folder, or a single file, whose path is its name.
        exclude: Patterns, relative to `top`.
        gitignore: Whether ``.gitignore`` files also count, each after the ``.coregwignore`` beside it.
        purpose: ``add``; or ``keep``, the same, but names that are not UTF-8 and paths that are too long are skipped.
            Or ``strict``: in addition, no file of patterns counts, and ``.git`` is not excluded. Or ``as-added``: as
            ``keep``, but special files and ``.coregw`` are excluded, and a file of patterns counts only if it is not a
            link, and not excluded itself.
        named: For ``as-added``: the targets of files that a root names, by their paths. Then the files of patterns that
            have these targets count, and no others.
        progress: Called about every 50 milliseconds with the number of entries that were found since, in the caller's
            thread. An exception that it raises ends the walk.

    Raises:
        InvalidInput: If a name is not UTF-8 or a path exceeds 4,096 bytes (code ``invalid_path``; the message names the
            file), a file of patterns cannot be read, a pattern is malformed, or `top` is neither a folder nor a regular
            file.
        OSError: If `top` cannot be read.
        KeyboardInterrupt: If the process gets SIGINT meanwhile, in the main thread.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a", "b.o"):
    ...         _ = pathlib.Path(folder, name).write_bytes(b"hello")
    ...     found = survey(folder, exclude=["*.o"])
    >>> [(entry.path, entry.kind, entry.size) for entry in found]
    [('a', 'file', 5)]
    """

def verify_keys(root: CidLike, paths: Iterable[PathLike], proof: Buffer) -> list[str | None]:
    """Verify one proof of many paths of a map: a multiproof (protocol section 4, *get(keys)*).

    O(nodes shown) hashes. A proof has at most 16 MiB.

    Args:
        root: The trusted root of the map.
        paths: The requested paths, in text form or as segments, in any order.
        proof: The proof that came with the answer.

    Returns:
        For each path, in the order of `paths`, the target's CID as text, or None if the path is proven absent.

    Raises:
        ProofError: If `proof` does not prove all of them, or shows more than they need. The message names the check
            that failed, and where.
        InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), a path is malformed or occurs twice,
            or there are none or more than 10,000. The message names its place.

    >>> m = Map({"a": payload_cid(b"hello")})
    >>> verify_keys(m.root, ["a", ["b", "c"]], m.prove_keys(["a", "b/c"])) == [payload_cid(b"hello"), None]
    True
    """

def verify_index(root: CidLike, index: int, proof: Buffer) -> Element:
    """Verify the proof of a list's element, or that the list is shorter (protocol section 4, *get*).

    O(log n) hashes. A proof has at most 2,892,588 bytes.

    Args:
        root: The trusted root of the list.
        index: The index, from 0.
        proof: The proof that came with the answer.

    Returns:
        ``Element(target, size, length)``; target and size are None if the list is shorter.

    Raises:
        ProofError: If `proof` does not prove either. The message names the check that failed, and where.
        InvalidInput: If `root` is not the root of a list (code ``kind_mismatch``), or `index` is not from 0 to
            2^53 - 1.

    >>> l = List([payload_cid(b"hello")], sizes=[5])
    >>> verify_index(l.root, 0, l.prove(0)) == (payload_cid(b"hello"), 5, 1)
    True
    >>> verify_index(l.root, 7, l.prove(7))
    Element(target=None, size=None, length=1)
    """

def verify_range(root: CidLike, start: int, end: int | None, proof: Buffer) -> Range:
    """Verify a range proof: all elements of a list that overlap a range of its measure (section 4, *range*).

    O(log n + elements) hashes. A proof has at most 16 MiB.

    Args:
        root: The trusted root of the list.
        start: The start of the range, in units of the list's measure (bytes, where sizes are bytes).
        end: The end of the range, exclusive; None, or anything past the total, means the total.
        proof: The proof that came with the answer.

    Returns:
        ``Range(segments, sizes, offset, length, total_size)``.

    Raises:
        ProofError: If `proof` does not prove the elements. The message names the check that failed, and where.
        InvalidInput: If `root` is not the root of a list (code ``kind_mismatch``), or a bound is not from 0 to
            2^53 - 1.

    >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
    >>> found = verify_range(l.root, 7, None, l.prove_range(7))
    >>> found.segments == [payload_cid(b"world!")], found.offset, found.total_size
    (True, 5, 11)
    """

def verify_scan(root: CidLike, prefix: PathLike, after: PathLike | None, limit: int, proof: Buffer) -> Scan:
    """Verify a listing proof: a complete page of a map's entries (protocol section 4, *scan*).

    O(depth + entries) hashes. A proof has at most 16 MiB.

    Args:
        root: The trusted root of the map.
        prefix: The path whose subtree is listed, the path itself included; empty for the whole map.
        after: The whole path (prefix included) after which the page starts, or None.
        limit: The largest number of entries, at least 1. It must be that of the request: the proof depends on it.
        proof: The proof that came with the answer.

    Returns:
        ``Scan(entries, more, proof)``.

    Raises:
        ProofError: If `proof` does not prove the page. The message names the check that failed, and where.
        InvalidInput: If `root` is not the root of a map (code ``kind_mismatch``), a path is malformed, `after` is not
            below `prefix`, or `limit` is not from 1 to 2^53 - 1.

    >>> m = Map({"a/b": payload_cid(b"hello"), "a/c": payload_cid(b"world"), "d": payload_cid(b"")})
    >>> page = verify_scan(m.root, "a", None, 10, m.scan("a", limit=10).proof)
    >>> [segments for segments, _ in page.entries], page.more
    ([['a', 'b'], ['a', 'c']], False)
    """

def verify_changes(root: CidLike, changes: Sequence[Change], proof: Buffer) -> str:
    """Derive the new root of a map or list from changes and their transition proof (protocol section 5, *transition*).

    O(changes x depth) hashes. A proof has at most 16 MiB. Whether to accept the new root is the caller's decision.

    Args:
        root: The trusted root before the changes.
        changes: The caller's own changes, in any order; coordinates are paths for a map, indices for a list.
        proof: The proof that came with the receipt.

    Returns:
        The new root CID, as text.

    Raises:
        ProofError: If `proof` does not show all that the changes touch, or a `before` differs from the tree. The
            message names the check that failed.
        Conflict: If the changes contradict each other or one changes nothing (code ``invalid_change``).
        InvalidInput: If `root` is not a root (code ``kind_mismatch``), there are no changes, or one is malformed.

    >>> m = Map({"a": payload_cid(b"old")})
    >>> changes = [Change("a", payload_cid(b"old"), payload_cid(b"new"))]
    >>> verify_changes(m.root, changes, m.apply(changes).proof) == Map({"a": payload_cid(b"new")}).root
    True
    """

# Whole operations: request and result are JSON (bytes or str). Strict, as protocol section 5 says.
# A malformed request raises InvalidInput; anything wrong in the result raises ProofError.
def verify_resolve(request: Buffer | str, result: Buffer | str) -> str:
    """Verify the result of a resolve and return the target's CID. O(steps x depth) hashes.

    Args:
        request: The `core.resolve` request that the caller sent, as JSON.
        result: The result that it received, as JSON.

    Raises:
        InvalidInput: If the request is malformed.
        ProofError: If anything is wrong in the result.
    """

def verify_read(request: Buffer | str, result: Buffer | str) -> ReadOutcome:
    """Verify the result of a read, or the details of a 404 that prove an absence. O(depth + segments) hashes.

    Args:
        request: The `core.read` request that the caller sent, as JSON.
        result: The result that it received, as JSON.

    Raises:
        InvalidInput: If the request is malformed.
        ProofError: If anything is wrong in the result.
    """

def verify_map_proof(request: Buffer | str, result: Buffer | str) -> str | list[str | None] | None:
    """Verify a map proof and return the target's CID, or None if the key is proven absent. O(nodes shown) hashes.

    Args:
        request: The `core.map-proof` request that the caller sent, as JSON: with `key`, or with `keys` and then one
            multiproof for all of them.
        result: The result that it received, as JSON.

    Returns:
        The target's CID or None; for a request with `keys`, a list of them in the order of the request.

    Raises:
        InvalidInput: If the request is malformed.
        ProofError: If anything is wrong in the result.
    """

def verify_scan_result(request: Buffer | str, result: Buffer | str) -> Scan:
    """Verify one page of a listing: its entries are all there are, and whether more follow. O(depth + entries) hashes.

    Args:
        request: The `core.scan` request that the caller sent, as JSON.
        result: The result that it received, as JSON.

    Raises:
        InvalidInput: If the request is malformed.
        ProofError: If anything is wrong in the result.
    """

def verify_transition(request: Buffer | str, receipt: Buffer | str) -> str:
    """Derive the new root of a mutation from the caller's own changes, and check the receipt against it.

    The changes are replayed on the pruned trees in the receipt. O(changes x depth) hashes.

    With ``commit.fixed_list`` this proves that the result is a fixed list if the delta's object was one with the same
    chunk size, or is new. Otherwise the sizes of unchanged elements are proven only as far as the receipt shows them.

    Args:
        request: The mutation request as JSON, with the base root that the caller chose as its member `root`.
        receipt: The receipt that it received, as JSON. The request must have had `"prove": true`.

    Raises:
        InvalidInput: If the request is malformed.
        Conflict: If the request contradicts itself.
        ProofError: If anything is wrong in the receipt; `step` is the delta concerned.
    """

class Diff(NamedTuple):
    """A complete page of the differences between two maps, in key order."""

    entries: list[tuple[list[str], str | None, str | None]]
    """Triples of the path's segments, the target before and the target after; None for an absent one."""
    more: bool
    """Whether the window has differences after the last entry."""

def verify_diff(
    a: CidLike,
    b: CidLike,
    response: Buffer | str,
    prefix: PathLike | None = None,
    after: PathLike | None = None,
    limit: int | None = None,
) -> Diff:
    """Verify one page of the differences between two maps: its entries are all there are (docs/protocol.md, *diff*).

    Args:
        a: The root of the first map.
        b: The root of the second map, of the same suite.
        response: The response, as JSON.
        prefix: The requested prefix; None for the whole maps.
        after: The path after which the page starts; None for the first page.
        limit: The requested limit, from 1 to 1000; None for 1000.

    Raises:
        InvalidInput: If a root or a parameter is invalid.
        ProofError: If anything is wrong in the response; `step` 0 is the proof of `a`, 1 that of `b`.
    """

def root_block(root: CidLike, page: Buffer) -> bytes:
    """Return the block that a root CID names: the encoding of the tree's top node (protocol sections 1 and 3).

    Args:
        root: A root CID.
        page: The stored page with its digest.

    Raises:
        InvalidInput: If the CID is not a root.
        StoreDamaged: If the page does not have the root's digest.
    """

class PageLinks(NamedTuple):
    """A stored page that has its digest, and what it leads to."""

    root: bytes
    """The binary CID of the root whose top node the page begins with, whether the store holds it or not."""
    pages: list[bytes]
    """The digests of the pages below it, 32 bytes each, in tree order."""
    roots: list[bytes]
    """The binary CIDs of the roots that its leaves name."""
    payloads: list[bytes]
    """The multihashes of the payloads that its leaves name, without identity CIDs."""

@final
class KeyFilter:
    """A set of keys in a bounded number of bytes, which may claim to hold others, and never denies one that was added.

    With 16 bits of memory for each key, one in 1,000 claims is false; with 8 bits, one in 40. The hash is keyed at
    random, so nobody can choose keys that the filter confuses. Threads may share one.

    Args:
        size: Its size in bytes.

    >>> keys = KeyFilter(1024)
    >>> keys.add([b"key"])
    >>> keys.may_hold([b"key", b"another"])
    [True, False]
    """

    def __new__(cls, size: int) -> KeyFilter: ...
    def add(self, keys: Sequence[Buffer]) -> None:
        """Add keys. O(1) each."""
    def add_payloads_of(self, pages: Sequence[tuple[Buffer, Buffer]]) -> list[bool]:
        """Add the multihashes of the payloads that pages lead to.

        O(bytes) hashing, up to four times of a damaged page; the GIL is released for more than a few pages.

        Args:
            pages: Pairs of a digest (32 bytes) and the page that is stored under it.

        Returns:
            For each pair whether the page has the digest. If not, nothing of it was added.
        """
    def may_hold(self, keys: Sequence[Buffer]) -> list[bool]:
        """Return whether each key may have been added. O(1) each."""

def page_links(pages: Sequence[tuple[Buffer, Buffer]], *, payloads: bool = True) -> list[PageLinks | None]:
    """Check stored pages against their digests, and list what each leads to.

    O(bytes) hashing, up to four times of a damaged page; the GIL is released for more than a few pages.

    Args:
        pages: Pairs of a digest (32 bytes) and the page that is stored under it.
        payloads: Whether to list payloads, which are most of what pages lead to.

    Returns:
        For each pair a `PageLinks`, or None if the page is malformed or does not have the digest.

    >>> page_links([(bytes(32), b"no page")])
    [None]
    """

def page_guides(pages: Sequence[tuple[Buffer, Buffer]]) -> list[tuple[bytes, list[bytes], list[bytes]]]:
    """Return which inner pages below pages of maps lead to which keys, so that a store can follow a key through them.

    Checks nothing, so the result is only a hint: malformed pages and those of lists are left out. O(bytes).

    Args:
        pages: Pairs of a digest (32 bytes) and the page.

    Returns:
        For each page above inner pages: its digest; the least key below each of these, in order; and their digests.

    >>> page_guides([(bytes(32), b"no page")])
    []
    """

def apply_difference(difference: Buffer, base: Buffer) -> bytes | None:
    """Return the page that a difference makes of its base, the page whose digest is its first 32 bytes.

    O(bytes). The digest of the result is not checked.

    Returns:
        The page; None if the difference is malformed, or to another page.

    >>> apply_difference(bytes(32) + bytes([4, 8, 3]) + b"new", b"The old page")
    b'The new'
    """

def join_differences(first: Buffer, second: Buffer, size: int) -> bytes | None:
    """Return the difference that makes of one page what two differences make of it, one after the other. O(bytes).

    Args:
        first: A difference.
        second: A difference to the page that the first one makes.
        size: The size in bytes of the page that both make.

    Returns:
        The difference; None if one is malformed, or if it takes more than an eighth of the page.

    >>> joined = join_differences(bytes(32) + bytes([1, 1, 1]) + b"x", bytes(32) + bytes([2, 1, 1]) + b"y", 400)
    >>> apply_difference(joined, b"abcd")
    b'axyd'
    """

class ReadOutcome(NamedTuple):
    """What a verified read proves: a key, an element or a range (protocol section 5, *read*)."""

    present: bool
    """False if the key or index is proven absent."""
    target: str | None
    """The target's CID as text; of a range, the list's; None if absent."""
    segments: list[str] | None
    """Of a range, the targets' CIDs as text, in order; otherwise None."""
    sizes: list[int] | None
    """Of a range, the measures of its elements; otherwise None."""
    offset: int | None
    """Of a range, the start of its first element; None if it has none."""
    length: int | None
    """Of a list, the number of its elements; otherwise None."""
    total_size: int | None
    """Of a range, the sum of all measures of the list; otherwise None."""

def read_has_batch(body: Buffer) -> list[Cid]:
    """Read a JSON body of ``POST /v1/cas/has``, and return the CIDs that it names. O(bytes).

    Args:
        body: The JSON text.

    Raises:
        InvalidInput: If the request is malformed. If a CID is invalid, the message names it, and `details` is
            ``{"index": ...}``.
        TooLarge: If there are more than 4,096 CIDs.
    """

def read_cids(body: Buffer) -> list[bytes]:
    """Read a binary body of ``POST /v1/cas/has``, and return the multihashes of its CIDs. O(bytes).

    Args:
        body: Binary CIDs, one after the other.

    Raises:
        InvalidInput: If something is not a CID. The message names it, and `details` is ``{"index": ...}``.
        TooLarge: If there are more than 16,384 CIDs.
    """

def read_get_batch(body: Buffer) -> list[Cid]:
    """Read a body of ``POST /v1/cas/car``, and return the CIDs that it names. O(bytes).

    Args:
        body: The JSON text.

    Raises:
        InvalidInput: If the request is malformed. If a CID is invalid, or is a root, the message names it, and
            `details` is ``{"index": ...}``.
        TooLarge: If there are more than 4,096 CIDs.
    """

def read_get_pages(body: Buffer) -> list[bytes]:
    """Read a body of ``POST /v1/pages/car``, and return the digests that it names. O(bytes).

    Args:
        body: The JSON text.

    Raises:
        InvalidInput: If the request is malformed. If something is not a digest, the message names it, and `details` is
            ``{"index": ...}``.
        TooLarge: If there are more than 1,024 digests.
    """

def resolve_verdict(body: Buffer) -> bytes:
    """Return whether a resolve result is proven, and why not, as JSON. O(steps x depth) hashes.

    Raises:
        InvalidInput: If the body is not `{"request": ..., "result": ...}`, or the request is malformed.
    """

def read_verdict(body: Buffer) -> bytes:
    """Return whether a read result, or the details of a 404, is proven, as `resolve_verdict` does.

    Raises:
        InvalidInput: As `resolve_verdict`.
    """

def check_integer(value: int, name: str, least: int = 0) -> int:
    """Return an int from `least` to 2^53 - 1, the bound of every count, measure, index and revision of the protocol.

    Args:
        value: An int, or what can be an index. A bool is none.
        name: What it is, for messages.
        least: The least that it may be.

    Raises:
        InvalidInput: If it is out of range.
        TypeError: If it is a bool, a float or no number.

    >>> check_integer(7, "revision", 1)
    7
    """

def check_json(body: Buffer, int64: bool = False) -> None:
    """Check JSON text against the rules of protocol section 5 that hold for every message. O(bytes).

    There are no duplicate members, the nesting is at most 32, integers are from 0 to 2^53 - 1 and written as plain
    digits, strings are valid UTF-8, and nothing follows the value. Types and members are not checked.

    Args:
        body: The JSON text.
        int64: Accept any integer from -2^63 to 2^63 - 1 instead.

    Raises:
        InvalidInput: If a rule is broken; the message names line and column.

    >>> check_json(b'{"a": [1, 2]}')
    >>> check_json(b'{"id": -9007199254740993}', True)
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
    def remember(self, root: CidLike, generation: int) -> None:
        """Remember that the store holds a root, so that operations do not ask for it.

        Args:
            root: The binary CID of the root.
            generation: `generation`, as it was before the store was asked.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    def is_held(self, root: CidLike) -> bool:
        """Return whether the store is known to hold a root, given as binary CID.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    def bases(self, root: CidLike) -> list[Cid]:
        """Return what a tree is known to be made of by changes: the root of its base, of the base of that, and so on.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    def expire(self) -> None:
        """Begin another generation: some roots have expired. For any thread."""
    def __len__(self) -> int: ...
    @property
    def generation(self) -> int:
        """How often roots have expired. What was read from the store in an earlier generation is not known any more."""
    @property
    def max_bytes(self) -> int:
        """Bound of the memory for pages, in bytes."""
    @property
    def used_bytes(self) -> int:
        """Memory of the cached pages, in bytes."""
    @property
    def hits(self) -> int:
        """Number of lookups that found their page."""
    @property
    def misses(self) -> int:
        """Number of lookups that did not find their page."""

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
    def renewal(self) -> list[bytes] | None:
        """Binary root CIDs: renew those that the store holds, and pass to `supply_roots` which these are; or None."""
    @property
    def trees(self) -> list[bytes] | None:
        """Binary CIDs of roots, one for each page of the need, which is in the tree of that root; or None."""
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
    def leaves(self) -> tuple[Cid, bytes] | None:
        """The root of a tree in a CAR, and lines of its leaves in order: use them, then call `poll`; or None."""
    @property
    def payloads(self) -> list[tuple[int, int]] | None:
        """The (start, end) of blocks (CID and data) of the CAR: store their payloads, then call `poll`; or None."""
    @property
    def store(
        self,
    ) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]], list[bytes], list[bytes]] | None:
        """Pages, differences, and roots to store durably if further roots are held; then call `poll`; or None.

        The pages are (digest, page) pairs. Of some, there are differences by digest, which may be stored instead
        (`apply_difference`).
        """

@final
class Operation:
    """A query, batch, diff, mutation, import or export on stored trees. Does no I/O.

    Call `poll` until it returns the response; in between, meet the need that it returns.
    """

    since: int | None
    """The store's time when its first pages were put without a root record; the driver sets it."""
    busy_seconds: float
    """The time that `poll` has taken so far, in seconds, without waiting for the GIL."""
    lookahead: list[tuple[bytes, list[bytes]]]
    """What it will look for in the trees of roots for which it waits, as far as it knows: for each such root (a binary
    CID) the keys, as bytes, or where a listing begins. Pages on the paths to them may be read early.
    """
    held_bytes: int
    """The memory of what the operation holds, in bytes: the nodes that its current query has visited and made, the arcs
    of a new map and the pages that are made of them, or the index of a CAR.
    """
    @staticmethod
    def resolve(cache: PageCache, request: Buffer) -> Operation:
        """Return an operation for a `core.resolve` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def read(cache: PageCache, request: Buffer) -> Operation:
        """Return an operation for a `core.read` request. Its response is the result.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def map_proof(cache: PageCache, request: Buffer, *, bare: bool = False) -> Operation:
        """Return an operation for a `core.map-proof` request. Its response is the result, or the proof alone.

        Args:
            cache: The page cache.
            request: The request, as JSON.
            bare: Whether the response is the bytes of the proof, and nothing else.

        Raises:
            InvalidInput: If the request is malformed.
        """
    @staticmethod
    def scan(cache: PageCache, request: Buffer) -> Operation:
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
    def resolve_batch(cache: PageCache, request: Buffer, max_bytes: int) -> Operation:
        """Return an operation that answers the body of `POST /v1/resolve/batch`: many paths of one root, on all cores.

        Its response is `{"results": [{"result": ...} or {"error": ...}, ...]}`: each outcome is what a resolve of that
        path alone would have answered. A limit of nodes (`limit_nodes`) is for all paths together.

        Args:
            cache: The page cache.
            request: The body.
            max_bytes: Bound of all outcomes together, in bytes.

        Raises:
            InvalidInput: If the request is malformed. If a path is invalid, `details` is `{"index": ...}`.
            TooLarge: If there are more than 1,000 paths.
        """
    @staticmethod
    def create_root(cache: PageCache, request: Buffer) -> Operation:
        """Return an operation that makes and stores a map, from the body of `POST /v1/roots`. O(n log n).

        Its response is `{"root": ...}`.

        Raises:
            InvalidInput: If the request is malformed; the message names the arc.
        """
    @staticmethod
    def build_root(cache: PageCache, arcs: ArcSorter, suite: str) -> Operation:
        """Return an operation that makes and stores the map of arcs that are sorted, page by page. O(n) hashing.

        Its response is `{"root": ...}`. Its root is recorded at the end: if it raises `InvalidInput`, naming a path
        that two arcs have, only pages are stored, which are garbage.

        Raises:
            InvalidInput: If the arcs have not ended, or `suite` is unknown.
        """
    @staticmethod
    def mutate(cache: PageCache, base_root: CidLike, request: Buffer) -> Operation:
        """Return an operation that applies the body of `POST /v1/roots/{root}/mutations`, and stores the results.

        Its response is the receipt. If it raises `Conflict` or `InvalidInput`, naming the delta and the coordinate, it
        has stored no root.

        Raises:
            InvalidInput: If the request is malformed, or `base_root` is a payload.
        """
    @staticmethod
    def export_car(
        cache: PageCache,
        root: CidLike,
        with_payloads: bool,
        output_bytes: int,
        after: CidLike | None = None,
        occurrence: int = 1,
    ) -> Operation:
        """Return an operation that outputs a root as CARv1, about `output_bytes` at a time. Its response is empty.

        With `after`, it outputs the header and the blocks that follow the one with this CID, or, if the CID occurs
        repeatedly, that occurrence of it. If there is none, it raises `InvalidInput` before it outputs anything.

        Raises:
            InvalidInput: If the CID is not a root.
        """
    @staticmethod
    def check_complete(cache: PageCache, root: CidLike, complete: CidLike | None = None) -> Operation:
        """Return an operation that visits the tree of a held root, and those of the roots nested in it.

        It outputs the payloads that they name, without bytes, and without those below `complete`, a root that is held
        completely. Its response is the CID of a nested root that is not held completely, or empty.

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

        Its response is `{"roots": [...], "missing_payloads": ..., "missing_roots": ...}`: the roots whose trees are
        whole, and the numbers of leaves whose payload or nested root is not in the CAR. It raises as an import does.
        """
    @staticmethod
    def list_car(reader: CarReader) -> Operation:
        """Return an operation that checks a CAR as `check_car` does, and then lists the leaves of each tree as lines.

        The lines are `["path", "CID"]` of a map and `["CID", measure]` of a list. Trees nested in others come first,
        those of the header last. A list of a CAR can have 2^50 elements: drop the operation when there are too many.
        """
    def limit_nodes(self, nodes: int) -> None:
        """Let the operation visit at most `nodes` nodes in all; beyond that, `poll` raises `TooLarge`.

        Writing 64 bytes of a response counts as one node, and starting a lookup of a resolve as 32. No limit is set
        without this call.
        """
    def poll(self, budget: int, seconds: float = 0.0) -> bytes | Need:
        """Run until the operation ends or waits: the response body, or the need.

        Args:
            budget: Approximate number of nodes to visit before `Need.budget`.
            seconds: Instead of returning `Need.budget`, go on with a new budget until this time is over.

        Raises:
            RootNotFound: If a root is not held.
            PathNotFound: If a path does not resolve; for a read, `details` has the prooflist of the proven absence.
            IndexNotFound: If a list is shorter; `details` as for `PathNotFound`.
            TooLarge: If a limit is exceeded.
            Conflict: If a change does not fit.
            StoreDamaged: If stored trees are damaged.
        """
    def supply_pages(self, pages: Sequence[Buffer | None]) -> None:
        """Supply the pages of the need, in its order; None is a page that the store does not have.

        Raises:
            StoreDamaged: If a page is None or does not have its digest; the message names it.
        """
    def supply_roots(self, held: Sequence[bool]) -> None:
        """Supply whether the store has a record of each root of the need, in its order."""
    def supply_bytes(self, data: Buffer) -> None:
        """Supply the bytes of the need's span."""

@final
class ArcSorter:
    """Sorts the arcs of a map of any size, in memory for about four runs, and a temporary file for the others.

    The file has no name, and disappears with the sorter or the process. `end` comes after all arcs, and before `root`,
    `lines` and `Operation.build_root`, which may each be used any number of times. After an exception, the sorter must
    not be used any more.

    Args:
        folder: Where the file is; None is the system's folder for temporary files.
        format: What `feed` reads, ``ndjson`` (lines of ``["path", "CID"]``) or ``tsv`` (a path, a tab and a CID).
        run_bytes: Memory of a run, in bytes.

    Raises:
        InvalidInput: If `format` is neither of these.

    >>> sorter = ArcSorter()
    >>> sorter.add({"b": payload_cid(b"1"), "a": payload_cid(b"2")})
    >>> sorter.feed(b'["c","bafkqaaa"]')
    >>> sorter.end()
    >>> sorter.root() == Map({"a": payload_cid(b"2"), "b": payload_cid(b"1"), "c": "bafkqaaa"}).root
    True
    """

    def __new__(
        cls, folder: str | os.PathLike[str] | None = None, format: str = "ndjson", run_bytes: int = 33554432
    ) -> ArcSorter: ...
    def feed(self, data: Buffer) -> None:
        """Read the next bytes of lines of arcs. O(bytes); a full run is sorted in a separate thread.

        Raises:
            InvalidInput: If a line is malformed (code ``invalid_path`` or ``invalid_cid`` if only that is). The message
                names its number. Or if a path occurred twice.
            OSError: If the file cannot be written.
        """
    def add(self, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]]) -> None:
        """Add arcs. O(arcs); a full run is sorted in a separate thread.

        Args:
            arcs: A mapping from path to CID, or pairs of the two.

        Raises:
            InvalidInput: If a path or CID is malformed (code ``invalid_path`` or ``invalid_cid``); the message names
                the arc. Or if a path occurred twice.
            OSError: If the file cannot be written.
        """
    def end(self) -> None:
        """Note that all arcs have been added, and wait until they are sorted.

        Raises:
            InvalidInput: If the last line is malformed, or a path occurred twice.
            OSError: If the file cannot be written.
        """
    @property
    def arcs(self) -> int:
        """The number of arcs so far."""
    @property
    def spooled_bytes(self) -> int:
        """The bytes of the temporary file."""
    def root(self, suite: str = "sha2-256") -> str:
        """Return the root of the map of all arcs, as text. O(n) hashing, in memory for some pages.

        Raises:
            InvalidInput: If two arcs have the same path; the message names it. If `suite` is unknown.
            TooLarge: If too many paths of thousands of bytes continue each other.
        """
    def lines(self, size: int) -> SortedLines:
        """Iterate over all arcs in key order: chunks of lines of ``["path","CID"]``, about `size` bytes.

        Raises:
            InvalidInput: If `size` is not from 1 byte to 1 GiB.
        """

@final
class SortedLines(Iterator[bytes]):
    """Iterates over sorted arcs as chunks of lines."""

    def __iter__(self) -> SortedLines: ...
    def __next__(self) -> bytes: ...

@final
class CarReader:
    """A push parser for the bytes of a CARv1 or CARv2, in chunks of any size, which checks the hash of every block.

    `Operation.import_car`, `check_car` and `list_car` continue with what it has read.

    Args:
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks. Each takes about 60 bytes of memory.

    >>> reader = CarReader(1 << 20, 1000)
    >>> reader.feed(b"")
    >>> reader.roots, reader.blocks, reader.bytes
    (None, 0, 0)
    """

    def __new__(cls, payload_bytes: int, blocks: int) -> CarReader: ...
    def feed(self, data: Buffer) -> None:
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
    def version(self) -> int | None:
        """The version of the CAR, 1 or 2, or None before its header is read."""
    @property
    def blocks(self) -> int:
        """Number of whole blocks so far."""
    @property
    def nodes(self) -> int:
        """How many of them are tree nodes."""
    @property
    def bytes(self) -> int:
        """Bytes so far."""
    @property
    def held_bytes(self) -> int:
        """The memory of what is noted about the blocks, in bytes."""
    @property
    def last_block(self) -> tuple[Cid, int] | None:
        """The last whole block, and which of those with its CID it is, from 1; None without one. O(blocks)."""
    @property
    def unfinished(self) -> tuple[Cid, int] | None:
        """The payload in which the bytes so far end, and where it starts in the CAR; None if they do not end in one."""
    def restart_unfinished(self) -> None:
        """Forget what was read of the unfinished payload: its first byte is read next."""
    def rewind(self) -> int:
        """Forget what follows the last whole block, also after an exception, and return where that block ends.

        The length of another block is read next. Of a CARv2, everything is forgotten.
        """
    def check_end(self) -> None:
        """Check that the bytes so far end after a whole block.

        Raises:
            InvalidInput: If they end inside the header or a block.
        """

def precondition_status(etag: bytes, if_match: bytes | None, if_none_match: bytes | None) -> int | None:
    """Return the status that the preconditions of a GET or HEAD lead to: 304, 412, or None if they are met.

    If-Match is evaluated first (RFC 9110 section 13.2.2). A malformed list of entity tags names none. O(bytes).

    Args:
        etag: The strong entity tag of the representation that would be sent, in quotes.
        if_match: The value of If-Match, or None.
        if_none_match: The value of If-None-Match, or None.

    >>> precondition_status(b'"a"', None, b'W/"a"'), precondition_status(b'"a"', b'"b"', b"*")
    (304, 412)
    """

def select_range(range: bytes | None, if_range: bytes | None, etag: bytes, size: int) -> tuple[int, int] | None:
    """Return the bytes that Range requests of `size` bytes, from and to (exclusive); None for all of them.

    Two equal numbers mean that the range contains none of the bytes, which is a 416. All bytes are sent if Range is
    malformed, has another unit or several ranges, or if If-Range is not `etag`. O(bytes).

    Args:
        range: The value of Range, or None.
        if_range: The value of If-Range, or None.
        etag: The strong entity tag of the representation, in quotes.
        size: Its number of bytes.

    >>> select_range(b"bytes=-3", None, b'"a"', 10), select_range(b"bytes=-3", b'"b"', b'"a"', 10)
    ((7, 10), None)
    """

def entity_bytes(text: str, size: int | None) -> tuple[int, int] | None:
    """Return the bytes of an entity that ``entity-bytes`` of a trustless gateway names, from and to (exclusive).

    A part of them outside of the entity is left out.

    Args:
        text: ``FROM:TO``, both inclusive, or ``FROM:*``; negative numbers count from the end.
        size: The number of bytes of the entity; None if it is unknown, and so is the result.

    Raises:
        InvalidInput: If `text` is malformed, or names only bytes outside of the entity.

    >>> entity_bytes("4:99", 10), entity_bytes("-3:*", None)
    ((4, 10), None)
    """

def is_media_type(value: bytes, offers: Sequence[str]) -> bool:
    """Whether a Content-Type is one of some media types: with no parameter that the offer has not with the same value.

    Args:
        value: The value of Content-Type. A malformed one is none of them.
        offers: Media types with all parameters that they may have.

    Raises:
        ValueError: If an offer is malformed.

    >>> is_media_type(b'Application/JSON; charset="UTF-8"', ["application/json; charset=utf-8"])
    True
    """

class FrontCounts(NamedTuple):
    """What was counted of the answers of a front."""

    routes: list[RouteTotals]
    """A `RouteTotals` for each method of a route that was used."""
    bodies: list[int]
    """Sizes of complete request bodies: their sum, then how many have each number of bits."""
    refusals: dict[str, int]
    """How often each code of errors was answered, if it was."""

class FrontFigures(NamedTuple):
    """What a front has counted, and holds now."""

    connections: int
    """Connections that are open."""
    requests: int
    """Requests that are not answered completely."""
    unsent_bytes: int
    """Bytes of answers that clients have not read."""
    buffered_bytes: int
    """Bytes of the bodies of hot requests."""
    no_room: int
    """Connections that were closed to make room, or not taken, and streams that were refused."""
    unread_responses: int
    """Connections whose clients read nothing when memory was short."""
    slow_reader: int
    """Connections whose clients read too slowly."""
    floods: int
    """Connections whose clients gave up one request after the other."""
    exhausted: int
    """How often the system had no descriptor or memory for a connection."""
    jobs: int
    """Calls for queries that run on threads for work, or wait for one."""
    dropped_lines: int
    """Lines of the log that were dropped, since nobody took them."""

class FrontLimits(NamedTuple):
    """The limits of a front. Times are in seconds."""

    threads: int
    """Threads for connections."""
    connections: int
    """Connections at once."""
    connections_per_address: int
    """Those of one address."""
    unsent_bytes: int
    """Memory for answers that clients have not read."""
    buffered_bytes: int
    """Memory for the bodies of hot requests."""
    buffered_bytes_per_address: int
    """What those of one address may have of it, small bodies aside."""
    payload_cache_bytes: int
    """Memory for small payloads."""
    log_bytes: int
    """Memory for lines of the log that nobody has taken."""
    head_bytes: int
    """The largest head of a request, and the largest trailers."""
    header_fields: int
    """Header fields of a request, at most 128."""
    head_seconds: float
    """Time for a head to arrive."""
    idle_seconds: float
    """Time from an answer to the next request."""
    min_rate_bytes: int
    """Bytes a second that a client has to send of a body, or read of an answer."""
    rate_grace_seconds: float
    """Time before that applies."""
    body_pause_seconds: float
    """The longest pause of a body."""
    body_seconds: float
    """Time for a whole body."""
    read_pause_seconds: float
    """The longest pause of a client that reads an answer."""
    drain_seconds: float
    """Time to discard what a client sends after its last answer."""
    json_body_bytes: int
    """The largest body that has no other limit."""
    verify_body_bytes: int
    """The largest body of the verify routes."""
    resolve_batch_body_bytes: int
    """The largest batch of resolves."""
    batch_answer_bytes: int
    """The largest answer to a batch of resolves."""
    payload_bytes: int
    """The largest payload."""
    change_body_bytes: int
    """The largest body of a new root and of a mutation."""
    node_budget: int
    """Nodes that a query visits before it leaves the thread of its connection."""
    max_nodes: int
    """Nodes that a query, or all of a batch, may visit."""
    operation_seconds: float
    """Time that a query may take."""
    long_queries: int
    """Queries of more than a millisecond at once."""
    worker_threads: int
    """Threads for long work, and as many for short work."""
    upstream_idle_seconds: float
    """Unused connections to the application are left after this time."""

class LoggedRequest(NamedTuple):
    """What is logged of a request."""

    client: str | None
    """The address of the client; None if it has none."""
    method: str
    """The method."""
    path: str
    """The path, decoded, as the client sent it: not everything in it may be logged."""
    id: str
    """The id of the request."""
    status: int | None
    """The status of the answer; None for a failure."""
    bytes: int
    """Bytes of the body that were sent."""
    seconds: float
    """Time from the head of the request to the end of the answer."""
    failure: str | None
    """What has failed, or None."""

class ReadBatch(NamedTuple):
    """What one visit of a store is for."""

    id: int
    """What `StoreReads.supply` and `StoreReads.fail` are told."""
    pages: list[bytes]
    """Digests of pages, 32 bytes each."""
    roots: list[bytes]
    """Binary CIDs of roots whose records are wanted."""
    descents: list[tuple[bytes, list[bytes]]]
    """Digests of top pages of maps, each with keys to whose paths the inner pages may be read early."""
    payloads: list[bytes]
    """Binary multihashes of payloads: their sizes, and the bytes of small ones."""
    sizes: list[bytes]
    """Binary multihashes of payloads whose sizes are wanted."""
    chunks: list[tuple[bytes, int, int]]
    """Parts of payloads: the binary multihash, the start, and the end (exclusive)."""

class WriteBatch(NamedTuple):
    """What is written to a store at once."""

    id: int
    """What `StoreWrites.done` and `StoreWrites.fail` are told."""
    payloads: list[tuple[bytes, bytes]]
    """Payloads of at most 1 MiB: the binary multihash and the bytes of each."""
    trees: list[NewTrees]
    """Parts of trees."""
    renewals: list[list[bytes]]
    """Binary CIDs of roots to date as if they were stored now, a list for each request."""
    chunks: list[PayloadChunk]
    """Chunks of longer payloads, never two of one upload."""
    dropped: list[int]
    """Numbers of uploads that have ended otherwise than with a last chunk that was stored."""

class PayloadChunk(NamedTuple):
    """A part of a payload that arrives in chunks."""

    upload: int
    """The number of the upload."""
    data: bytes
    """1 MiB, or less in the last one."""
    ends: bytes | None
    """The binary multihash of the payload, which is stored with its last chunk; None for the others."""

class NewTrees(NamedTuple):
    """Pages and roots that are stored together or not at all. If all roots are held, they are dated instead."""

    pages: list[tuple[bytes, bytes]]
    """Digests and pages."""
    differences: list[tuple[bytes, bytes]]
    """Digests of some of the pages, and their differences to others; see `apply_difference`."""
    roots: list[bytes]
    """Binary CIDs of roots that are held from then on; without any, the pages need not be durable."""
    requires: list[bytes]
    """Binary CIDs of roots that must be held, since the trees share pages with theirs."""
    since: int | None
    """What the first write of the same change returned; None if this is the first."""

class RouteTotals(NamedTuple):
    """What was counted of one method of one route."""

    method: str
    """The method."""
    route: str
    """The template of the path."""
    statuses: dict[int, int]
    """How many answers had each status."""
    nanoseconds: list[int]
    """Times from heads to heads of answers: their sum, then how many have each number of bits."""
    sizes: list[int]
    """Sizes of the bodies of answers, in the same form."""

@final
class Listener:
    """A TCP socket that listens. Connections wait until a `Front` serves it.

    The unspecified address of IPv6 is every address, of IPv4 as well.

    Args:
        host: An IP address; that of a link has its scope as a number: ``fe80::1%2``.
        port: The port; 0 takes a free one.
        backlog: How many connections may wait.

    Raises:
        OSError: If the address is in use, does not exist, or may not be used.
        ValueError: If `host` is no IP address.

    >>> with_a_free_port = Listener("127.0.0.1", 0, 1)
    >>> with_a_free_port.address[0]
    '127.0.0.1'
    """

    def __new__(cls, host: str, port: int, backlog: int) -> Listener: ...
    @property
    def address(self) -> tuple[str, int]:
        """The IP address and the port."""
    def close(self) -> None:
        """Close the socket, unless a `Front` has taken it. Idempotent."""

@final
class Proxies:
    """The addresses that many clients share, so that no limit per address applies to them.

    Args:
        text: Addresses and networks, separated by commas, or ``none``.

    Raises:
        InvalidInput: If one of them is neither; the message names the setting.

    >>> proxies = Proxies("127.0.0.0/8, ::1")
    >>> proxies.key_of("127.0.0.1"), proxies.key_of("203.0.113.9"), proxies.key_of("2001:db8:1:2:3:4:5:6")
    (None, '203.0.113.9', '2001:db8:1:2::/64')
    """

    def __new__(cls, text: str) -> Proxies: ...
    def key_of(self, host: str | None) -> str | None:
        """Return what limits count a client under: its IPv4 address or IPv6 /64 network; None if no limit applies.

        Args:
            host: The client's address; None, or anything but an IP address, for a Unix socket.
        """

@final
class Certificate:
    """A certificate with its chain, and its key, as a `Front` shows them to clients that connect by TLS.

    Args:
        certificate: The path of the certificate and what leads to an authority, as PEM.
        key: The path of its private key, as PEM.

    Raises:
        InvalidInput: If a file cannot be read or holds no certificate or key, or if the two do not belong together; the
            message names the file.
    """

    def __new__(cls, certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> Certificate: ...
    def reload(self) -> None:
        """Read the files again, for connections that begin from now on. After an error they get the old certificate.

        Raises:
            InvalidInput: As the class.
        """

@final
class StoreReads:
    """What hot requests read from a store: a queue, from which threads of the caller take batches.

    Args:
        cache: What is known about the store. Pages that are read are parsed, and put into it.
        guided: Whether the store has guides, so that inner pages on the paths to keys can be read early.

    >>> reads = StoreReads(PageCache(1 << 20))
    >>> reads.close()
    >>> reads.next() is None
    True
    """

    def __new__(cls, cache: PageCache, guided: bool = False) -> StoreReads: ...
    @property
    def small_payload_bytes(self) -> int:
        """Payloads of at most so many bytes are read with their sizes."""
    def next(self) -> ReadBatch | None:
        """Wait, with the GIL released, until something is to be read. For any number of threads.

        Returns:
            A `ReadBatch`, which `supply` or `fail` answers; None when the queue was closed.
        """
    def supply(
        self,
        batch: int,
        pages: Iterable[Buffer | None],
        roots: Iterable[bool | None],
        early: Iterable[tuple[Buffer, Buffer]],
        payloads: Iterable[tuple[int, Buffer | None] | None],
        sizes: Iterable[int | None],
        chunks: Iterable[Buffer],
    ) -> None:
        """Answer a batch. O(bytes); pages are parsed with the GIL released. An unknown batch is ignored.

        Args:
            batch: The id of the batch. All lists are in its order.
            pages: Pages, None for one that is not stored.
            roots: Whether each root is complete, None for one that is not held.
            early: Digests and pages on the paths to the keys of the descents, in any order.
            payloads: Sizes, with the bytes of small payloads; None for one that is not held.
            sizes: Sizes; None for a payload that is not held.
            chunks: The parts of payloads.

        Raises:
            ValueError: If a digest does not have 32 bytes.
        """
    def fail(
        self, batch: int, kind: Literal["unavailable", "full", "damaged", "not_found", "internal"], message: str
    ) -> None:
        """Say why a batch was not read. An unknown batch is ignored.

        Args:
            batch: The id of the batch.
            kind: ``unavailable`` if the store does not answer, of which all requests of the batch learn; ``damaged`` or
                ``not_found`` if something stored is, or a payload is not held any more; ``internal`` for a failure that
                the caller has logged.
            message: A sentence for clients, or for the log if something is damaged.

        Raises:
            ValueError: If there is no such kind.
        """
    def close(self) -> None:
        """End the queue: requests fail from now on, and `next` returns None. Idempotent."""
    @property
    def figures(self) -> tuple[int, int]:
        """How many batches were taken, and how many pages were read. O(1)."""

@final
class StoreWrites:
    """What hot requests write to a store: a queue, from which threads of the caller take batches.

    Args:
        chunks: Whether it takes payloads of more than 64 KiB; those of more than 1 MiB come in chunks.

    >>> writes = StoreWrites()
    >>> writes.close()
    >>> writes.next() is None
    True
    """

    def __new__(cls, chunks: bool = False) -> StoreWrites: ...
    def next(self) -> WriteBatch | None:
        """Wait, with the GIL released, until something is to be written, and take all that waits, up to a size.

        Returns:
            A `WriteBatch`, of which `done` or `fail` is told; None when the queue was closed.
        """
    def done(
        self,
        batch: int,
        payloads: Iterable[tuple[str, str] | None],
        trees: Iterable[tuple[str, str] | int],
        renewals: Iterable[tuple[str, str] | list[bool]],
        chunks: Iterable[tuple[str, str] | None],
    ) -> None:
        """Say what became of a batch, when that is durable. An unknown batch is ignored.

        Args:
            batch: The id of the batch. All lists are in its order; a write without an outcome has failed.
            payloads: None for one that is stored; or why it is not, as the kind and the message of `fail`.
            trees: The store's time; or why they are not stored, where ``not_found`` is a required root.
            renewals: Which roots are held; or why that is not known.
            chunks: As of payloads; of a last chunk, whether the payload is stored.

        Raises:
            ValueError: If there is no such kind.
        """
    def fail(
        self, batch: int, kind: Literal["unavailable", "full", "damaged", "not_found", "internal"], message: str
    ) -> None:
        """Say why nothing of a batch is known to be written. An unknown batch is ignored.

        Args:
            batch: The id of the batch.
            kind: ``unavailable`` or ``full`` if the store takes nothing now; ``damaged`` if something stored is;
                ``internal`` for a failure that the caller has logged.
            message: A sentence for clients, or for the log if something is damaged.

        Raises:
            ValueError: If there is no such kind.
        """
    def close(self) -> None:
        """End the queue: what waits fails, and `next` returns None. Idempotent."""

@final
class Front:
    """The server of a gateway: it answers hot reads, and hands everything else to an application on a Unix socket.

    Args:
        reads: What hot requests read from the store.
        writes: Takes what hot requests write to the store.
        cache: What is known about the store.
        limits: How much clients may have, and how long they may take.
        hosts: As of `Origins`.
        allow_origin: As of `Origins`.
        listens_on: As of `Origins`.
        proxies: Addresses and networks that many clients share, separated by commas, or ``none``: no limit per address
            applies to them.
        codes: The statuses of all codes of errors.
        fields: Names and values of the header fields of all answers.
        upstream: The path of the application's socket.
        write_tokens: The SHA-256 digests of the bearer tokens whose holders may write; None if everybody may. Other
            requests that write are the application's.
        read_only: Whether nothing is renewed when clients ask which payloads are held.
        hot: Whether hot reads are answered here; otherwise the application answers all requests.
        access_log: Whether each answer is logged.

    Raises:
        InvalidInput: If one of the hosts is not a host name, or one of the proxies is neither an address nor a network.
        ValueError: If a header field is malformed, or a digest does not have 32 bytes.
    """

    def __new__(
        cls,
        reads: StoreReads,
        writes: StoreWrites,
        cache: PageCache,
        limits: FrontLimits,
        hosts: str,
        allow_origin: str,
        listens_on: str,
        proxies: str,
        codes: Mapping[str, int],
        fields: Sequence[tuple[str, str]],
        upstream: str | os.PathLike[str],
        write_tokens: Sequence[bytes] | None = None,
        read_only: bool = False,
        hot: bool = True,
        access_log: bool = False,
    ) -> Front: ...
    def serve(self, listeners: Sequence[Listener], patience: float, certificate: Certificate | None = None) -> None:
        """Accept connections until `stop` is called, with the GIL released; then finish the requests in progress. Once.

        It starts threads of its own. Signals are the main thread's, so another one calls this. At the end the log is
        closed.

        Args:
            listeners: The sockets, which are closed as soon as it stops.
            patience: The time for requests in progress to be finished after `stop`, in seconds.
            certificate: With one, all connections are by TLS, and of HTTP/2 if clients offer it.

        Raises:
            OSError: If the threads cannot be started, or the system has no room for the sockets.
            ValueError: If a listener is closed, or served already.
        """
    def stop(self) -> None:
        """Begin to end `serve`: no new connections, and idle ones are closed. For any thread; idempotent."""
    def figures(self) -> FrontFigures:
        """What the server has counted, and holds now: `FrontFigures`. O(connections)."""
    def counts(self) -> FrontCounts:
        """What was counted of the answers of this server, without those of the application: `FrontCounts`."""
    def take_log(self) -> list[LoggedRequest]:
        """Wait, with the GIL released, until something is to be logged, and return it: a list of `LoggedRequest`.

        Returns:
            At least one; none when `serve` has ended and all was taken. For one thread.
        """

class Origins:
    """Which hosts the requests to one server may name, and which web pages may write.

    Args:
        hosts: ``*``, ``auto``, or host names separated by commas. ``auto`` allows all hosts, but on loopback only
            addresses and names without a dot. Names besides these are allowed with addresses and names of localhost.
        allowed_origin: ``*`` or the origin whose pages may write besides the server's own.
        listens_on: The name or address that the server binds.

    Raises:
        InvalidInput: If one of the hosts is not a host name.

    >>> Origins("auto", "none", "127.0.0.1").refusal(b"GET", b"example.org", None, None)[0]
    'misdirected_request'
    """

    def __init__(self, hosts: str, allowed_origin: str, listens_on: str) -> None: ...
    def refusal(
        self, method: bytes, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> tuple[str, str] | None:
        """Return why a request is refused, as a code of errors and a sentence; None if it is not. O(bytes).

        Args:
            method: The method.
            host: The value of Host, or None.
            origin: The value of Origin, or None.
            site: The value of Sec-Fetch-Site, or None.
        """

def is_loopback(host: str) -> bool:
    """Whether a name or address to listen on is reachable from this machine only.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """

def negotiate(accept: bytes, offers: Sequence[str]) -> int | None:
    """Return the index of the media type that Accept wants most; None if it wants none of them.

    An offer has the weight of the most specific range that names it (RFC 9110 section 12.5.1); parameters that it does
    not have are ignored. Of offers of equal weight, the one that is named more exactly is chosen, then the one that is
    named first, then the first offer.

    Args:
        accept: The value of Accept. Malformed ranges are ignored.
        offers: Media types with their parameters.

    Raises:
        ValueError: If an offer is malformed.

    >>> negotiate(b"text/*;q=0.5, text/csv", ["text/plain", "text/csv"])
    1
    """

def payload_car_header() -> bytes:
    """Return the header of a CAR of payloads, with its length. It names the empty payload.

    >>> payload_car_header() == car_header("bafkqaaa")
    True
    """

def car_header(root: CidLike) -> bytes:
    """Return the header of a CARv1 with one root, with its length.

    >>> car_header("bafkqaaa").hex()
    '19a265726f6f747381d82a4500015500006776657273696f6e01'
    """

def block_head(cid: CidLike, size: int) -> bytes:
    """Return the bytes before the `size` bytes of a block in a CAR: the length of CID and block, and the CID.

    Raises:
        InvalidInput: If `size` is not from 0 to 2^53 - 1.

    >>> block_head("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", 5).hex()[:10]
    '2901551220'
    """

def block_heads(cids: list[Cid], payloads: list[bytes]) -> list[bytes]:
    """Return what `block_head` returns for each of these payloads. O(payloads).

    Raises:
        ValueError: If there are not as many payloads as CIDs.

    >>> block_heads([Cid("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq")], [b"hello"])[0].hex()[:10]
    '2901551220'
    """

def block_cid(data: Buffer) -> tuple[Cid, int]:
    """Return the CID at the start of a block of a CAR, after its length, and how many bytes it has there.

    `data` may end before the block does. A CIDv0 becomes a CIDv1.

    Raises:
        InvalidInput: If `data` does not start with a CID.
    """

def read_varint(data: Buffer, at: int = 0) -> tuple[int, int]:
    """Return the varint at byte `at`, and where it ends.

    Varints are those of multiformats: in minimal form, and at most 9 bytes long. `data` may end anywhere after it.

    Raises:
        InvalidInput: If there is none.

    >>> read_varint(bytes([7, 0xac, 0x02]), 1)
    (300, 3)
    """

@final
class Applied(NamedTuple):
    """Result of `Map.apply` and `List.apply`: the changed tree and its transition proof."""

    tree: Map | List
    """The new `Map` or `List`; the old one does not change."""
    proof: bytes
    """The transition proof, from which `verify_changes` derives the new root."""

@final
class Map(Mapping[str, str]):
    """A whole map in memory, from paths to targets (protocol section 3). Immutable; hashable by its root.

    It is a `collections.abc.Mapping` from the text form of a path to the target's CID as text, in key order. Wherever
    it takes a path, it takes segments too. Two maps are equal if their roots are, a map and another mapping if their
    items are. A changed map shares all unchanged subtrees with the old one.

    O(n log n); the GIL is released while the tree is built.

    Args:
        arcs: A mapping from path to CID, or pairs of the two, or the JSON bytes of an object ``{path: cid}``, which is
            parsed as strictly as a request (protocol section 5).
        suite: The hash function of the tree, ``sha2-256`` or ``blake3``.

    Raises:
        InvalidInput: If a path or CID is malformed (code ``invalid_path`` or ``invalid_cid``), two arcs have the same
            path, the JSON is not such an object, or the suite is unknown. The message names the arc.

    >>> m = Map({"docs/readme": payload_cid(b"hello"), "docs": payload_cid(b"index")})
    >>> list(m), m[["docs", "readme"]] == payload_cid(b"hello")
    (['docs', 'docs/readme'], True)
    >>> m == Map(reversed(list(m.items()))) == dict(m)
    True
    """

    def __new__(
        cls, arcs: Mapping[str, CidLike] | Iterable[tuple[PathLike, CidLike]] | bytes, suite: str = "sha2-256"
    ) -> Map: ...
    @property
    def root(self) -> str:
        """The root CID, as text."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, path: PathLike) -> str: ...
    def __contains__(self, path: object) -> bool: ...
    @overload
    def get(self, path: PathLike, default: None = None) -> str | None:
        """Return the target of a path, or `default` if the map has no such path. O(depth).

        Raises:
            InvalidInput: If `path` is malformed; its code is ``invalid_path``.
        """
    @overload
    def get(self, path: PathLike, default: str | _Default) -> str | _Default: ...
    def keys(self) -> KeysView[str]:
        """Return a set-like view of the paths as text, in key order."""
    def values(self) -> ValuesView[str]:
        """Return a view of the targets' CIDs as text, in key order."""
    def items(self) -> ItemsView[str, str]:
        """Return a set-like view of the pairs of path and target, in key order."""
    def prove(self, path: PathLike) -> bytes:
        """Return the inclusion proof or absence proof of a path (protocol section 4, *get*).

        O(depth). `verify_key` verifies it.

        Args:
            path: The path, in text form or as segments. It need not be in the map.

        Raises:
            InvalidInput: If `path` is malformed; its code is ``invalid_path``.

        >>> m = Map({"a": payload_cid(b"hello")})
        >>> verify_key(m.root, "b", m.prove("b")) is None
        True
        """
    def prove_many(self, paths: Sequence[PathLike]) -> list[bytes]:
        """Return what `prove` returns for each of many paths, computed on all cores with the GIL released.

        O(sum of depths).

        Args:
            paths: The paths, in text form or as segments.

        Raises:
            InvalidInput: If a path is malformed; its code is ``invalid_path``. The message names its place.

        >>> m = Map({"a": payload_cid(b"hello")})
        >>> m.prove_many(["a", ["b"]]) == [m.prove("a"), m.prove("b")]
        True
        """
    def prove_keys(self, paths: Iterable[PathLike]) -> bytes:
        """Return one proof for many paths, present or absent: a multiproof (protocol section 4, *get(keys)*).

        O(paths x depth). `verify_keys` verifies it. It is smaller than the proofs of the single paths together, since
        each node is shown once.

        Args:
            paths: 1 to 10,000 distinct paths, in text form or as segments. Their order does not change the proof.

        Raises:
            InvalidInput: If a path is malformed (code ``invalid_path``), occurs twice, or there are none or too many.
                The message names its place.

        >>> m = Map({"a": payload_cid(b"hello"), "b": payload_cid(b"world")})
        >>> proof = m.prove_keys(["b", "a", "c"])
        >>> verify_keys(m.root, ["b", "a", "c"], proof) == [payload_cid(b"world"), payload_cid(b"hello"), None]
        True
        """

    def scan(self, prefix: PathLike = (), after: PathLike | None = None, limit: int = 1000) -> Scan:
        """Return one page of a listing, with the listing proof that it is complete (protocol section 4, *scan*).

        O(depth + entries). `verify_scan` verifies it.

        Args:
            prefix: The path whose subtree is listed, the path itself included; empty for the whole map.
            after: The whole path (prefix included) after which the page starts, such as the last one of the page
                before; None for the first page.
            limit: The largest number of entries, at least 1.

        Returns:
            ``Scan(entries, more, proof)``.

        Raises:
            InvalidInput: If a path is malformed or `after` is not below `prefix` (code ``invalid_path``), or `limit` is
                not from 1 to 2^53 - 1.

        >>> m = Map({"a/b": payload_cid(b"hello"), "a/c": payload_cid(b"world"), "d": payload_cid(b"")})
        >>> page = m.scan("a", limit=1)
        >>> page.entries == [(["a", "b"], payload_cid(b"hello"))], page.more
        (True, True)
        >>> [segments for segments, _ in m.scan("a", after=["a", "b"]).entries]
        [['a', 'c']]
        """
    def apply(self, changes: Sequence[Change]) -> Applied:
        """Return the changed map and the transition proof (protocol section 4, *apply*).

        O(changes x depth). This map does not change. `verify_changes` derives the new root from the proof.

        Args:
            changes: `Change` tuples in any order, at most one per path. None for `before` means that the path is absent
                now, None for `after` removes it.

        Returns:
            ``Applied(tree, proof)``; the tree is a `Map`.

        Raises:
            Conflict: If a `before` differs from the target (code ``before_mismatch``), or a path is changed twice or
                not at all (code ``invalid_change``). The message names the path.
            InvalidInput: If there are no changes or one is malformed. The message names its place.

        >>> m = Map({"a": payload_cid(b"old")})
        >>> applied = m.apply([Change("a", payload_cid(b"old"), None), Change("b/c", None, payload_cid(b"new"))])
        >>> list(applied.tree), list(m)
        (['b/c'], ['a'])
        """

@final
class List(Sequence[str]):
    """A whole list of targets in memory (protocol section 3). Immutable; hashable by its root.

    It is a `collections.abc.Sequence` of the targets' CIDs as text; a slice is a plain list. Two lists are equal if
    their roots are. A changed list shares all unchanged subtrees with the old one.

    O(n); the GIL is released while the tree is built.

    Args:
        elements: The targets.
        sizes: The measure of each element, at least 1, such as the bytes of a chunk; None gives each the measure 1.
        suite: The hash function of the tree, ``sha2-256`` or ``blake3``.

    Raises:
        InvalidInput: If an element is not a valid CID (code ``invalid_cid``), a size is not from 1 to 2^53 - 1, the
            sizes sum to 2^53 or more, there are not as many sizes as elements, or the suite is unknown. The message
            names the element.

    >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
    >>> len(l), l.total_size, l[-1] == payload_cid(b"world!")
    (2, 11, True)
    """

    def __new__(
        cls, elements: Iterable[CidLike], sizes: Iterable[int] | None = None, suite: str = "sha2-256"
    ) -> List: ...
    @property
    def root(self) -> str:
        """The root CID, as text."""
    @property
    def total_size(self) -> int:
        """The sum of the elements' measures, such as the bytes of all chunks."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Return the first index of `value` from `start` on and before `stop`, both counted as in slices. O(n).

        Raises:
            ValueError: If it is not there.
        """
    def count(self, value: object) -> int:
        """Return how many elements are `value`. O(n)."""
    def prove(self, index: int) -> bytes:
        """Return the inclusion proof of an element, or the proof that the list is shorter (protocol section 4, *get*).

        O(log n). `verify_index` verifies it.

        Args:
            index: The index, from 0; it need not be in the list. Negative ones do not count from the end.

        Raises:
            InvalidInput: If `index` is not from 0 to 2^53 - 1.

        >>> l = List([payload_cid(b"hello")])
        >>> verify_index(l.root, 0, l.prove(0)).target == payload_cid(b"hello")
        True
        """
    def prove_range(self, start: int, end: int | None = None) -> bytes:
        """Return the range proof of the elements that overlap a range of the list's measure (section 4, *range*).

        O(log n + elements). `verify_range` verifies it.

        Args:
            start: The start of the range, in units of the measure (bytes, where sizes are bytes).
            end: The end of the range, exclusive; None, or anything past the total, means the total.

        Raises:
            InvalidInput: If a bound is not from 0 to 2^53 - 1.

        >>> l = List([payload_cid(b"hello"), payload_cid(b"world!")], sizes=[5, 6])
        >>> verify_range(l.root, 0, 5, l.prove_range(0, 5)).segments == [payload_cid(b"hello")]
        True
        """
    def apply(self, changes: Sequence[Change]) -> Applied:
        """Return the changed list and the transition proof (protocol section 4, *apply*).

        O(changes x log n). This list does not change. `verify_changes` derives the new root from the proof.

        Args:
            changes: `Change` tuples in any order, at most one per index: replacements, and either appends without a gap
                or removals at the end.

        Returns:
            ``Applied(tree, proof)``; the tree is a `List`.

        Raises:
            Conflict: If a `before` differs from the element (code ``before_mismatch``); or if the changes leave a gap,
                remove elements that are not at the end, both append and remove, or change an index twice or not at all
                (code ``invalid_change``).
            InvalidInput: If there are no changes or one is malformed. The message names its place.

        >>> l = List([payload_cid(b"hello")])
        >>> applied = l.apply([Change(1, None, payload_cid(b"world"), size=5)])
        >>> len(applied.tree), applied.tree.total_size
        (2, 6)
        """
