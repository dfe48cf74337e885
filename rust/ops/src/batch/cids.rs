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
#[path = "../../tests/unit/batch_cids.rs"]
mod tests;
