//! CIDs in binary form, one after the other (protocol section 5, *which payloads are held*).

use coregw_core::{Cid, Error, InputCode};

use super::error::BatchError;

/// The limit on the CIDs of one request.
const MAX_CIDS: usize = 16_384;

/// Reads the body of `POST /v1/cas/has`. O(bytes).
///
/// # Errors
/// [`Error::Input`] if something is not a CID, or there are more than 16,384 of them. It names the CID.
pub fn read_cids(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    let mut cids = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        if cids.len() == MAX_CIDS {
            let what = format!("cids: more than {MAX_CIDS} CIDs");
            return Err(Error::input(InputCode::TooLarge, what).into());
        }
        let (cid, after) = Cid::split(rest)
            .map_err(|why| BatchError::of_item("cids", cids.len(), Error::input(InputCode::InvalidCid, why)))?;
        cids.push(cid);
        rest = after;
    }
    Ok(cids)
}

#[cfg(test)]
mod tests {
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
        let ends: Vec<usize> =
            (0..=3).map(|count| cids[..count].iter().map(|cid| cid.as_bytes().len()).sum()).collect();
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
}
