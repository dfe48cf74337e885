use coregw_core::Result;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};

use super::*;

#[test]
fn cids_of_any_length_are_read_and_the_first_that_is_none_is_named() -> Result<()> {
    let cids = [
        payload::cid(b"a", Codec::RAW, Function::Sha2_256)?,
        payload::cid(b"b", Codec::RAW, Function::Identity)?,
        payload::cid(b"c", Codec::RAW, Function::Blake3)?,
    ];
    let body = cids.iter().flat_map(Cid::as_bytes).copied().collect::<Vec<_>>();
    assert_eq!(read_cids(&body).ok().as_deref(), Some(&cids[..]));
    assert_eq!(read_cids(&[]).ok(), Some(vec![]));
    let ends: Vec<usize> = (0..=3).map(|count| cids[..count].iter().map(|cid| cid.as_bytes().len()).sum()).collect();
    for cut in 0..body.len() {
        let read = read_cids(&body[..cut]);
        match ends.iter().position(|&end| end == cut) {
            Some(count) => assert_eq!(read.ok().map(|cids| cids.len()), Some(count)),
            None => {
                assert_eq!(read.err().and_then(|refused| refused.index), ends.iter().rposition(|&end| end < cut))
            }
        }
    }
    let many = cids[0].as_bytes().repeat(MAX_CIDS);
    assert_eq!(read_cids(&many).map(|cids| cids.len()).ok(), Some(MAX_CIDS));
    let refused = read_cids(&[&many[..], cids[1].as_bytes()].concat()).map_err(|refused| refused.error);
    assert!(matches!(refused, Err(Error::Input { code: InputCode::TooLarge, .. })));
    Ok(())
}
