//! Failures as clients learn of them: a status, a code, and a sentence, as JSON (protocol section 5, *Errors*).

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use coregw_ops::json;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

/// Why a body or a connection ended early.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// What counts the heads and bodies that are no HTTP, among the codes.
pub const MALFORMED_HTTP: &str = "malformed_http";

/// The codes of errors: the status of each, and how often it was answered.
#[derive(Debug, Clone)]
pub struct Codes(Arc<[Code]>);

#[derive(Debug)]
struct Code {
    name: String,
    status: StatusCode,
    count: AtomicU64,
}

impl Codes {
    /// The table of codes with their statuses. An invalid status, or a code that is not in the table, is a 500.
    pub fn new<N: Into<String>>(table: impl IntoIterator<Item = (N, u16)>) -> Self {
        let code = |(name, status): (N, u16)| Code {
            name: name.into(),
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            count: AtomicU64::new(0),
        };
        let malformed = code_of_malformed();
        Self(table.into_iter().map(code).chain([malformed]).collect())
    }

    /// How often each code was answered, if it was.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let counts = self.0.iter().map(|code| (code.name.clone(), code.count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn count(&self, name: &str) -> StatusCode {
        let Some(code) = self.0.iter().find(|code| code.name == name) else { return StatusCode::INTERNAL_SERVER_ERROR };
        code.count.fetch_add(1, Ordering::Relaxed);
        code.status
    }
}

fn code_of_malformed() -> Code {
    Code { name: MALFORMED_HTTP.to_owned(), status: StatusCode::BAD_REQUEST, count: AtomicU64::new(0) }
}

/// Why a request is not answered as its client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A code of the table of errors.
    pub code: &'static str,
    /// One sentence for a person.
    pub message: String,
    /// The member `details`, as JSON text.
    pub details: Option<String>,
    /// Fields besides those that all answers with this code have, or instead of them.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// What is no HTTP has a status of its own.
    pub malformed: Option<StatusCode>,
    /// What the log says of a failure of the gateway.
    pub logged: Option<String>,
}

impl Problem {
    /// A failure with this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Problem { code, message: message.into(), details: None, fields: Vec::new(), malformed: None, logged: None }
    }

    /// A failure of the gateway: the client learns that there was one.
    pub fn internal() -> Self {
        Problem::new("internal", "The gateway failed; its log has the reason.")
    }

    /// As [`Problem::internal`]; the log says what has failed.
    pub fn failed(what: String) -> Self {
        Problem { logged: Some(what), ..Problem::internal() }
    }

    /// The same with a field.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.fields.push((name, value));
        self
    }

    /// The response, which is counted. Caches keep none of it unless its fields allow that.
    pub fn response(&self, codes: &Codes) -> Response<Bytes> {
        let status = match self.malformed {
            Some(status) => {
                codes.count(MALFORMED_HTTP);
                status
            }
            None => codes.count(self.code),
        };
        let mut body = format!("{{\"error\":\"{}\",\"message\":", self.code);
        json::write_string(&mut body, &self.message);
        if let Some(details) = &self.details {
            let _ = write!(body, ",\"details\":{details}"); // a string takes everything
        }
        body.push('}');
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.code {
            "unavailable" => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            "unauthorized" => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            _ => {}
        }
        for (name, value) in &self.fields {
            headers.insert(name, value.clone());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        response.map(|_| Bytes::from(body))
    }
}
