//! Requests that another server answers, over a Unix socket of this machine.
//!
//! A connection to it is polled by the request that uses it, so it ends when that is dropped: the server sees that the client
//! has gone. A body is read as the server takes it. A response may begin while the client still sends; one that ends before
//! it is complete is an error.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync;
use tokio::time::{Instant, Sleep, sleep, timeout_at};

use crate::budget::{Arriving, Broken};
use crate::problem::{Codes, Error, Problem};
use crate::responses::Awaited;
use crate::server::{Answer, Service};

/// Unused connections that are kept.
const MAX_IDLE: usize = 64;
/// Bytes of a request that wait for the server, and of a response that wait for the client; and the longest head of one.
const BUFFER_BYTES: usize = 64 << 10;
/// How long the server may take to answer a request whose body is cut off by what came before: its client may still read.
const EARLY_ANSWER: Duration = Duration::from_secs(1);
/// How long the server may take to accept a connection when others wait for that, and how often it is tried again.
const FULL_QUEUE: Duration = Duration::from_secs(10);
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(10);
/// Fields that concern one connection only (RFC 9110 section 7.6.1), and Expect, which the front meets itself.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// What clients say of themselves, and the server would believe of the front, besides all `x-forwarded-`.
const FORWARDED: [HeaderName; 2] = [header::FORWARDED, HeaderName::from_static("x-real-ip")];
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// The Host of a request that has none, which only HTTP/1.0 allows.
const NO_HOST: HeaderValue = HeaderValue::from_static("localhost");

/// A server behind a Unix socket, with the connections to it.
pub struct Upstream {
    path: PathBuf,
    idle: Mutex<Vec<Idle>>,
    max_idle: Duration,
    /// Whose turn it is to connect: in the order of requests, also while the server's queue is full.
    turn: sync::Mutex<()>,
}

struct Idle {
    link: Link,
    since: Instant,
}

/// Why there is no response.
#[derive(Debug)]
pub enum Unanswered {
    /// The server cannot be reached, or has ended the connection.
    Server(Error),
    /// The body of the request is not complete.
    Body(Broken),
}

impl From<Unanswered> for Problem {
    fn from(failure: Unanswered) -> Self {
        match failure {
            Unanswered::Server(_) => Problem::unavailable("the gateway cannot answer at the moment; retry later"),
            Unanswered::Body(broken) => Problem::bad_request(&broken.to_string()),
        }
    }
}

impl Upstream {
    /// A server at `path`, which closes connections that are idle for more than `max_idle`; they are left before.
    pub fn new(path: PathBuf, max_idle: Duration) -> Arc<Self> {
        Arc::new(Upstream { path, idle: Mutex::default(), max_idle, turn: sync::Mutex::default() })
    }

    /// Sends a request of a client on, and returns the response once its head has arrived.
    ///
    /// The request has a target in origin form, and a Host. Fields that concern one connection only are left out of both,
    /// and the server learns of the client's address from the front alone.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, ends the connection without a response, or the body is not complete.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<Arriving>,
        client: Option<SocketAddr>,
    ) -> Result<Response<Answer>, Unanswered> {
        let (mut head, body) = request.into_parts();
        head.version = Version::HTTP_11;
        leave_out_hop_by_hop(&mut head.headers);
        leave_out_forwarded(&mut head.headers);
        head.headers.entry(header::HOST).or_insert(NO_HOST);
        if let Some(client) = client
            && let Ok(address) = HeaderValue::from_str(&client.ip().to_canonical().to_string())
        {
            head.headers.insert(FORWARDED_FOR, address);
        }
        // hyper frames the body by what it knows of it, not by what the client says.
        head.headers.remove(header::CONTENT_LENGTH);
        if let Some(length) = body.size_hint().exact()
            && !(body.is_end_stream() && length == 0)
        {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let member = Arc::clone(body.connection());
        let broken = Arc::new(Mutex::new(None));
        let mut request = Request::from_parts(head, Sent { body, broken: Arc::clone(&broken), until: None });
        let failed = |error: Error| {
            let broken = broken.lock().take();
            broken.map_or(Unanswered::Server(error), Unanswered::Body)
        };
        loop {
            let (mut link, is_new) = match self.take() {
                Some(link) => (link, false),
                None => {
                    // However long it waits here, its client has to send more: it makes room for others that wait less.
                    let _awaited = member.is_arriving().then(|| Awaited::new(&member));
                    (self.connect().await.map_err(|error| failed(error.into()))?, true)
                }
            };
            match link.send(request).await {
                Ok(response) => return Ok(self.answer(response, link)),
                // The server has closed the connection before it could have read the request.
                Err((Some(unsent), _)) if !is_new => request = unsent,
                Err((_, error)) => return Err(failed(error)),
            }
        }
    }

    fn answer(self: &Arc<Self>, response: Response<Incoming>, link: Link) -> Response<Answer> {
        let (mut head, body) = response.into_parts();
        leave_out_hop_by_hop(&mut head.headers);
        if body.is_end_stream() {
            self.give_back(link);
            return Response::from_parts(head, Answer::Whole(Bytes::new()));
        }
        let passing = Passing { body, link: Some(link), upstream: Arc::clone(self) };
        Response::from_parts(head, Answer::Parts(passing.boxed_unsync()))
    }

    async fn connect(&self) -> io::Result<Link> {
        let until = Instant::now() + FULL_QUEUE;
        let turn = timeout_at(until, self.turn.lock()).await.map_err(|_| io::ErrorKind::TimedOut)?;
        let stream = loop {
            match UnixStream::connect(&self.path).await {
                // Its queue of connections is full, as many streams of HTTP/2 may need one at once.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    sleep(FULL_QUEUE_PAUSE).await;
                }
                found => break found?,
            }
        };
        drop(turn);
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(Pipe(stream)));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        Ok(Link { sender, connection: Box::pin(connection) })
    }

    /// A connection that can be used again: the one that was used last, as the others are closed for being idle.
    fn take(&self) -> Option<Link> {
        loop {
            let mut last = {
                let mut idle = self.idle.lock();
                let last = idle.pop()?;
                if last.since.elapsed() >= self.max_idle {
                    idle.clear(); // those before it are older
                    return None;
                }
                last.link
            };
            if last.is_usable() {
                return Some(last);
            }
        }
    }

    /// Keeps a connection whose response has been read, if the server has taken the whole request as well.
    fn give_back(&self, mut link: Link) {
        if link.is_usable() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(Idle { link, since: Instant::now() });
            }
        }
    }
}

/// The application behind a socket, as a service: it answers whatever it is asked.
pub struct Application {
    upstream: Arc<Upstream>,
    codes: Codes,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Application {
    /// The application that an upstream server runs. If it does not answer, a failure with one of `codes` is answered, with
    /// the `fields` of all answers.
    pub fn new(upstream: Arc<Upstream>, codes: Codes, fields: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self { upstream, codes, fields }
    }
}

impl Service for Application {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        // Boxed, since a connection has room for the future of a request also while it is idle.
        Box::pin(self.upstream.send(request, client)).await.unwrap_or_else(|unanswered| {
            let mut response = Problem::from(unanswered).response(&self.codes).map(Answer::from);
            for (name, value) in &self.fields {
                response.headers_mut().insert(name, value.clone());
            }
            response
        })
    }
}

/// A connection to the server, which moves when it is polled.
struct Link {
    sender: SendRequest<Sent>,
    connection: Pin<Box<Connection<TokioIo<Pipe>, Sent>>>,
}

type Undelivered = (Option<Request<Sent>>, Error);

impl Link {
    /// Sends a request, and returns the response once its head has arrived; or an error, with the request if nothing of
    /// it was sent.
    async fn send(&mut self, request: Request<Sent>) -> Result<Response<Incoming>, Undelivered> {
        let mut sending = Box::pin(self.sender.try_send_request(request));
        let mut is_over = false;
        let connection = &mut self.connection;
        let found = poll_fn(|cx| {
            // How the connection ends, the request learns.
            is_over = is_over || connection.as_mut().poll(cx).is_ready();
            sending.as_mut().poll(cx)
        });
        found.await.map_err(|mut error| (error.take_message(), error.into_error().into()))
    }

    /// Whether it is open, and nothing is in progress.
    fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.connection.as_mut().poll(&mut cx).is_pending() && self.sender.is_ready()
    }
}

/// The body of a request. What breaks it is kept for the answer.
struct Sent {
    body: Arriving,
    broken: Arc<Mutex<Option<Broken>>>,
    /// Until when the server may answer a request whose body is cut off.
    until: Option<Pin<Box<Sleep>>>,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        loop {
            if let Some(until) = &mut self.until {
                ready!(until.as_mut().poll(cx));
                return Poll::Ready(Some(Err(Stopped)));
            }
            return Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) if frame.is_trailers() => continue, // they mean nothing there
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(broken)) => {
                    let is_cut = matches!(broken, Broken::Cut(_)) && !self.body.is_malformed();
                    *self.broken.lock() = Some(broken);
                    if is_cut {
                        self.until = Some(Box::pin(sleep(EARLY_ANSWER)));
                        continue;
                    }
                    Some(Err(Stopped))
                }
                None => None,
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request is not sent on, as its body is not complete.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request body is not complete")
    }
}

impl std::error::Error for Stopped {}

/// The body of a response, with the connection that it comes from.
struct Passing {
    body: Incoming,
    link: Option<Link>,
    upstream: Arc<Upstream>,
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        // The first poll of the body asks the connection for more, which then is polled for it.
        let mut found = Pin::new(&mut this.body).poll_frame(cx);
        if found.is_pending()
            && let Some(link) = &mut this.link
        {
            let _ = link.connection.as_mut().poll(cx); // how it ends, the body says
            found = Pin::new(&mut this.body).poll_frame(cx);
        }
        let found = ready!(found);
        // hyper asks for nothing after the last byte of a body whose length it knows.
        if (found.is_none() || this.body.is_end_stream())
            && let Some(link) = this.link.take()
        {
            this.upstream.give_back(link);
        }
        Poll::Ready(found.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        false // until the connection was given back
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket on which a server that reads no more can still be heard: what it has answered before is read.
struct Pipe(UnixStream);

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(ready!(Pin::new(&mut self.0).poll_write(cx, bytes)).unwrap_or(bytes.len())))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = || parts.iter().map(|part| part.len()).sum();
        Poll::Ready(Ok(ready!(Pin::new(&mut self.0).poll_write_vectored(cx, parts)).unwrap_or_else(|_| all())))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn leave_out_forwarded(headers: &mut HeaderMap) {
    let is_forwarded = |name: &&HeaderName| name.as_str().starts_with(FORWARDED_PREFIX);
    let named: Vec<HeaderName> = headers.keys().filter(is_forwarded).cloned().collect();
    for name in named.iter().chain(&FORWARDED) {
        headers.remove(name);
    }
}

fn leave_out_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| name != header::HOST && name != header::CONTENT_LENGTH && name != header::AUTHORIZATION)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}
