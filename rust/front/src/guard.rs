//! The bytes of a connection, with what an HTTP library leaves open: strict framing, and deadlines for the client.
//!
//! A [`Guarded`] stands between a socket (or TLS) and hyper. Bytes that a client sends pass once [`Framing`] has seen
//! that they mean one thing; after a fault, hyper reads a request of its own making ([`REFUSED`]), which the service
//! answers with the fault, so that answers stay in the order of their requests. Each wait for the client has a deadline;
//! time in which the gateway does not read or write is not counted.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::framing::{Framing, Limits, Malformed, Part};
use crate::pace::{Pace, Rate, Timer};

/// The head that stands for what could not be understood; it is the last that is read.
pub const REFUSED: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

const READ_BYTES: usize = 4 << 10;
const DRAIN_BYTES: usize = 8 << 10;

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
    /// To read and discard what a client still sends after the last answer.
    pub drain: Duration,
}

/// What the two sides of a connection, its bytes and its requests, know of each other.
#[derive(Debug)]
pub struct Shared {
    opened: Instant,
    open: AtomicUsize,
    begun: AtomicU64,
    /// Bodies that wait for the client.
    awaited: AtomicUsize,
    /// When the client was last active, in milliseconds after `opened`.
    active: AtomicU64,
    fault: OnceLock<(u64, Malformed)>,
}

impl Default for Shared {
    fn default() -> Self {
        let (open, begun, awaited, active) = Default::default();
        Shared { opened: Instant::now(), open, begun, awaited, active, fault: OnceLock::new() }
    }
}

impl Shared {
    /// Notes that a request begins. The connection is not idle until the value is dropped.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(Arc::clone(self))
    }

    /// The number of a request whose head the reader has read, counted from 1. Once a request.
    pub fn next_request(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Why the request with this number, counted from 1, cannot be understood, or what follows it cannot.
    pub fn fault(&self, request: u64) -> Option<Malformed> {
        self.fault.get().filter(|(number, _)| *number <= request).map(|(_, fault)| *fault)
    }

    /// Notes that a body begins to wait for the client, or ends to.
    pub(crate) fn await_body(&self, is_awaited: bool) {
        if is_awaited {
            self.awaited.fetch_add(1, Ordering::AcqRel);
        } else {
            self.awaited.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that the client was active then.
    pub(crate) fn touch(&self, at: Instant) {
        let millis = at.saturating_duration_since(self.opened).as_millis() as u64;
        self.active.fetch_max(millis, Ordering::AcqRel);
    }

    fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }
}

/// A request that is not answered completely.
#[derive(Debug)]
pub struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection whose client is held to framing and deadlines.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    shared: Arc<Shared>,
    deadlines: Deadlines,
    framing: Framing,
    /// What has arrived and was not given to the reader, of which the first `passing` bytes may pass.
    held: Vec<u8>,
    passing: usize,
    /// What is read after a fault.
    rest: Option<&'static [u8]>,
    timer: Timer,
    /// Since when which part of which request is awaited, or the end of the connection.
    awaited: Option<(Instant, Part, u64)>,
    writing: Pace,
    is_closed: bool,
}

impl<S> Guarded<S> {
    /// Guards a connection that has just been opened.
    pub fn new(stream: S, limits: Limits, deadlines: Deadlines) -> Self {
        Guarded {
            stream,
            shared: Arc::default(),
            deadlines,
            framing: Framing::new(limits),
            held: Vec::new(),
            passing: 0,
            rest: None,
            timer: Timer::default(),
            awaited: None,
            writing: Pace::new(deadlines.read),
            is_closed: false,
        }
    }

    /// What the requests of the connection share with it.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Ready when the client has taken too long over what is awaited.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (part, number) = (self.framing.part(), self.framing.requests());
        let patience = match (part, number) {
            // The client waits for an answer, or the reader of a body for the client.
            (Part::Body, _) => None,
            (Part::Idle | Part::Http2, 1..) if !self.shared.is_idle() => None,
            (Part::Idle, 0) | (Part::Head, _) => Some(self.deadlines.head),
            (Part::Idle | Part::Http2, _) => Some(self.deadlines.idle),
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

    /// Takes the verdict on what is held, or has just been read. Returns how much of it passes.
    fn judge(&mut self, arrived: &[u8]) -> usize {
        let checked = self.framing.check(arrived);
        if let Some(fault) = checked.fault {
            let is_body = self.framing.part() == Part::Body;
            let request = self.framing.requests() + u64::from(!is_body);
            let _ = self.shared.fault.set((request, fault)); // the first: nothing is read after it
            self.rest = Some(if is_body { b"" } else { REFUSED });
        }
        checked.passing
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Reads what has not been checked, into `held`.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let start = self.held.len();
        self.held.resize(start + READ_BYTES, 0);
        let mut space = ReadBuf::new(&mut self.held[start..]);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut space);
        let read = space.filled().len();
        self.held.truncate(start + read);
        polled.map_ok(|()| read)
    }

    /// Passes on what may pass. Ready without bytes when nothing follows.
    fn poll_passing(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.passing > 0 {
                let size = self.passing.min(buf.remaining());
                buf.put_slice(&self.held[..size]);
                self.held.drain(..size);
                self.passing -= size;
                return Poll::Ready(Ok(()));
            }
            if let Some(rest) = &mut self.rest {
                let (now, later) = rest.split_at(rest.len().min(buf.remaining()));
                buf.put_slice(now);
                *rest = later;
                return Poll::Ready(Ok(()));
            }
            if self.held.is_empty() {
                let before = buf.filled().len();
                ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
                let read = buf.filled().len() - before;
                if read == 0 {
                    return Poll::Ready(Ok(()));
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
                let read = ready!(self.poll_fill(cx))?;
                if read == 0 {
                    return Poll::Ready(Ok(())); // in the middle of a head
                }
                let held = std::mem::take(&mut self.held);
                self.passing = self.judge(&held);
                self.held = held;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_closed {
            return Poll::Ready(Ok(()));
        }
        if this.poll_passing(cx, buf)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_overdue(cx));
        this.is_closed = true;
        Poll::Ready(Ok(())) // as if the client had closed it: nothing is owed to it
    }
}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Fails when the client has taken too long over reading.
    fn wrote(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(bytes)) => {
                self.writing.move_on(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.writing.poll(cx, Duration::MAX));
                self.is_closed = true;
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.wrote(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
        if this.shared.is_idle() {
            this.writing.restart(); // within answers, what was read counts, however often they are flushed
        }
        Poll::Ready(Ok(()))
    }

    /// Ends what is written, then reads and discards what the client still sends: if the connection were closed with
    /// bytes unread, the client's system could drop the answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        if !std::mem::replace(&mut this.is_closed, true) {
            this.awaited = None;
        }
        let mut bytes = [0; DRAIN_BYTES];
        loop {
            let mut space = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(cx, &mut space) {
                Poll::Ready(Ok(())) if !space.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        let (since, ..) = *this.awaited.get_or_insert_with(|| (Instant::now(), Part::Idle, 0));
        this.timer.poll(cx, since + this.deadlines.drain).map(Ok)
    }
}
