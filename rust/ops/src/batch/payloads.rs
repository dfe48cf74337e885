//! Requests that name payloads in JSON (protocol section 5, *payloads in one answer*, *which payloads are held*).

use std::borrow::Cow;

use coregw_core::{Cid, Error, InputCode};
use serde::Deserialize;
use serde::de::Deserializer;

use super::error::BatchError;
use crate::json::{MessageText, array, objects};
use crate::message::{self, shown};

const HAS: &str = "cas.has-batch/v0alpha1";
const GET: &str = "cas.get-batch/v0alpha1";
/// The limit on the CIDs of one request.
const MAX_CIDS: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct CidsRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "cids")]
    cids: Vec<MessageText<'a>>,
}

objects! {
    read: CidsRequest<'a>;
}

fn cids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MessageText<'de>>, D::Error> {
    array(deserializer, "cids", MAX_CIDS, InputCode::TooLarge)
}

/// Reads the JSON body of `POST /v1/cas/has`. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the request is malformed, or names more than 4,096 CIDs. It names the CID.
pub fn read_has_batch(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    read(body, HAS)
}

/// Reads a request for the bytes of payloads, as a CAR. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the request is malformed, names more than 4,096 CIDs, or names a root. It names the CID.
pub fn read_get_batch(body: &[u8]) -> Result<Vec<Cid>, BatchError> {
    let cids = read(body, GET)?;
    if let Some(index) = cids.iter().position(|cid| cid.root().is_some()) {
        let error = Error::input(InputCode::KindMismatch, format!("{} is a root, not a payload", cids[index]));
        return Err(BatchError::of_item("cids", index, error));
    }
    Ok(cids)
}

fn read(body: &[u8], profile: &str) -> Result<Vec<Cid>, BatchError> {
    let request: CidsRequest<'_> = message::request(body)?;
    check_profile(&request.profile, profile)?;
    let cid = |(index, MessageText(text)): (usize, &MessageText<'_>)| {
        Cid::from_text(text).map_err(|error| BatchError::of_item("cids", index, error))
    };
    request.cids.iter().enumerate().map(cid).collect()
}

/// Checks that a request is of this profile.
pub(super) fn check_profile(given: &str, profile: &str) -> Result<(), BatchError> {
    if given == profile {
        return Ok(());
    }
    let what = format!("profile: {:?} is not {profile:?}", shown(given));
    Err(Error::input(InputCode::UnknownProfile, what).into())
}

#[cfg(test)]
#[path = "../../tests/unit/batch_payloads.rs"]
mod tests;
