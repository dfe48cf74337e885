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
    /// This many Host fields.
    Hosts(usize),
    /// Characters that no host has.
    Host,
    /// An authority in the target that is empty or has user information.
    Authority,
    /// Several, or one that is not a number below 2^64 of at most 20 digits.
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
            Malformed::Hosts(count) => write!(f, "{count} Host headers, expected exactly one"),
            Malformed::Host => f.write_str("invalid Host header"),
            Malformed::Authority => f.write_str("invalid authority in the request target"),
            Malformed::ContentLength => f.write_str("invalid Content-Length, expected one number below 2^64"),
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
    Trailers { size: usize },
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
            State::Trailers { size } => self.trailer(rest, size),
            State::Opaque => Ok(rest.len()),
        }
    }

    /// A head, or an empty line before one, which old clients send (RFC 9112 section 2.2).
    fn head(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        if rest.starts_with(b"\r\n") {
            self.blank += 2;
            return if self.blank > self.limits.head_bytes { Err(Malformed::Head) } else { Ok(2) };
        }
        let found = self.head_length(rest)?;
        let size = found.unwrap_or(rest.len() + 1);
        if size > self.limits.head_bytes {
            return Err(Malformed::HeadTooLong(self.limits.head_bytes));
        }
        let Some(size) = found else { return Ok(0) };
        (self.state, self.is_http_1_1) = parse(&rest[..size], self.limits.fields)?;
        self.searched = 0;
        self.blank = 0;
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
        let Some(line) = line(rest, MAX_SIZE_LINE).map_err(|_| Malformed::Chunk)? else { return Ok(0) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extensions) = line.split_at(digits);
        let is_extension = extensions.is_empty() || extensions[0] == b';';
        if digits == 0 || digits > MAX_SIZE_DIGITS || !is_extension || !is_visible(extensions) {
            return Err(Malformed::Chunk);
        }
        let left =
            size.iter().fold(0, |sum: u64, &digit| sum << 4 | u64::from((digit as char).to_digit(16).unwrap_or(0)));
        self.state = if left == 0 { State::Trailers { size: 0 } } else { State::Chunk { left } };
        Ok(line.len() + 2)
    }

    /// One trailer field, or the empty line after all of them.
    fn trailer(&mut self, rest: &[u8], size: usize) -> Result<usize, Malformed> {
        let room = self.limits.head_bytes - size;
        let too_long = Malformed::TrailersTooLong(self.limits.head_bytes);
        let Some(line) = line(rest, room).map_err(|fault| fault.unwrap_or(too_long))? else { return Ok(0) };
        let taken = line.len() + 2;
        if line.is_empty() {
            self.state = State::Head;
        } else if size + taken > self.limits.head_bytes {
            return Err(too_long);
        } else {
            let name = memchr(b':', line).map_or(&line[..0], |colon| &line[..colon]);
            if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) || !is_visible(&line[name.len()..]) {
                return Err(Malformed::Head);
            }
            self.state = State::Trailers { size: size + taken };
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
    check_authority(request.path.unwrap_or_default())?;
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

/// Checks the authority of a target in absolute form (RFC 9112 section 3.2.2).
fn check_authority(target: &str) -> Result<(), Malformed> {
    let Some((scheme, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else { return Ok(()) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-'));
    if is_scheme && (authority.is_empty() || !authority.bytes().all(is_of_host) || authority.contains('@')) {
        return Err(Malformed::Authority);
    }
    Ok(())
}

fn content_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= MAX_LENGTH_DIGITS && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
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

/// Whether all characters may stand in the value of a field.
fn is_visible(text: &[u8]) -> bool {
    text.iter().all(|&byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..))
}
