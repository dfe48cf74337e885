//! The bytes of a connection, with what an HTTP library leaves open: strict framing, and deadlines for the client.
//!
//! A [`Guarded`] stands between a socket (or TLS) and hyper, over HTTP/1 also between requests, when hyper has no part in
//! the connection. Bytes that a client sends pass once [`Framing`] has seen that they mean one thing, and over HTTP/1 only
//! when the requests before them are answered; after a fault, hyper reads a request of its own making ([`REFUSED`]), which
//! the service answers with the fault, so that answers stay in the order of their requests. Each wait for the client has a
//! deadline; time in which the gateway does not read or write is not counted.
//!
//! Over HTTP/1, hyper reads while a request is being answered, to learn whether its client has gone. A client that has
//! closed its sending side alone still gets the answer, so hyper does not learn of that; but the client is sent an interim
//! response (RFC 9110 section 15.2.1), which the system of one that has gone answers with a reset.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::crowd::{Ending, Member};
use crate::framing::{Framing, Limits, Part};
use crate::pace::{Pace, Rate, Timer};

/// The head that stands for what could not be understood; it is the last that is read.
pub const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// The same for what began as HEAD, whose answer has no body.
pub const REFUSED_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// What a client that has closed its sending side is sent.
pub const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What hyper begins the answer to a request of HTTP/1.0 with, and what it begins with: the version is the server's own
/// (RFC 9110 section 6.2).
const OLD_VERSION: &[u8] = b"HTTP/1.0";
const OWN_VERSION: &[u8] = b"HTTP/1.1";

const READ_BYTES: usize = 4 << 10;
const DRAIN_BYTES: usize = 8 << 10;
/// How much of HTTP/2 is read at once, before other connections have their turn: the shortest frames take as long as requests.
const TURN_BYTES: usize = 16 << 10;
/// How much is discarded that is no part of the body of the last request.
const MAX_BEYOND_BYTES: usize = 1 << 20;
/// How long after the end of an answer a client that is not sending may send its next request without having seen the end of
/// the connection. Many see that only when they have one to send.
const IN_FLIGHT: Duration = Duration::from_secs(1);
/// When a client that has closed its sending side is probed; then, how often the system is asked whether it has gone.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// From the first byte of a head, or from the opening of the connection, to the end of the head.
    pub head: Duration,
    /// From an answer to the first byte of the next request.
    pub idle: Duration,
    /// The pace of a body.
    pub body: Rate,
    /// For a whole body, while the gateway waits for it.
    pub body_whole: Duration,
    /// The pace at which a client reads what is written to it.
    pub read: Rate,
    /// To read and discard what a client still sends after the last answer: the rest of the body, and little more.
    pub drain: Duration,
}

/// A connection as the system knows it.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the client is known to have reset it.
    fn is_reset(&self) -> bool;

    /// Lets it end with a reset when it is closed, so that the client sees that, and the system frees what is unread.
    fn reset_when_closed(&self);
}

impl Stream for TcpStream {
    fn is_reset(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }

    fn reset_when_closed(&self) {
        let _ = self.set_zero_linger(); // it is closed anyway
    }
}

impl Stream for UnixStream {
    fn is_reset(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }

    fn reset_when_closed(&self) {}
}

impl<S: Stream> Stream for TlsStream<S> {
    fn is_reset(&self) -> bool {
        self.get_ref().0.is_reset()
    }

    fn reset_when_closed(&self) {
        self.get_ref().0.reset_when_closed();
    }
}

/// A connection whose client is held to framing and deadlines.
#[derive(Debug)]
pub struct Guarded<S: Stream> {
    stream: S,
    member: Arc<Member>,
    deadlines: Deadlines,
    framing: Framing,
    /// What has arrived and was not given to the reader, of which the first `passing` bytes may pass.
    held: Vec<u8>,
    passing: usize,
    /// Whether the rest of `held` has not been checked.
    is_unchecked: bool,
    /// What is read after a fault.
    rest: Option<&'static [u8]>,
    timer: Timer,
    /// Since when which part of which request is awaited, or the end of the connection.
    awaited: Option<(Instant, Part, u64)>,
    writing: Pace,
    is_flushed: bool,
    /// Bytes of [`OWN_VERSION`] that were written instead of the other.
    versioned: usize,
    /// Whether the end is told to the reader as soon as all is flushed.
    ends_when_flushed: bool,
    /// Whether the client has closed its sending side, and when it is looked at next whether it has gone.
    has_ended: bool,
    /// What was discarded that is no part of a body.
    beyond: usize,
    next_look: Option<Instant>,
    is_probed: bool,
    is_closed: bool,
    /// Bytes of HTTP/2 that were read since the client was waited for.
    at_once: usize,
}

impl<S: Stream> Guarded<S> {
    /// Guards a connection that has just been opened.
    pub fn new(stream: S, member: Arc<Member>, limits: Limits, deadlines: Deadlines) -> Self {
        Guarded {
            stream,
            member,
            deadlines,
            framing: Framing::new(limits),
            held: Vec::new(),
            passing: 0,
            is_unchecked: false,
            rest: None,
            timer: Timer::default(),
            awaited: None,
            writing: Pace::new(deadlines.read),
            is_flushed: true,
            versioned: 0,
            ends_when_flushed: false,
            has_ended: false,
            beyond: 0,
            next_look: None,
            is_probed: false,
            is_closed: false,
            at_once: 0,
        }
    }

    /// Whether a request of HTTP/1 has arrived completely and is not answered: the next one waits for it.
    fn is_busy(&self) -> bool {
        let is_complete = matches!(self.framing.part(), Part::Idle | Part::Head);
        let is_refused = is_complete && self.rest.is_some_and(<[u8]>::is_empty);
        is_complete && self.framing.requests() + u64::from(is_refused) > self.member.progress().1
    }

    /// Ready when the client has taken too long over what is awaited.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (part, number) = (self.framing.part(), self.framing.requests());
        let deadlines = &self.deadlines;
        let patience = match (part, number) {
            _ if self.writing.behind_since().is_some() => None, // until the client has read, which has a deadline
            (Part::Body, _) => None,                            // whoever reads the body has one
            (Part::Http2, _) => {
                return match self.request_due() {
                    Some(due) => self.timer.poll(cx, due),
                    None => Poll::Pending,
                };
            }
            (Part::Idle, 1..) => {
                // Most answers end without another look at the reader, so the timer is set before.
                let since = if self.is_busy() { Instant::now() } else { self.member.active() };
                self.awaited = None;
                return self.timer.poll(cx, since + deadlines.idle);
            }
            (Part::Head, _) if self.is_busy() => None,
            (Part::Idle | Part::Head, _) => Some(deadlines.head),
        };
        let Some(patience) = patience else {
            self.awaited = None;
            return Poll::Pending;
        };
        let since = match self.awaited {
            Some((since, awaited, of)) if (awaited, of) == (part, number) => since,
            _ => Instant::now(),
        };
        self.awaited = Some((since, part, number));
        self.timer.poll(cx, since + patience)
    }

    /// When a client of HTTP/2 without a request has to have sent one completely: nothing else that it sends extends that.
    fn request_due(&self) -> Option<Instant> {
        let is_new = self.member.progress().0 == 0;
        let patience = if is_new { self.deadlines.head } else { self.deadlines.idle };
        self.member.is_idle().then(|| self.member.active() + patience)
    }

    /// Takes the verdict on what is held, or has just been read. Returns how much of it passes.
    fn judge(&mut self, arrived: &[u8]) -> usize {
        let checked = self.framing.check(arrived);
        if let Some(fault) = checked.fault {
            let is_body = self.framing.part() == Part::Body;
            let request = self.framing.requests() + u64::from(!is_body);
            self.member.set_fault(request, fault); // the only one: nothing is read after it
            self.rest = Some(match arrived.get(checked.passing..) {
                _ if is_body => b"",
                Some(head) if head.starts_with(b"HEAD ") => REFUSED_HEAD,
                _ => REFUSED,
            });
        }
        if self.framing.part() == Part::Http2 {
            self.member.set_http2();
        }
        self.is_unchecked = checked.fault.is_none() && checked.is_complete && checked.passing < arrived.len();
        checked.passing
    }

    /// Reads what has not been checked, into `held`.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let mut space = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space))?;
        self.held.extend_from_slice(space.filled());
        Poll::Ready(Ok(space.filled().len()))
    }

    /// Reads ahead while a request is being answered. It is ready only when the client has gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.has_ended {
            if self.held.len() >= READ_BYTES {
                return Poll::Pending; // it wants more answers
            }
            let read = ready!(self.poll_fill(cx))?;
            self.has_ended = read == 0;
            self.is_unchecked |= read > 0;
        }
        let mut look = self.next_look.unwrap_or_else(|| Instant::now() + FIRST_LOOK);
        loop {
            self.next_look = Some(look);
            ready!(self.timer.poll(cx, look));
            if self.is_probed {
                if self.stream.is_reset() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
            } else {
                if !self.is_flushed || self.member.is_answering() || !self.framing.is_http_1_1() {
                    return Poll::Pending; // where a response has begun, writing it shows whether the client has gone
                }
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, PROBE))?;
                if written < PROBE.len() {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                let _ = Pin::new(&mut self.stream).poll_flush(cx)?;
                self.is_probed = true;
            }
            look = Instant::now() + NEXT_LOOK;
        }
    }

    /// Whether no byte of a request or an answer is with the reader or the writer of this: they may be replaced.
    fn is_quiet(&self) -> bool {
        let is_between = self.framing.part() == Part::Idle && self.held.is_empty() && self.rest.is_none();
        is_between && self.is_flushed && !self.has_ended
    }

    /// Waits until bytes may be read, without giving them to a reader. False if nothing follows.
    pub(crate) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let mut space = ReadBuf::uninit(&mut bytes);
        ready!(self.poll_next(cx, &mut space))?;
        let arrived = space.filled();
        self.held = [arrived, &self.held].concat();
        self.passing += arrived.len();
        Poll::Ready(Ok(!arrived.is_empty()))
    }

    /// Ready when nothing that was written is left: at the end of what it reads, hyper drops that.
    fn poll_end(&mut self) -> Poll<io::Result<()>> {
        self.ends_when_flushed = !self.is_flushed;
        if self.is_flushed { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Passes on what may pass. Ready without bytes when nothing follows, or the client has taken too long.
    fn poll_next(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_closed {
            return Poll::Ready(Ok(()));
        }
        if self.at_once >= TURN_BYTES {
            self.at_once = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if self.poll_passing(cx, buf)?.is_ready() {
            if self.framing.part() == Part::Http2 {
                self.at_once += buf.filled().len() - before;
                // A client that never pauses is never waited for, so its deadline is looked at here.
                self.is_closed = self.request_due().is_some_and(|due| due <= Instant::now());
            }
            return Poll::Ready(Ok(()));
        }
        self.at_once = 0;
        if self.has_ended {
            return Poll::Pending; // until the answer is complete
        }
        ready!(self.poll_overdue(cx));
        self.is_closed = true;
        Poll::Ready(Ok(())) // as if the client had closed it: nothing is owed to it
    }

    /// Passes on what may pass. Ready without bytes when nothing follows.
    fn poll_passing(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.passing > 0 {
                let size = self.passing.min(buf.remaining());
                buf.put_slice(&self.held[..size]);
                self.held.drain(..size);
                if self.held.is_empty() {
                    self.held = Vec::new(); // most connections are idle
                }
                self.passing -= size;
                return Poll::Ready(Ok(()));
            }
            if self.is_busy() {
                let gone = self.poll_gone(cx);
                self.member.set_held_back(!self.held.is_empty() || self.has_ended || self.rest.is_some());
                return gone;
            }
            if let Some(rest) = &mut self.rest {
                let (now, later) = rest.split_at(rest.len().min(buf.remaining()));
                buf.put_slice(now);
                *rest = later;
                return Poll::Ready(Ok(()));
            }
            if self.has_ended && !self.is_unchecked {
                return self.poll_end();
            }
            if self.held.is_empty() {
                let before = buf.filled().len();
                ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
                let read = buf.filled().len() - before;
                if read == 0 {
                    self.has_ended = true;
                    continue;
                }
                let passing = self.judge(&buf.filled()[before..]);
                if self.rest.is_none() {
                    self.held.extend_from_slice(&buf.filled()[before + passing..]);
                }
                buf.set_filled(before + passing);
                if passing > 0 {
                    return Poll::Ready(Ok(()));
                }
            } else {
                if !self.is_unchecked && ready!(self.poll_fill(cx))? == 0 {
                    self.has_ended = true; // in the middle of a head
                    continue;
                }
                let held = std::mem::take(&mut self.held);
                self.passing = self.judge(&held);
                self.held = held;
            }
        }
    }
}

impl<S: Stream> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_next(cx, buf))?;
        this.member.set_quiet(false);
        if this.passing == 0 {
            let is_partial = this.framing.part() == Part::Body;
            this.member.set_arrived(this.framing.requests() - u64::from(is_partial));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> Guarded<S> {
    /// What is written instead of these bytes, or their start: the version of an answer to a request of HTTP/1.0, which is
    /// the last of its connection.
    fn version_instead_of(&self, bytes: &[u8]) -> Option<&'static [u8]> {
        let is_due = self.versioned > 0 || (self.is_flushed && self.framing.requests() > 0);
        let is_old = is_due && !self.framing.is_http_1_1() && self.versioned < OLD_VERSION.len();
        (is_old && bytes.starts_with(&OLD_VERSION[self.versioned..])).then_some(&OWN_VERSION[self.versioned..])
    }

    /// Writes bytes that begin with an old version.
    fn poll_version(&mut self, cx: &mut Context<'_>, version: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, version);
        if let Poll::Ready(Ok(written)) = polled {
            self.versioned += written;
        }
        self.wrote(cx, polled)
    }

    /// Whether the client has begun to send something that was not read completely.
    fn expects_more(&self) -> bool {
        let is_between = matches!(self.framing.part(), Part::Idle | Part::Http2);
        !is_between || !self.held.is_empty() || self.rest.is_some() || self.beyond > 0
    }

    /// Discards what has arrived; false once too much of that is no part of the body of the last request.
    fn discard(&mut self, arrived: &[u8]) -> bool {
        let mut beyond = arrived.len();
        if self.framing.part() == Part::Body && self.rest.is_none() {
            self.held.extend_from_slice(arrived);
            let checked = self.framing.check(&self.held);
            self.held.drain(..checked.passing);
            beyond = 0;
            if checked.fault.is_some() || checked.is_complete {
                beyond = self.held.len();
                self.rest = Some(b"");
            }
        }
        self.beyond += beyond;
        self.beyond <= MAX_BEYOND_BYTES
    }

    /// Fails when the client has taken too long over reading.
    fn wrote(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = polled {
            if let Ok(bytes) = done {
                self.writing.move_on(bytes);
                self.member.set_unread(false);
            }
            return Poll::Ready(done);
        }
        self.member.set_unread(true);
        ready!(self.writing.poll(cx, Duration::MAX));
        self.is_closed = true;
        self.member.end(Ending::SlowReader);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Stream> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let version = this.version_instead_of(bytes);
        this.is_flushed = false;
        this.member.set_quiet(false);
        if let Some(version) = version {
            return this.poll_version(cx, version);
        }
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.wrote(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let version = parts.first().and_then(|first| this.version_instead_of(first));
        this.is_flushed = false;
        this.member.set_quiet(false);
        if let Some(version) = version {
            return this.poll_version(cx, version);
        }
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.wrote(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx).map_ok(|()| 0);
        ready!(this.wrote(cx, polled))?;
        this.is_flushed = true;
        this.member.set_quiet(this.is_quiet());
        if this.ends_when_flushed {
            cx.waker().wake_by_ref(); // the reader is in the same task
        }
        if this.member.is_idle() {
            this.writing.restart(); // within answers, what was read counts, however often they are flushed
        }
        Poll::Ready(Ok(()))
    }

    /// Ends what is written, then reads and discards what the client still sends: if the connection were closed with
    /// bytes unread, the client's system could drop the answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.member.set_quiet(false); // there is no next request
        let polled = Pin::new(&mut this.stream).poll_shutdown(cx).map_ok(|()| 0);
        ready!(this.wrote(cx, polled))?;
        if !std::mem::replace(&mut this.is_closed, true) {
            this.awaited = None;
            this.held.drain(..this.passing);
            this.passing = 0;
        }
        // Before reading, which uses up what a task may do at once while the client sends without end.
        let (since, ..) = *this.awaited.get_or_insert_with(|| (Instant::now(), Part::Idle, 0));
        let due = if this.expects_more() { since + this.deadlines.drain } else { this.member.active() + IN_FLIGHT };
        if this.timer.poll(cx, due).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [MaybeUninit::uninit(); DRAIN_BYTES];
        loop {
            let mut space = ReadBuf::uninit(&mut bytes);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut space));
            if read.is_err() || space.filled().is_empty() || !this.discard(space.filled()) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: Stream> Drop for Guarded<S> {
    fn drop(&mut self) {
        if self.member.is_ended() {
            self.stream.reset_when_closed();
        }
    }
}
