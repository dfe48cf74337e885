use super::*;
use coregw_core::{Digest, Kind, RootCid, Suite};

#[test]
fn only_the_canonical_form_of_a_header_is_read() {
    let root = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: Digest([5; 32]) }.cid();
    let header = car_header(&[root]);
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
