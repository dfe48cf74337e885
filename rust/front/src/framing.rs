//! The framing of HTTP/1 requests, checked before an HTTP library reads them.
//!
//! What two programs on the way read differently lets a client smuggle requests: Transfer-Encoding beside Content-Length,
//! several transfer codings, line feeds without carriage returns, whitespace around the sizes of chunks. hyper reads
//! such requests, some after dropping what tells them apart. So [`Framing`] follows the bytes of a connection, lets heads
//! pass only when they are complete and have one meaning, and knows in which part of a request the connection is.
//!
//! ```text
//!              ┌──────────────── Content-Length: 0, or none ───────────────┐
//!              ▼                                                           │
//!   Start ── Head ──┬── Content-Length ─► Body ──────────────────────────► Head
//!     │             └── chunked ─► Size ─► Chunk ─► ChunkEnd ─► Size … ─► Trailers ─► Head
//!     └── the preface of HTTP/2 ─► Opaque
//! ```

use std::fmt;
use std::mem::MaybeUninit;

use memchr::{memchr, memchr2};

/// What begins a connection that speaks HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest line with the size of a chunk and its extensions.
const MAX_SIZE_LINE: usize = 1 << 10;
/// The most header fields that a limit can allow.
const MAX_FIELDS: usize = 128;
const MAX_LENGTH_DIGITS: usize = 20;
const MAX_SIZE_DIGITS: usize = 16;
/// The longest body that can be declared: what libraries read as a signed number.
const MAX_LENGTH: u64 = i64::MAX as u64;
/// The most of all extensions of chunks of a body, and of its trailer fields: hyper's limits are not lower.
const MAX_EXTENSIONS: usize = 16 << 10;
const MAX_TRAILERS: usize = (16 << 10) - 64;

/// The methods of requests: others are refused by the parsers behind this one, in words of their own.
#[rustfmt::skip]
const METHODS: [&str; 35] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "ACL", "BIND", "CHECKOUT", "COPY",
    "LINK", "LOCK", "M-SEARCH", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MOVE", "NOTIFY", "PROPFIND", "PROPPATCH",
    "PURGE", "QUERY", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE",
];

/// Limits on what is not a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request line with its header fields, and of the trailer fields of a body.
    pub head_bytes: usize,
    /// Header fields of a request; at most 128.
    pub fields: usize,
}

/// Why a connection cannot be understood. It is displayed as a sentence for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A line does not end in CR LF, or has either alone.
    LineEnd,
    /// The request line or a header field.
    Head,
    /// The request line and header fields are longer than this: 431.
    HeadTooLong(usize),
    /// More header fields than this: 431.
    TooManyFields(usize),
    /// Trailer fields longer than this.
    TrailersTooLong(usize),
    /// More trailer fields than this.
    TooManyTrailers(usize),
    /// A method that no parser behind this one knows.
    Method,
    /// A target with characters that no URL has, or in no form that requests to servers have.
    Target,
    /// This many Host fields.
    Hosts(usize),
    /// Characters that no host has.
    Host,
    /// An authority in the target that is empty or has user information.
    Authority,
    /// Several, or one that is not a number below 2^63 of at most 20 digits.
    ContentLength,
    /// Other than chunked alone, in HTTP/1.0, or beside Content-Length.
    TransferEncoding,
    /// CONNECT, which is for proxies.
    Connect,
    /// The size of a chunk, an extension of it, or what follows it.
    Chunk,
}

impl Malformed {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Malformed::HeadTooLong(_) | Malformed::TooManyFields(_) => 431,
            _ => 400,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::LineEnd => f.write_str("a line of the request does not end in CR LF"),
            Malformed::Head => f.write_str("malformed request line or header field"),
            Malformed::HeadTooLong(limit) => {
                write!(f, "the request line and headers are longer than the limit of {limit} bytes")
            }
            Malformed::TooManyFields(limit) => write!(f, "the request has more than {limit} header fields"),
            Malformed::TrailersTooLong(limit) => write!(f, "the trailers are longer than the limit of {limit} bytes"),
            Malformed::TooManyTrailers(limit) => write!(f, "the request has more than {limit} trailers"),
            Malformed::Method => f.write_str("unknown method"),
            Malformed::Target => f.write_str("invalid request target, expected a path or an http URL with a path"),
            Malformed::Hosts(count) => write!(f, "{count} Host headers, expected exactly one"),
            Malformed::Host => f.write_str("invalid Host header"),
            Malformed::Authority => f.write_str("invalid authority in the request target"),
            Malformed::ContentLength => f.write_str("invalid Content-Length, expected one number below 2^63"),
            Malformed::TransferEncoding => {
                f.write_str("unsupported Transfer-Encoding, expected chunked in HTTP/1.1, without Content-Length")
            }
            Malformed::Connect => f.write_str("the gateway is not a proxy: CONNECT is not supported"),
            Malformed::Chunk => f.write_str("malformed chunk"),
        }
    }
}

/// In which part of a request a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Between requests: nothing of the next one has arrived.
    Idle,
    /// Some of a head has arrived.
    Head,
    /// A body, with its trailers, is not complete.
    Body,
    /// The connection speaks HTTP/2.
    Http2,
}

/// What may pass of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// How many of the bytes. The others are given again, with those that follow them, unless there is a fault.
    pub passing: usize,
    /// Whether these are the last bytes of a request. What follows has not been checked.
    pub is_complete: bool,
    /// Why nothing after these is read.
    pub fault: Option<Malformed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Head,
    Body { left: u64 },
    Size,
    Chunk { left: u64 },
    ChunkEnd,
    Trailers { size: usize, count: usize },
    Opaque,
}

/// Follows the bytes that a client sends on one connection.
#[derive(Debug)]
pub struct Framing {
    state: State,
    limits: Limits,
    /// How many of the bytes that did not pass have been searched for line ends.
    searched: usize,
    /// Bytes of empty lines since the last request.
    blank: usize,
    /// Bytes of extensions of chunks in this body.
    extensions: usize,
    has_begun: bool,
    requests: u64,
    is_http_1_1: bool,
}

impl Framing {
    /// A connection of which nothing has been read.
    pub fn new(limits: Limits) -> Self {
        Framing {
            state: State::Start,
            limits,
            searched: 0,
            blank: 0,
            extensions: 0,
            has_begun: false,
            requests: 0,
            is_http_1_1: false,
        }
    }

    /// How many heads have passed.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether the last head that has passed is of HTTP/1.1, not 1.0.
    pub fn is_http_1_1(&self) -> bool {
        self.is_http_1_1
    }

    /// In which part of a request the connection is, after what has been checked.
    pub fn part(&self) -> Part {
        match self.state {
            State::Start | State::Head if !self.has_begun => Part::Idle,
            State::Start | State::Head => Part::Head,
            State::Opaque => Part::Http2,
            _ => Part::Body,
        }
    }

    /// Checks what has arrived: what did not pass before, and what follows it, up to the end of a request.
    ///
    /// Not to be called again after a fault. O(bytes) over all calls, as line ends are searched for once; a head is
    /// parsed when it is complete.
    pub fn check(&mut self, arrived: &[u8]) -> Checked {
        let mut passing = 0;
        loop {
            let rest = &arrived[passing..];
            match self.step(rest) {
                Ok(0) if self.state != State::Opaque || rest.is_empty() => {
                    self.has_begun = !rest.is_empty();
                    return Checked { passing, is_complete: false, fault: None };
                }
                Ok(taken) => passing += taken,
                Err(fault) => return Checked { passing, is_complete: false, fault: Some(fault) },
            }
            if self.state == State::Head && self.blank == 0 {
                self.has_begun = passing < arrived.len();
                return Checked { passing, is_complete: true, fault: None };
            }
        }
    }

    /// Takes a part of a request from the start of `rest`; 0 bytes if more have to arrive first.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        if rest.is_empty() {
            return Ok(0);
        }
        match self.state {
            State::Start => {
                let known = rest.len().min(PREFACE.len());
                if rest[..known] != PREFACE[..known] {
                    self.state = State::Head;
                    return self.head(rest);
                }
                if known == PREFACE.len() {
                    self.state = State::Opaque;
                    return Ok(rest.len());
                }
                Ok(0)
            }
            State::Head => self.head(rest),
            State::Body { left } => {
                let taken = left.min(rest.len() as u64);
                self.state = if taken == left { State::Head } else { State::Body { left: left - taken } };
                Ok(taken as usize)
            }
            State::Size => self.size_line(rest),
            State::Chunk { left } => {
                let taken = left.min(rest.len() as u64);
                self.state = if taken == left { State::ChunkEnd } else { State::Chunk { left: left - taken } };
                Ok(taken as usize)
            }
            State::ChunkEnd => match rest {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(2)
                }
                [b'\r'] => Ok(0),
                _ => Err(Malformed::Chunk),
            },
            State::Trailers { size, count } => self.trailer(rest, size, count),
            State::Opaque => Ok(rest.len()),
        }
    }

    /// A head, or an empty line before one, which old clients send (RFC 9112 section 2.2).
    fn head(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        if rest.starts_with(b"\r\n") {
            self.blank += 2;
            return if self.blank > self.limits.head_bytes { Err(Malformed::Head) } else { Ok(2) };
        }
        if !matches!(rest[0], b'\r' | b'\n') && !is_method_begun(rest) {
            return Err(Malformed::Method);
        }
        let known = self.searched;
        let found = self.head_length(rest)?;
        if found.is_none() && !is_visible_or_line_end(&rest[known..]) {
            return Err(Malformed::Head); // its end may never come
        }
        let size = found.unwrap_or(rest.len() + 1);
        if size > self.limits.head_bytes {
            return Err(Malformed::HeadTooLong(self.limits.head_bytes));
        }
        let Some(size) = found else { return Ok(0) };
        (self.state, self.is_http_1_1) = parse(&rest[..size], self.limits.fields)?;
        self.searched = 0;
        self.blank = 0;
        self.extensions = 0;
        self.requests += 1;
        Ok(size)
    }

    /// The length of the head at the start of `rest`, which begins with its request line; None if it is not complete.
    fn head_length(&mut self, rest: &[u8]) -> Result<Option<usize>, Malformed> {
        while let Some(offset) = memchr2(b'\r', b'\n', &rest[self.searched..]) {
            let at = self.searched + offset;
            match rest[at..] {
                [b'\r', b'\n', ..] => {}
                [b'\r'] => return Ok(None),
                _ => return Err(Malformed::LineEnd),
            }
            let end = at + 2;
            self.searched = end;
            if rest[..at].ends_with(b"\n") {
                return Ok(Some(end));
            }
        }
        self.searched = rest.len();
        Ok(None)
    }

    /// The line with the size of a chunk.
    fn size_line(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let Some(line) = line(rest, MAX_SIZE_LINE).map_err(|_| Malformed::Chunk)? else {
            let after = rest.iter().find(|byte| !byte.is_ascii_hexdigit());
            let is_begun = rest[0].is_ascii_hexdigit() && after.is_none_or(|byte| matches!(byte, b';' | b'\r'));
            return if is_begun { Ok(0) } else { Err(Malformed::Chunk) }; // its end may never come
        };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extensions) = line.split_at(digits);
        self.extensions += extensions.len();
        let has_extensions = extensions.is_empty() || is_extensions(extensions);
        if digits == 0 || digits > MAX_SIZE_DIGITS || !has_extensions || self.extensions > MAX_EXTENSIONS {
            return Err(Malformed::Chunk);
        }
        let left =
            size.iter().fold(0, |sum: u64, &digit| sum << 4 | u64::from((digit as char).to_digit(16).unwrap_or(0)));
        self.state = if left == 0 { State::Trailers { size: 0, count: 0 } } else { State::Chunk { left } };
        Ok(line.len() + 2)
    }

    /// One trailer field, or the empty line after all of them.
    fn trailer(&mut self, rest: &[u8], size: usize, count: usize) -> Result<usize, Malformed> {
        let limit = self.limits.head_bytes.min(MAX_TRAILERS);
        let room = limit - size;
        let too_long = Malformed::TrailersTooLong(limit);
        let Some(line) = line(rest, room).map_err(|fault| fault.unwrap_or(too_long))? else { return Ok(0) };
        let taken = line.len() + 2;
        if line.is_empty() {
            self.state = State::Head;
        } else if size + taken > limit {
            return Err(too_long);
        } else if count == self.limits.fields.min(MAX_FIELDS) {
            return Err(Malformed::TooManyTrailers(count));
        } else {
            let name = memchr(b':', line).map_or(&line[..0], |colon| &line[..colon]);
            if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) || !is_visible(&line[name.len()..]) {
                return Err(Malformed::Head);
            }
            self.state = State::Trailers { size: size + taken, count: count + 1 };
        }
        Ok(taken)
    }
}

/// The line at the start of `rest`, without its end; None if it is not complete.
///
/// # Errors
///
/// None if it is longer than `limit`, otherwise [`Malformed::LineEnd`].
fn line(rest: &[u8], limit: usize) -> Result<Option<&[u8]>, Option<Malformed>> {
    let window = &rest[..rest.len().min(limit.saturating_add(2))];
    match memchr2(b'\r', b'\n', window) {
        Some(at) => match rest[at..] {
            [b'\r', b'\n', ..] => Ok(Some(&rest[..at])),
            [b'\r'] => Ok(None),
            _ => Err(Some(Malformed::LineEnd)),
        },
        None if window.len() < rest.len() || rest.len() > limit => Err(None),
        None => Ok(None),
    }
}

/// The state after a complete head, and whether it is of HTTP/1.1.
fn parse(head: &[u8], max_fields: usize) -> Result<(State, bool), Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let max_fields = max_fields.min(MAX_FIELDS);
    match request.parse_with_uninit_headers(head, &mut fields[..max_fields]) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed::TooManyFields(max_fields)),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Malformed::Head),
    }
    if request.method == Some("CONNECT") {
        return Err(Malformed::Connect);
    }
    let is_http_1_1 = request.version == Some(1);
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    let mut state = State::Head;
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("host") {
            hosts += 1;
            if !field.value.iter().all(|&byte| is_of_host(byte)) {
                return Err(Malformed::Host);
            }
        } else if field.name.eq_ignore_ascii_case("content-length") {
            lengths += 1;
            state = match content_length(field.value).ok_or(Malformed::ContentLength)? {
                0 => State::Head,
                left => State::Body { left },
            };
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            codings += 1;
            if !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::TransferEncoding);
            }
        }
    }
    check_target(request.path.unwrap_or_default())?;
    if hosts > 1 || (is_http_1_1 && hosts == 0) {
        return Err(Malformed::Hosts(hosts));
    }
    if lengths > 1 {
        return Err(Malformed::ContentLength);
    }
    match codings {
        0 => Ok((state, is_http_1_1)),
        1 if is_http_1_1 && lengths == 0 => Ok((State::Size, true)),
        _ => Err(Malformed::TransferEncoding),
    }
}

/// Checks a target: a path with a query, an http URL with a path, or `*` (RFC 9112 section 3.2).
fn check_target(target: &str) -> Result<(), Malformed> {
    if !is_target(target.as_bytes()) {
        return Err(Malformed::Target);
    }
    if target.starts_with('/') || target == "*" {
        return Ok(());
    }
    let is_http = |scheme: &str| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let Some((scheme, rest)) = target.split_once("://") else { return Err(Malformed::Target) };
    let Some((authority, _)) = rest.split_once('/').filter(|_| is_http(scheme)) else { return Err(Malformed::Target) };
    if is_authority(authority) { Ok(()) } else { Err(Malformed::Authority) }
}

/// Whether this is a name or address, with or without a port: what a URL says of a server, without user information.
#[must_use]
pub fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_name = |name: &str| name.bytes().all(|byte| is_of_host(byte) && !b"[]:@%".contains(&byte));
    let is_host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && is_name(host),
    };
    is_host && port.is_none_or(is_port)
}

/// Whether all characters may stand in a target. More than RFC 3986 allows, as clients send what they should encode.
pub(crate) fn is_target(text: &[u8]) -> bool {
    text.iter().all(|&byte| matches!(byte, b'!'..=b'~') && !matches!(byte, b'<' | b'>' | b'`'))
}

/// Whether the parsers behind this one know a method.
pub(crate) fn is_method(method: &str) -> bool {
    METHODS.contains(&method)
}

/// Whether a head begins with a method, as far as it has arrived.
fn is_method_begun(head: &[u8]) -> bool {
    let is_begun = |method: &[u8]| {
        let known = head.len().min(method.len());
        head[..known] == method[..known] && head.get(known).is_none_or(|&next| next == b' ')
    };
    METHODS.iter().any(|method| is_begun(method.as_bytes()))
}

/// Whether this is what may follow the size of a chunk: names, each with or without a value (RFC 9112 section 7.1.1).
fn is_extensions(mut text: &[u8]) -> bool {
    let token = |text: &[u8]| text.iter().take_while(|&&byte| is_token(byte)).count();
    while let [b';', rest @ ..] = text {
        let name = token(rest);
        text = &rest[name..];
        if let [b'=', value @ ..] = text {
            let Some(size) = quoted_length(value).or(Some(token(value)).filter(|size| *size > 0)) else { return false };
            text = &value[size..];
        }
        if name == 0 {
            return false;
        }
    }
    text.is_empty()
}

/// The length of the quoted string at the start of `text` (RFC 9110 section 5.6.4).
fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut bytes = text.iter().enumerate();
    bytes.next().filter(|(_, byte)| **byte == b'"')?;
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at + 1),
            b'\\' => drop(bytes.next().filter(|(_, byte)| matches!(byte, b'\t' | b' '..=b'~'))?),
            b'\t' | b' '..=b'~' => {}
            _ => return None,
        }
    }
    None
}

fn content_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= MAX_LENGTH_DIGITS && value.iter().all(u8::is_ascii_digit);
    let length: u64 = std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()?;
    (length <= MAX_LENGTH).then_some(length)
}

/// Whether all characters may stand in a host.
#[cfg(all(unix, feature = "server"))]
pub(crate) fn is_host(text: &[u8]) -> bool {
    text.iter().copied().all(is_of_host)
}

/// Whether a host may have this character (RFC 3986 section 3.2).
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$&'()*+,;=-._~:[]@%".contains(&byte)
}

/// Whether a token may have this character (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether all bytes may stand in a head.
fn is_visible_or_line_end(text: &[u8]) -> bool {
    text.iter().all(|&byte| matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~' | 0x80..))
}

/// Whether all characters may stand in the value of a field.
fn is_visible(text: &[u8]) -> bool {
    text.iter().all(|&byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..))
}
