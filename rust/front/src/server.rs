//! Connections by hyper: HTTP/1.1 and HTTP/2 on the sockets that are given, until the server is to stop.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::uri::Uri;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::budget::Arriving;
use crate::framing::Limits;
use crate::guard::{Deadlines, Guarded, Open, Shared};
use crate::origins::{Origins, Refusal, Source};
use crate::problem::{Codes, Problem};
use crate::proxy::Error;
use crate::tls::Tls;

/// HTTP/2: what a client may have open at once, and the octets that it may send before it is told to go on.
const MAX_STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Streams that a client resets before they are answered, and that have not been forgotten (rapid reset).
const MAX_PENDING_RESETS: usize = 20;
/// How long to wait when the system has no descriptor for a connection.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// The body of an answer.
#[derive(Debug)]
pub enum Answer {
    /// All of it.
    Whole(Full<Bytes>),
    /// Parts that arrive while it is sent.
    Parts(UnsyncBoxBody<Bytes, Error>),
}

impl From<Bytes> for Answer {
    fn from(body: Bytes) -> Self {
        Answer::Whole(Full::new(body))
    }
}

/// Answers requests. Each is polled on the thread of its connection, so none may block.
pub trait Service: Send + Sync + 'static {
    /// Answers a request whose Host, Origin and framing are in order. A panic is a 500.
    ///
    /// Whoever reads the body waits for the client only as long as its pace allows.
    fn answer(
        &self,
        request: Request<Arriving>,
        client: Option<SocketAddr>,
    ) -> impl Future<Output = Response<Answer>> + Send;
}

/// What a server holds its clients to.
#[derive(Debug)]
pub struct Rules {
    /// Hosts and origins.
    pub origins: Origins,
    /// The codes of errors.
    pub codes: Codes,
    /// Heads.
    pub limits: Limits,
    /// Waiting for clients.
    pub deadlines: Deadlines,
    /// Connections at once.
    pub connections: usize,
}

/// A socket that listens.
pub enum Listener {
    /// Of an address of this machine.
    Tcp(TcpListener),
    /// The same, for connections by TLS.
    Tls(TcpListener, Arc<Tls>),
    /// Of a path.
    Unix(UnixListener),
}

/// A server, which runs where [`Server::serve`] is polled.
pub struct Server<S> {
    service: S,
    rules: Rules,
    places: Arc<Semaphore>,
}

impl<S: Service> Server<S> {
    /// A server without sockets.
    pub fn new(service: S, rules: Rules) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(rules.connections));
        Arc::new(Server { service, rules, places })
    }

    /// Accepts connections until `stop` is ready; then closes idle ones, and waits for the others at most for `patience`.
    pub async fn serve(self: &Arc<Self>, listeners: Vec<Listener>, stop: impl Future<Output = ()>, patience: Duration) {
        let graceful = GracefulShutdown::new();
        let accepting = futures_util::future::join_all(listeners.iter().map(|each| self.accept(each, &graceful)));
        tokio::select! {
            _ = accepting => {}
            () = stop => {}
        }
        drop(listeners);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = sleep(patience) => {}
        }
    }

    async fn accept(self: &Arc<Self>, listener: &Listener, graceful: &GracefulShutdown) {
        loop {
            let accepted = match listener {
                Listener::Tcp(tcp) => tcp.accept().await.map(|(stream, address)| {
                    self.open(async { Ok(prompt(stream)) }, Some(address), graceful);
                }),
                Listener::Tls(tcp, tls) => tcp.accept().await.map(|(stream, address)| {
                    let (tls, deadline) = (Arc::clone(tls), self.rules.deadlines.head);
                    let opening = async move { timeout(deadline, tls.accept(prompt(stream))).await? };
                    self.open(opening, Some(address), graceful);
                }),
                Listener::Unix(unix) => {
                    unix.accept().await.map(|(stream, _)| self.open(async { Ok(stream) }, None, graceful))
                }
            };
            if accepted.is_err_and(|error| !is_of_client(&error)) {
                sleep(EXHAUSTED).await;
            }
        }
    }

    /// Serves a connection in a task of its own, if there is a place for it; otherwise closes it.
    fn open<T>(
        self: &Arc<Self>,
        opening: impl Future<Output = io::Result<T>> + Send + 'static,
        client: Option<SocketAddr>,
        graceful: &GracefulShutdown,
    ) where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
        let (server, watcher) = (Arc::clone(self), graceful.watcher());
        tokio::spawn(async move {
            let Ok(stream) = opening.await else { return };
            let guarded = Guarded::new(stream, server.rules.limits, server.rules.deadlines);
            let shared = guarded.shared();
            let builder = builder(&server.rules);
            let service = service_fn(move |request| {
                let (server, shared) = (Arc::clone(&server), Arc::clone(&shared));
                async move { Ok::<_, Infallible>(server.respond(request, client, &shared).await) }
            });
            let connection = builder.serve_connection(TokioIo::new(guarded), service);
            let _ = watcher.watch(connection.into_owned()).await; // the client has gone, or was told what is wrong
            drop(place);
        });
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: Option<SocketAddr>,
        shared: &Arc<Shared>,
    ) -> Response<Held> {
        let open = shared.begin();
        let number = shared.next_request();
        let response = match self.admit(request, number, shared) {
            Err(problem) => self.refuse(&problem),
            Ok(request) => {
                let deadlines = &self.rules.deadlines;
                let request =
                    request.map(|body| Arriving::new(body, deadlines.body, deadlines.body_whole, Arc::clone(shared)));
                let answered = AssertUnwindSafe(self.service.answer(request, client)).catch_unwind().await;
                let answer = answered.unwrap_or_else(|_| self.refuse(&Problem::internal()));
                // What the body turned out to be says more than what the service made of it.
                match shared.fault(number) {
                    Some(fault) if answer.status().is_server_error() => self.refuse(&Problem::malformed(fault)),
                    _ => answer,
                }
            }
        };
        response.map(|body| Held { body, _open: open })
    }

    fn refuse(&self, problem: &Problem) -> Response<Answer> {
        let mut response = problem.response(&self.rules.codes).map(Answer::from);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// Checks what concerns every request, and gives it a Host and a target in origin form.
    fn admit(
        &self,
        mut request: Request<Incoming>,
        number: u64,
        shared: &Shared,
    ) -> Result<Request<Incoming>, Problem> {
        if let Some(fault) = shared.fault(number) {
            return Err(Problem::malformed(fault));
        }
        if let Some(authority) = request.uri().authority() {
            let host =
                HeaderValue::from_str(authority.as_str()).map_err(|_| Problem::bad_request("invalid authority"))?;
            request.headers_mut().insert(header::HOST, host);
            let target = request.uri().path_and_query().map_or("/", |each| each.as_str());
            *request.uri_mut() = target.parse::<Uri>().map_err(|_| Problem::bad_request("invalid request target"))?;
        }
        let headers = request.headers();
        let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let source = Source {
            method: request.method().as_str().as_bytes(),
            host: value("host"),
            origin: value("origin"),
            site: value("sec-fetch-site"),
        };
        match self.rules.origins.refusal(&source) {
            None => Ok(request),
            Some(refusal) => Err(Problem::refused(&refusal)),
        }
    }
}

impl Problem {
    fn malformed(fault: crate::framing::Malformed) -> Self {
        let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Problem { malformed: Some(status), ..Problem::new("invalid_request", fault.to_string()) }
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Problem::new("invalid_request", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request body is longer than the limit of {limit} bytes");
        Problem::new("too_large", message)
    }

    pub(crate) fn unavailable(message: &str) -> Self {
        Problem::new("unavailable", message)
    }

    fn refused(refusal: &Refusal) -> Self {
        let code = match refusal {
            Refusal::Host(_) => "misdirected_request",
            Refusal::Page(_) => "forbidden_origin",
        };
        Problem::new(code, refusal.to_string())
    }
}

/// A body whose request is open until it is sent or dropped.
struct Held {
    body: Answer,
    _open: Open,
}

impl Body for Held {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.body {
            Answer::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Answer::Parts(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Answer::Whole(body) => body.is_end_stream(),
            Answer::Parts(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Answer::Whole(body) => body.size_hint(),
            Answer::Parts(body) => body.size_hint(),
        }
    }
}

/// A connection whose first write is sent at once: it is the whole head.
fn prompt(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true); // it only is slower without
    stream
}

fn builder(rules: &Rules) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Half-closed clients are answered. Heads have been checked and limited: hyper's own limits only have to be wider.
    builder
        .http1()
        .half_close(true)
        .max_headers(rules.limits.fields)
        .max_buf_size(2 * rules.limits.head_bytes.max(32 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_header_list_size(u32::try_from(rules.limits.head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(rules.deadlines.idle)
        .keep_alive_timeout(rules.deadlines.read.pause);
    builder
}

/// Whether accepting failed for the connection that was to be accepted, not for the system.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, PermissionDenied, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | PermissionDenied | TimedOut)
}
