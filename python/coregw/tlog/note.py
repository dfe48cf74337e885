"""Signed notes (c2sp.org/signed-note), with Ed25519 signatures and cosignatures (c2sp.org/tlog-cosignature)."""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from coregw._core import check_integer
from coregw.errors import InvalidInput, ProofError
from coregw.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "COSIGNATURE",
    "MAX_NOTE_BYTES",
    "MAX_SIGNATURES",
    "Note",
    "Signature",
    "Signer",
    "VerifierKey",
    "check_key_name",
    "decode_base64",
    "load_private_key",
    "new_private_key",
    "parse_signatures",
]

MAX_NOTE_BYTES: Final = 256 << 10
"""The largest note: 16 signatures of 5 kB, as post-quantum ones are, take 110 kB in base64."""

MAX_SIGNATURES: Final = 64

ED25519: Final = 1
COSIGNATURE: Final = 4
"""The types of signature: of a log, and of a witness, with the time."""

_PUBLIC_BYTES: Final = 32
_PRIME: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDERS: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""The y of the points of small order: as public keys, they let anybody sign."""

_SIGNATURE_BYTES: Final = 64
_TIME_BYTES: Final = 8
_KEY_ID_BYTES: Final = 4
_DASH: Final = "— "
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_KEY_NAME: Final = re.compile(r"[^\s+\x00-\x1f\ud800-\udfff]+")
_MAX_OWN_NAME: Final = 256


class Signature(NamedTuple):
    """A signature line: the key's name, its id, and the bytes that depend on the type of key."""

    name: str
    key_id: bytes
    data: bytes

    def line(self) -> str:
        """Return the line, with its newline."""
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.data).decode()}\n"


class Note(NamedTuple):
    """A text that ends in a newline, and its signatures, which are not verified."""

    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, data: str | bytes) -> Note:
        """Parse a note of at most `MAX_NOTE_BYTES` and `MAX_SIGNATURES`. Raises `InvalidInput` if it is malformed."""
        try:
            whole = data if isinstance(data, str) else data.decode()
            size = len(whole.encode())
        except UnicodeError:
            raise InvalidInput("signed note: not UTF-8") from None
        if size > MAX_NOTE_BYTES:
            raise InvalidInput(f"signed note: longer than {MAX_NOTE_BYTES:,} bytes", code="too_large")
        if _CONTROL.search(whole):
            raise InvalidInput("signed note: a control character")
        text, blank, lines = whole.rpartition("\n\n")
        if not blank or not text or not lines.endswith("\n"):
            raise InvalidInput("signed note: expected a text, an empty line and lines of signatures")
        return cls(text + "\n", parse_signatures(lines))

    def encode(self) -> str:
        """Return the note as text."""
        return f"{self.text}\n{''.join(each.line() for each in self.signatures)}"

    def with_signatures(self, more: Iterable[Signature], keys: Iterable[VerifierKey]) -> Note:
        """Return the note with the signatures by known keys that verify, its own and further ones; one of each key.

        Args:
            more: Further signatures; those by other keys are left out.
            keys: The known keys. Of a key with several signatures that verify, the last one is kept, so that a
                cosigner's newer time replaces an older one. The note's own signatures by other keys stay.
        """
        known = {(key.name, key.key_id): key for key in keys}
        kept = [each for each in self.signatures if (each.name, each.key_id) not in known]
        found: dict[VerifierKey, Signature] = {}
        for each in (*self.signatures, *more):
            key = known.get((each.name, each.key_id))
            if key is None:
                continue
            with suppress(ProofError):
                key.verify(Note(self.text, (each,)))
                found[key] = each
        return Note(self.text, (*found.values(), *kept))


def parse_signatures(lines: str) -> tuple[Signature, ...]:
    """Parse lines of signatures, each with its newline. Raises `InvalidInput` if one is malformed, or for none."""
    found = lines.split("\n")[:-1]
    if not lines.endswith("\n") or not 1 <= len(found) <= MAX_SIGNATURES:
        raise InvalidInput(f"signed note: expected 1 to {MAX_SIGNATURES} lines of signatures")
    return tuple(_parse_line(number, line) for number, line in enumerate(found))


def _parse_line(number: int, line: str) -> Signature:
    name, space, text = line.removeprefix(_DASH).partition(" ")
    data = decode_base64(text)
    if not line.startswith(_DASH) or not space or _KEY_NAME.fullmatch(name) is None or len(data) <= _KEY_ID_BYTES:
        raise InvalidInput(f"signed note: signature {number}: {line!r:.100}: expected a dash, a name and base64")
    return Signature(name, data[:_KEY_ID_BYTES], data[_KEY_ID_BYTES:])


class VerifierKey(NamedTuple):
    """The public key of a log or witness; as text, a *vkey*.

    Attributes:
        name: Its name, which for a log is its origin.
        kind: The type of its signatures: 1, or `COSIGNATURE`.
        public: The Ed25519 public key, 32 bytes.
    """

    name: str
    kind: int
    public: bytes

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Parse ``name+id+base64``. Raises `InvalidInput` if it is malformed or of another kind than Ed25519."""
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        data = decode_base64(encoded)
        is_ed25519 = len(data) == _PUBLIC_BYTES + 1 and data[0] in {ED25519, COSIGNATURE}
        if _KEY_NAME.fullmatch(name) is None or not is_ed25519:
            raise InvalidInput(f"key {text!r:.200}: expected name+id+base64 of an Ed25519 key")
        key = cls(name, data[0], data[1:])
        if (int.from_bytes(key.public, "little") & ~(1 << 255)) % _PRIME in _SMALL_ORDERS:
            raise InvalidInput(f"key {text!r:.200}: a public key of small order, with which anybody can sign")
        if key.key_id.hex() != key_id:
            raise InvalidInput(f"key {text!r:.200}: its id is {key.key_id.hex()}")
        return key

    @property
    def key_id(self) -> bytes:
        """The id in the key's signature lines."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:_KEY_ID_BYTES]

    def __str__(self) -> str:
        """Return the vkey."""
        encoded = base64.b64encode(bytes([self.kind]) + self.public).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    def verify(self, note: Note) -> int | None:
        """Verify every signature of a note by this key.

        Returns:
            None if the note has no signature by this key. For a cosignature its time (POSIX seconds, below 2^63; of
            several ones the newest), otherwise 0.

        Raises:
            ProofError: It has one which does not verify (check ``signature``): the whole note is to be refused.
        """
        named = (self.name, self.key_id)
        times = [self._verify(note.text, each.data) for each in note.signatures if (each.name, each.key_id) == named]
        return max(times, default=None)

    def _verify(self, text: str, data: bytes) -> int:
        try:
            from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - few programs need it
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise missing_extra(error, "verifying signatures", "log") from error
        seconds = 0
        message = text.encode()
        if self.kind == COSIGNATURE:
            seconds, data = int.from_bytes(data[:_TIME_BYTES], "big"), data[_TIME_BYTES:]
            message = _cosigned(text, seconds)
        try:
            if len(data) != _SIGNATURE_BYTES or seconds >= 1 << 63:
                raise InvalidSignature
            Ed25519PublicKey.from_public_bytes(self.public).verify(data, message)
        except (InvalidSignature, ValueError):
            raise ProofError(f"the signature by {self.name} is wrong", check="signature") from None
        return seconds


class Signer:
    """A private key with its name.

    Args:
        name: The name of the key.
        private: The key.
        kind: The type of its signatures: 1, or `COSIGNATURE`.
    """

    def __init__(self, name: str, private: Ed25519PrivateKey, kind: Literal[1, 4] = 1) -> None:
        self._private = private
        self.key = VerifierKey(check_key_name(name), kind, private.public_key().public_bytes_raw())

    def sign(self, text: str, seconds: int = 0) -> Signature:
        """Sign the text of a note; a cosigner states that it does so at a time (POSIX seconds, at least 1)."""
        if self.key.kind == COSIGNATURE:
            seconds = check_integer(seconds, "seconds")
            data = seconds.to_bytes(_TIME_BYTES, "big") + self._private.sign(_cosigned(text, seconds))
        else:
            data = self._private.sign(text.encode())
        return Signature(self.key.name, self.key.key_id, data)


def check_key_name(name: str) -> str:
    """Return the name for a key of one's own; `InvalidInput` if it is empty, too long, or has spaces or ``+``."""
    if _KEY_NAME.fullmatch(name) is None or len(name) > _MAX_OWN_NAME or not name.isprintable():
        raise InvalidInput(f"key name {name!r:.200}: expected 1 to {_MAX_OWN_NAME} characters, no spaces and no +")
    return name


def decode_base64(text: str) -> bytes:
    """Return the bytes of canonical base64 (RFC 4648, section 4); none at all if the text is not that."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if base64.b64encode(data).decode() == text else b""


def new_private_key() -> bytes:
    """Return a new Ed25519 key as PEM (PKCS #8), unencrypted."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - few programs need it
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "signing", "log") from error
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_private_key(pem: bytes, place: str) -> Ed25519PrivateKey:
    """Load an Ed25519 key from PEM, as `new_private_key` and ``openssl genpkey -algorithm ed25519`` make it.

    Raises:
        InvalidInput: It is not an Ed25519 key, or is encrypted; the message names the place.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "signing", "log") from error
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{place}: expected an Ed25519 private key as PEM, unencrypted")
    return key


def _cosigned(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()
