"""Openings of KZG commitments, checked many at a time with one pairing equation.

An opening claims that a commitment C has the scalar y in a slot, whose root of unity is z. It holds if
``e(C - y*G1, G2) = e(proof, [tau - z]*G2)``. That is ``e(C - y*G1 + z*proof, G2) = e(proof, [tau]*G2)``, whose right
sides of G2 are the same for all openings: a random linear combination of many equations is one equation of that form.
If one of them is false, so is the combination, but for one in 2^128 of the factors, which the prover can't know.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from coregw.errors import ProofError

__all__ = ["MAX_OPENINGS", "OPENING_BYTES", "SLOTS", "Opening", "Openings", "scalar_of"]

SLOTS: Final = 4096
"""The number of cells that a commitment has."""

OPENING_BYTES: Final = 84
"""The size of an opening: the proof (48), the scalar (32), the slot (4), big-endian."""

MAX_OPENINGS: Final = 16_384
"""The maximum number of distinct openings in one proof; more are refused before any is checked."""

TAU_G2: Final = bytes.fromhex(
    "b5bfd7dd8cdeb128843bc287230af38926187075cbfbefa81009a2ce615ac53d2914e5870cb452d2afaaab24f3499f72"
    "185cbfee53492714734429b7b38608e23926c911cceceac9a36851477ba4c60b087041de621000edc98edada20c1def2"
)
"""[tau]*G2 of the public KZG ceremony of Ethereum (EIP-4844): all of its setup that verification needs."""

_ORDER: Final = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
_ROOT_OF_UNITY: Final = pow(
    10238227357739495823651030575849232062558860180284477541189508159991286009131, 1 << 20, _ORDER
)
_SLOT_BITS: Final = 12
_FACTOR_BITS: Final = 128


class Opening(NamedTuple):
    """The claim that a commitment has a scalar in a slot, and its proof."""

    commitment: bytes
    slot: int
    scalar: bytes
    proof: bytes


def scalar_of(cell: bytes) -> bytes:
    """Return the scalar that a commitment has for a cell: SHA-256(cell) mod r, 32 bytes big-endian."""
    return (int.from_bytes(hashlib.sha256(cell).digest()) % _ORDER).to_bytes(32)


class Openings:
    """The openings of one proof, collected while its structure is checked, and checked together at its end."""

    def __init__(self) -> None:
        self._claims: dict[Opening, str] = {}
        self._cells: dict[tuple[bytes, int], bytes] = {}

    def add(self, commitment: bytes, slot: int | None, cell: bytes, opening: bytes, place: str) -> None:
        """Claim that a commitment has a cell in a slot.

        Args:
            commitment: The commitment, 48 bytes.
            slot: The slot, or None for the one that the opening names.
            cell: The cell; empty for an empty slot.
            opening: The opening, 84 bytes.
            place: Where the opening is, for messages.

        Raises:
            ProofError: The opening is malformed, shows another slot or cell, contradicts another one of the same slot,
                or is one too many. No point of a curve was looked at.
        """
        if len(opening) != OPENING_BYTES:
            raise ProofError(f"{place}: an opening has {OPENING_BYTES} bytes, not {len(opening)}", check="opening")
        proof, claimed, named = opening[:48], opening[48:80], int.from_bytes(opening[80:])
        if named >= SLOTS or (slot is not None and named != slot):
            raise ProofError(f"{place}: the opening is of slot {named}, not {slot}", check="slot")
        if claimed != scalar_of(cell):
            raise ProofError(f"{place}: the opening shows another cell", check="cell")
        if self._cells.setdefault((commitment, named), claimed) != claimed:
            raise ProofError(f"{place}: two openings show different cells of slot {named}", check="cell")
        self._claims.setdefault(Opening(commitment, named, claimed, proof), place)
        if len(self._claims) > MAX_OPENINGS:
            raise ProofError(f"{place}: more than {MAX_OPENINGS:,} openings", check="limit")

    def check(self) -> None:
        """Check all openings, at two pairings however many they are; if it fails, find one that is false.

        Linear in the number of openings: some 0.1 ms for each, and 2 ms. To find a false one, the same again, at most.

        Raises:
            ProofError: A commitment or proof is not a point of the group, or an opening is false.
        """
        claims = list(self._claims)
        places = {each: self._claims[claim] for claim in claims for each in (claim.commitment, claim.proof)}
        points = {each: self._point(each, place) for each, place in places.items()}
        if _hold(claims, points):
            return
        while len(claims) > 1:
            half = claims[: len(claims) // 2]
            claims = claims[len(half) :] if _hold(half, points) else half
        raise ProofError(f"{self._claims[claims[0]]}: the opening is false", check="pairing")

    def _point(self, encoded: bytes, place: str) -> G1Point:
        """Decode a compressed point, and check that it is on the curve and in the group."""
        try:
            point = G1Point.from_compressed_bytes(encoded)
        except ValueError:
            point = None
        if point is None or point.to_compressed_bytes() != encoded:  # some other encodings are decoded, too
            raise ProofError(f"{place}: not a compressed point of G1", check="point")
        return point


def _hold(claims: Sequence[Opening], points: dict[bytes, G1Point]) -> bool:
    """Whether a random linear combination of the equations of openings holds."""
    factors = [secrets.randbits(_FACTOR_BITS) for _ in claims]
    on_commitments: dict[bytes, int] = {}
    on_proofs: dict[bytes, int] = {}
    on_shifted: dict[bytes, int] = {}
    value = 0
    for factor, claim in zip(factors, claims, strict=True):
        on_commitments[claim.commitment] = on_commitments.get(claim.commitment, 0) + factor
        on_proofs[claim.proof] = on_proofs.get(claim.proof, 0) + factor
        on_shifted[claim.proof] = on_shifted.get(claim.proof, 0) + factor * _root_of_unity(claim.slot)
        value += factor * int.from_bytes(claim.scalar)
    right = _combined(on_proofs.items(), points)
    left = _combined([*on_commitments.items(), *on_shifted.items()], points) - G1Point() * _scalar(value)
    return bool(GT.pairing_check([left, -right], [G2Point(), G2Point.from_compressed_bytes(TAU_G2)]))


def _combined(factors: Iterable[tuple[bytes, int]], points: dict[bytes, G1Point]) -> G1Point:
    pairs = list(factors)
    return G1Point.multiexp_unchecked([points[each] for each, _ in pairs], [_scalar(factor) for _, factor in pairs])


def _scalar(value: int) -> Scalar:
    return Scalar.from_be_bytes((value % _ORDER).to_bytes(32))


def _root_of_unity(slot: int) -> int:
    """The point of the domain at which a polynomial has the scalar of a slot: in bit-reversed order."""
    return pow(_ROOT_OF_UNITY, int(f"{slot:0{_SLOT_BITS}b}"[::-1], 2), _ORDER)
