//! Requests that name pages in JSON (protocol section 5).

use std::borrow::Cow;

use coregw_core::{Digest, Error, InputCode};
use serde::Deserialize;
use serde::de::Deserializer;

use super::error::BatchError;
use super::payloads::check_profile;
use crate::json::{MessageText, array, objects};
use crate::message::{self, shown};

const GET: &str = "pages.get-batch/v0alpha1";
/// The limit on the pages of one request.
const MAX_PAGES: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct PagesRequest<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "pages")]
    pages: Vec<MessageText<'a>>,
}

objects! {
    read: PagesRequest<'a>;
}

fn pages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MessageText<'de>>, D::Error> {
    array(deserializer, "pages", MAX_PAGES, InputCode::TooLarge)
}

/// Reads a request for pages, as a CAR. O(bytes).
///
/// # Errors
/// [`Error::Input`] if the request is malformed, or names more than 1,024 pages. It names the digest.
pub fn read_get_pages(body: &[u8]) -> Result<Vec<Digest>, BatchError> {
    let request: PagesRequest<'_> = message::request(body)?;
    check_profile(&request.profile, GET)?;
    let digest = |(index, MessageText(text)): (usize, &MessageText<'_>)| {
        Digest::from_hex(text).ok_or_else(|| {
            let what = format!("{:?} is not a digest: expected 64 characters of 0-9a-f", shown(text));
            BatchError::of_item("pages", index, Error::request(what))
        })
    };
    request.pages.iter().enumerate().map(digest).collect()
}

#[cfg(test)]
#[path = "../../tests/unit/batch_pages.rs"]
mod tests;
