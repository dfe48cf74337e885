//! Answers of the front itself: a status, a code, and a sentence, as JSON (protocol section 5, *Errors*).

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

/// Why a request is not answered as its client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// A code of the table of errors.
    pub code: &'static str,
    /// One sentence for a person.
    pub message: String,
}

impl Problem {
    /// A failure of the gateway: the client learns that there was one.
    pub fn internal() -> Self {
        let message = "the gateway failed; its log says why".to_owned();
        Problem { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message }
    }

    /// The response. Caches keep none of it, and no browser takes it for a page.
    pub fn response(&self) -> Response<Bytes> {
        let mut body = format!("{{\"error\":\"{}\",\"message\":", self.code);
        write_string(&mut body, &self.message);
        body.push('}');
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

/// Appends a JSON string (RFC 8259 section 7).
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character)); // a string takes everything
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}
