//! HTTP for the gateway: rules as pure functions, and connections that hold clients to them.
//!
//! | module | rules |
//! |---|---|
//! | [`conditions`] | preconditions and ranges: RFC 9110 sections 13 and 14, and `entity-bytes` of trustless gateways |
//! | [`framing`] | heads, bodies and chunks of HTTP/1, as strictly as smuggling demands: RFC 9112 |
//! | [`media`] | media types, Accept and its weights: RFC 9110 sections 8.3 and 12.5.1 |
//! | [`requests`] | query parameters, media types and codings of bodies |
//! | [`routes`] | paths, and which requests the front answers itself |
//! | [`origins`] | Host and Origin: which names a gateway answers to, and which web pages may write |
//!
//! A value is the bytes of a field; if a request has several lines of it, they are joined with commas (RFC 9110 section
//! 5.3). Malformed values are no errors: each function says what they stand for. All work is linear in the value's length.
//!
//! With the feature `server`, on Unix: `listen` has sockets, `crowd` the connections that are open, `guard` the bytes of one,
//! `pace` how slow a client may be, `peers` whom a share per address concerns, `budget` the bodies of requests, `server` the
//! connections of hyper, `tls` their encryption, `proxy` the requests that another server answers, and `problem` how failures
//! are told. `gateway` is the service: `hot` has the answers of hot routes, `driver` their operations, `reads` and `batch`
//! what these ask the store, `content` and `cars` how what is long is sent, and `counts` what is counted and logged.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
pub mod batch;
#[cfg(all(unix, feature = "server"))]
pub mod budget;
#[cfg(all(unix, feature = "server"))]
mod cars;
pub mod conditions;
#[cfg(all(unix, feature = "server"))]
mod content;
#[cfg(feature = "server")]
pub mod counts;
#[cfg(all(unix, feature = "server"))]
pub mod crowd;
#[cfg(all(unix, feature = "server"))]
pub mod driver;
pub mod framing;
#[cfg(all(unix, feature = "server"))]
pub mod gateway;
#[cfg(all(unix, feature = "server"))]
pub mod guard;
#[cfg(all(unix, feature = "server"))]
pub mod hot;
#[cfg(all(unix, feature = "server"))]
pub mod listen;
pub mod media;
pub mod origins;
#[cfg(all(unix, feature = "server"))]
pub mod pace;
#[cfg(all(unix, feature = "server"))]
pub mod peers;
#[cfg(feature = "server")]
pub mod problem;
#[cfg(all(unix, feature = "server"))]
pub mod proxy;
#[cfg(feature = "server")]
pub mod reads;
pub mod requests;
#[cfg(all(unix, feature = "server"))]
mod responses;
pub mod routes;
#[cfg(all(unix, feature = "server"))]
pub mod server;
#[cfg(all(unix, feature = "server"))]
pub mod tls;
#[cfg(all(unix, feature = "server"))]
pub mod writes;

/// `text` without optional whitespace (RFC 9110 section 5.6.3) at both ends.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_visible = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = text.iter().position(is_visible).unwrap_or(text.len());
    let end = text.iter().rposition(is_visible).map_or(start, |last| last + 1);
    &text[start..end]
}
