//! The bytes of a CARv1 outside its blocks: the header in DAG-CBOR, and what precedes a block.

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

/// The empty payload in binary form, `bafkqaaa`.
const EMPTY_PAYLOAD: &[u8] = &[0x01, 0x55, 0x00, 0x00];

/// The header of a CAR that names these CIDs, including its length.
pub(super) fn header(roots: &[Cid]) -> Vec<u8> {
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
        header(&[empty.expect("an identity CID can contain nothing")])
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

/// The CID at the start of a block, after its length. The bytes may end before the block does.
///
/// # Errors
/// [`Error::Input`] if they do not start with a CID.
pub fn block_cid(bytes: &[u8]) -> Result<Cid> {
    let (cid, _) = Cid::split(bytes).map_err(|why| Error::request(format!("the CID of a block: {why}")))?;
    Ok(cid)
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
        let cid = link.strip_prefix(&[0]).ok_or(OTHER)?;
        roots.push(Cid::try_bytes(cid)?);
        rest = after;
    }
    if rest.is_empty() { Ok(roots) } else { Err(OTHER) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregw_core::{Digest, Kind, RootCid, Suite};

    #[test]
    fn only_the_canonical_form_of_a_header_is_read() {
        let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: Digest([5; 32]) }.cid();
        let header = header(&[root]);
        let (len, n) = varint::read(&header).expect("a varint");
        let cbor = &header[n..];
        assert_eq!(len as usize, cbor.len());
        assert_eq!(read_header(cbor), Ok(vec![root]));
        for cut in 0..cbor.len() {
            assert!(read_header(&cbor[..cut]).is_err());
            let mut other = cbor.to_vec();
            other[cut] ^= 0x20;
            assert!(read_header(&other) != Ok(vec![root]), "byte {cut}");
        }
        assert!(read_header(&[cbor, &[0]].concat()).is_err());
        let version_first = [&[0xa2][..], VERSION, &ROOTS[1..], &cbor[7..cbor.len() - 9]].concat();
        assert!(read_header(&version_first).is_err());
        assert!(read_header(&[&b"\xa1"[..], VERSION].concat()).is_err());
        assert_eq!(read_header(&[ROOTS, &[0x80], VERSION].concat()), Ok(vec![]));
    }
}
