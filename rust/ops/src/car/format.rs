//! The bytes of a CAR outside its blocks: the header in DAG-CBOR, that of a CARv2, and what precedes a block.

use std::sync::LazyLock;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, Result, varint};

use crate::cbor;

/// The first and last bytes of every header in the one form of DAG-CBOR with sorted keys:
/// `{"roots": [...], "version": 1}`.
const ROOTS: &[u8] = b"\xa2\x65roots";
const VERSION: &[u8] = b"\x67version\x01";
/// A link in DAG-CBOR: tag 42 and a byte string, whose first byte is 0.
const LINK: &[u8] = &[0xd8, 0x2a];

/// The beginning of a CIDv0: sha2-256, 32 bytes.
const CID_V0: &[u8] = &[0x12, 32];
const CID_V0_BYTES: usize = 34;
/// The codec that a CIDv0 implies.
const DAG_PB: u64 = 0x70;

/// A CARv2 begins with these bytes, the header of a CAR of version 2 with its length. Then come 40 bytes:
///
/// ```text
/// | characteristics: 16 bytes | where the CARv1 begins | its length | where the index begins |
///                               the last three in 8 bytes each, the lowest first
/// ```
///
/// An index follows the CARv1, and any bytes may be between them.
pub(super) const PRAGMA: &[u8] = b"\x0a\xa1\x67version\x02";
pub(super) const V2_HEADER_BYTES: usize = 40;

/// Where the CARv1 in a CARv2 begins and ends, by the 40 bytes after the pragma.
///
/// # Errors
/// The reason why they are not the header of a complete CARv2.
pub(super) fn read_v2_header(bytes: &[u8; V2_HEADER_BYTES]) -> Result<(u64, u64), &'static str> {
    let [begin, len] =
        [16, 24].map(|at| bytes[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    if begin < (PRAGMA.len() + V2_HEADER_BYTES) as u64 {
        return Err("the CARv1 in the CARv2 begins inside the header");
    }
    match begin.checked_add(len) {
        Some(end) if len > 0 => Ok((begin, end)),
        _ => Err("the CARv2 has no CARv1 of a possible length; it was not finished"),
    }
}

/// The empty payload in binary form, `bafkqaaa`.
const EMPTY_PAYLOAD: &[u8] = &[0x01, 0x55, 0x00, 0x00];

/// The header of a CARv1 that names these CIDs, including its length.
pub fn car_header(roots: &[Cid]) -> Vec<u8> {
    let mut cbor = ROOTS.to_vec();
    cbor::write_head(&mut cbor, cbor::ARRAY, roots.len() as u64);
    for root in roots {
        let cid = root.as_bytes();
        cbor.extend_from_slice(LINK);
        cbor::write_head(&mut cbor, cbor::BYTES, cid.len() as u64 + 1);
        cbor.push(0);
        cbor.extend_from_slice(cid);
    }
    cbor.extend_from_slice(VERSION);
    let mut out = Vec::with_capacity(4 + cbor.len());
    varint::write(&mut out, cbor.len() as u64);
    out.extend_from_slice(&cbor);
    out
}

/// The header of a CAR of payloads. CARv1 demands a root, and payloads have none: it names the empty payload.
pub fn payload_car_header() -> &'static [u8] {
    static HEADER: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let empty = payload::cid(&[], Codec::RAW, Function::Identity);
        car_header(&[empty.expect("an identity CID can contain nothing")])
    });
    &HEADER
}

/// Whether a header that names these is that of a CAR of payloads: it names nothing, or only the empty payload.
pub(super) fn names_no_root(cids: &[Cid]) -> bool {
    cids.is_empty() || matches!(cids, [only] if only.as_bytes() == EMPTY_PAYLOAD)
}

/// What precedes the `len` bytes of a block: the length of CID and bytes together, and the CID.
pub fn block_head(cid: &Cid, len: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    varint::write(&mut out, cid.as_bytes().len() as u64 + len);
    out.extend_from_slice(cid.as_bytes());
    out
}

/// The CID at the start of a block, after its length, and how many bytes it has there. The bytes may end before the block
/// does.
///
/// # Errors
/// [`Error::Input`] if they do not start with a CID.
pub fn block_cid(bytes: &[u8]) -> Result<(Cid, usize)> {
    split_cid(bytes).map_err(|why| Error::request(format!("the CID of a block: {why}")))
}

/// Reads the CID that `bytes` begin with, and how many of them it has: a CIDv1, or a CIDv0, which is a multihash alone and
/// becomes a CIDv1.
pub(super) fn split_cid(bytes: &[u8]) -> Result<(Cid, usize), &'static str> {
    if !bytes.starts_with(CID_V0) {
        let (cid, rest) = Cid::split(bytes)?;
        return Ok((cid, bytes.len() - rest.len()));
    }
    let digest = bytes.get(CID_V0.len()..CID_V0_BYTES).ok_or("it ends inside its digest")?;
    Ok((Cid::of_payload(DAG_PB, Function::Sha2_256, digest), CID_V0_BYTES))
}

/// The CIDs of a header without its length.
pub(super) fn read_header(cbor: &[u8]) -> Result<Vec<Cid>, &'static str> {
    const OTHER: &str = "it is not {\"roots\": [...], \"version\": 1} in DAG-CBOR";
    let inner = cbor.strip_prefix(ROOTS).and_then(|rest| rest.strip_suffix(VERSION)).ok_or(OTHER)?;
    let length = |bytes, wanted| cbor::split_head(bytes).filter(|head| head.0 == wanted).ok_or(OTHER);
    let (_, count, mut rest) = length(inner, cbor::ARRAY)?;
    let mut roots = Vec::new();
    for _ in 0..count {
        let (_, len, bytes) = length(rest.strip_prefix(LINK).ok_or(OTHER)?, cbor::BYTES)?;
        let (link, after) = usize::try_from(len).ok().and_then(|len| bytes.split_at_checked(len)).ok_or(OTHER)?;
        let binary = link.strip_prefix(&[0]).ok_or(OTHER)?;
        let (cid, used) = split_cid(binary)?;
        if used != binary.len() {
            return Err("bytes follow the CID of a root");
        }
        roots.push(cid);
        rest = after;
    }
    if rest.is_empty() { Ok(roots) } else { Err(OTHER) }
}

#[cfg(test)]
#[path = "../../tests/unit/car_format.rs"]
mod tests;
