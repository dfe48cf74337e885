"""CAR files made and taken apart without coregw, for tests."""

from __future__ import annotations

import hashlib

TYPE = {"content-type": "application/vnd.ipld.car"}


def varint(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def cid(codec: int, data: bytes) -> bytes:
    """CIDv1 with SHA2-256, in binary form."""
    return b"\x01" + varint(codec) + b"\x12\x20" + hashlib.sha256(data).digest()


def header(*roots: bytes) -> bytes:
    links = b"".join(b"\xd8\x2a" + _cbor_bytes(b"\0" + root) for root in roots)
    cbor = b"\xa2\x65roots" + bytes([0x80 + len(roots)]) + links + b"\x67version\x01"
    return varint(len(cbor)) + cbor


def _cbor_bytes(data: bytes) -> bytes:
    return (bytes([0x40 + len(data)]) if len(data) < 24 else bytes([0x58, len(data)])) + data


def block(name: bytes, data: bytes) -> bytes:
    return varint(len(name) + len(data)) + name + data


def car_of_payloads(*datas: bytes) -> bytes:
    """A CAR of raw payloads: its header names the empty identity payload, and so no root."""
    return header(b"\x01\x55\x00\x00") + b"".join(block(cid(0x55, data), data) for data in datas)


def frames(car: bytes) -> list[bytes]:
    """The header, then the blocks, each with its length before it."""
    found = []
    at = 0
    while at < len(car):
        length = shift = 0
        end = at
        while True:
            byte = car[end]
            length |= (byte & 0x7F) << shift
            end, shift = end + 1, shift + 7
            if byte < 0x80:
                break
        found.append(car[at : end + length])
        at = end + length
    assert at == len(car)
    return found


def split(frame: bytes) -> tuple[bytes, bytes]:
    """The CID and the bytes of a block."""
    start = next(i for i, byte in enumerate(frame) if byte < 0x80) + 1
    end = start + (39 if frame[start + 1] == 0x90 else 36)  # root or raw payload
    return frame[start:end], frame[end:]
