//! Verdicts on results that a client has received (protocol section 5, *verify*): a diagnosis, no proof.

use std::borrow::Cow;

use coregw_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::json;

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    profile: Cow<'a, str>,
}

#[derive(Serialize)]
struct Verdict<'a> {
    profile: &'a str,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Answers the body of `POST /v1/verify/resolve`: whether a resolve result is proven, and why not. O(steps x depth) hashes.
///
/// # Errors
/// [`Error::Input`] if the body is not `{"request": ..., "result": ...}`, or the request is malformed.
pub fn resolve_verdict(body: &[u8]) -> Result<Vec<u8>> {
    verdict(body, |request, result| crate::verify_resolve(request, result).map(drop))
}

/// Answers the body of `POST /v1/verify/read`, as [`resolve_verdict`] does for a read result or the details of a 404.
///
/// # Errors
/// As [`resolve_verdict`].
pub fn read_verdict(body: &[u8]) -> Result<Vec<u8>> {
    verdict(body, |request, result| crate::verify_read(request, result).map(drop))
}

fn verdict(body: &[u8], verify: impl FnOnce(&[u8], &[u8]) -> Result<()>) -> Result<Vec<u8>> {
    let (request, result) = json::envelope(body)?;
    let error = match verify(request.as_bytes(), result.as_bytes()) {
        Ok(()) => None,
        Err(reason @ Error::Proof { .. }) => Some(reason.to_string()),
        Err(error) => return Err(error),
    };
    // The verifier has read the request, so it has a profile.
    let asked: Asked<'_> =
        serde_json::from_str(request).map_err(|error| Error::request(format!("request: {error}")))?;
    Ok(json::write(&Verdict { profile: &asked.profile, valid: error.is_none(), error }))
}
