//! Connections by hyper: HTTP/1.1 and HTTP/2 on the sockets that are given, until the server is to stop.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};

use crate::budget::{Arriving, Received};
use crate::crowd::{Crowd, Ending, Figures, Member, Open, StreamPlace};
use crate::framing::{Limits, Malformed, is_host, is_method, is_target};
use crate::guard::{Deadlines, Guarded, Stream};
use crate::origins::{Origins, Refusal, Source};
use crate::peers::{Proxies, Shares};
use crate::problem::{Codes, Problem};
use crate::responses::{Held, Streams, room};
use crate::tls::Tls;

pub use crate::responses::Answer;

/// HTTP/2: what a client may have open at once, and the octets that it may send before it is told to go on.
const MAX_STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Streams that a client resets before they are answered, and that have not been forgotten (rapid reset).
const MAX_PENDING_RESETS: usize = 20;
/// How long to wait when the system has no descriptor for a connection.
const EXHAUSTED: Duration = Duration::from_millis(50);
/// Bytes that the system takes of a response before a part of it is on its way: what a slow client reads is seen in parts
/// of half of it, and what a stalled one costs is bounded.
const UNSENT_BYTES: u32 = 128 << 10;

/// Answers requests. Each is polled on the thread of its connection, so none may block.
pub trait Service: Send + Sync + 'static {
    /// Answers a request whose Host, Origin and framing are in order. A panic is a 500.
    ///
    /// Whoever reads the body waits for the client only as long as its pace allows. The future is dropped when the client
    /// has gone.
    fn answer(
        &self,
        request: Request<Arriving>,
        client: Option<SocketAddr>,
    ) -> impl Future<Output = Response<Answer>> + Send;

    /// Completes the answer to a request that the server has refused. There is no head if it was not understood, or after a
    /// panic.
    fn refused(&self, answer: Response<Answer>, head: Option<&Parts>, client: Option<SocketAddr>) -> Response<Answer> {
        let _ = (head, client);
        answer
    }
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
    /// What all connections share.
    pub shares: Shares,
    /// The addresses that many clients share.
    pub proxies: Arc<Proxies>,
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

/// A request whose head has arrived.
struct Arrived {
    head: Result<Parts, Box<(Problem, Option<Parts>)>>,
    body: Incoming,
    version: Version,
    is_head: bool,
    number: u64,
    open: Open,
    place: Option<Arc<StreamPlace>>,
}

/// A server, which runs where [`Server::serve`] is polled.
pub struct Server<S> {
    service: S,
    rules: Rules,
    http1: http1::Builder,
    crowd: Arc<Crowd>,
}

impl<S: Service> Server<S> {
    /// A server without sockets.
    pub fn new(service: S, rules: Rules) -> Arc<Self> {
        let crowd = Crowd::new(rules.shares, Arc::clone(&rules.proxies));
        let http1 = http1_builder(&rules);
        Arc::new(Server { service, rules, http1, crowd })
    }

    /// What answers the requests.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The figures of now. O(connections).
    pub fn figures(&self) -> Figures {
        self.crowd.figures()
    }

    /// Accepts connections until `stop` is ready; then closes idle ones, and waits for the others at most for `patience`.
    pub async fn serve(self: &Arc<Self>, listeners: Vec<Listener>, stop: impl Future<Output = ()>, patience: Duration) {
        let accepting = futures_util::future::join_all(listeners.iter().map(|each| self.accept(each)));
        tokio::select! {
            _ = accepting => {}
            () = stop => {}
        }
        drop(listeners);
        tokio::select! {
            () = self.crowd.stop() => {}
            () = sleep(patience) => {}
        }
    }

    async fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            let accepted = match listener {
                Listener::Tcp(tcp) => tcp.accept().await.map(|(stream, address)| {
                    self.open(async { Ok(prompt(stream)) }, Some(address));
                }),
                Listener::Tls(tcp, tls) => tcp.accept().await.map(|(stream, address)| {
                    let (tls, deadline) = (Arc::clone(tls), self.rules.deadlines.head);
                    let opening = async move { timeout(deadline, tls.accept(prompt(stream))).await? };
                    // Boxed, since the task of the connection would have room for it until its end.
                    self.open(Box::pin(opening), Some(address));
                }),
                Listener::Unix(unix) => unix.accept().await.map(|(stream, _)| self.open(async { Ok(stream) }, None)),
            };
            if accepted.is_err_and(|error| !is_of_client(&error)) {
                self.crowd.count_exhausted();
                sleep(EXHAUSTED).await;
            }
        }
    }

    /// Serves a connection in a task of its own, if there is a place for it; otherwise closes it.
    fn open<T: Stream>(
        self: &Arc<Self>,
        opening: impl Future<Output = io::Result<T>> + Send + 'static,
        client: Option<SocketAddr>,
    ) {
        let Some(place) = self.crowd.enter(client.map(|address| address.ip())) else { return };
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let member = place.member();
            let serving = async {
                let mut opening = pin!(opening);
                let opened = poll_fn(|cx| match opening.as_mut().poll(cx) {
                    Poll::Pending if server.crowd.is_stopping() => Poll::Ready(None), // a handshake is not waited for
                    polled => polled.map(Result::ok),
                });
                let Some(stream) = opened.await else { return };
                let rules = &server.rules;
                let guarded = Guarded::new(stream, Arc::clone(member), rules.limits, rules.deadlines);
                server.converse(Box::new(guarded), client, member).await;
            };
            let mut serving = pin!(serving);
            poll_fn(|cx| match member.poll_ended(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => serving.as_mut().poll(cx),
            })
            .await;
        });
    }

    /// Answers the requests of a connection until its end.
    ///
    /// Over HTTP/1, hyper has it only as long as there is a request: most connections are idle, and hyper's buffers and
    /// state would be most of what one costs then.
    async fn converse<T: Stream>(
        self: &Arc<Self>,
        mut guarded: Box<Guarded<T>>,
        client: Option<SocketAddr>,
        member: &Arc<Member>,
    ) {
        let (server, of_request) = (Arc::clone(self), Arc::clone(member));
        let mut service = service_fn(move |request| {
            let (server, member) = (Arc::clone(&server), Arc::clone(&of_request));
            let arrived = server.take(request, &member);
            async move { Ok::<_, h2::Error>(server.respond(arrived?, client, &member).await) }
        });
        loop {
            let arrived = poll_fn(|cx| match self.crowd.is_stopping() {
                true => Poll::Ready(Ok(false)),
                false => guarded.poll_arrived(cx),
            });
            match arrived.await {
                Ok(true) => {}
                Ok(false) => {
                    let _ = guarded.shutdown().await; // the client has gone, or was told all
                    return;
                }
                Err(_) => return,
            }
            // What the end of a connection of hyper says, the client knows.
            if member.is_http2() {
                let builder = http2_builder(&self.rules, Streams::new(Arc::clone(member), self.rules.deadlines.read));
                let mut connection = Box::pin(builder.serve_connection(TokioIo::new(guarded), service));
                let end = http2::Connection::graceful_shutdown;
                poll_fn(|cx| self.poll_hyper(member, connection.as_mut(), end, cx)).await;
                return;
            }
            let mut connection = Box::new(self.http1.serve_connection(TokioIo::new(guarded), service));
            let end = http1::Connection::graceful_shutdown;
            if poll_fn(|cx| self.poll_hyper(member, Pin::new(&mut *connection), end, cx)).await.is_some() {
                return;
            }
            // What hyper has read beyond the last request are empty lines at most.
            let parts = connection.into_parts();
            (guarded, service) = (parts.io.into_inner(), parts.service);
        }
    }

    /// Polls a connection of hyper, and lets it end when the server is to stop. None when hyper is not needed until the
    /// next request.
    fn poll_hyper<C: Future>(
        &self,
        member: &Member,
        mut connection: Pin<&mut C>,
        end: fn(Pin<&mut C>),
        cx: &mut Context<'_>,
    ) -> Poll<Option<C::Output>> {
        match connection.as_mut().poll(cx) {
            Poll::Pending if member.is_between() => Poll::Ready(None),
            Poll::Pending if self.crowd.is_stopping() => {
                end(connection.as_mut());
                connection.poll(cx).map(Some)
            }
            polled => polled.map(Some),
        }
    }

    /// Checks the head of a request, so that one which is not answered holds none while its stream waits.
    ///
    /// # Errors
    /// REFUSED_STREAM if there is no place for the stream: the client may send it again.
    fn take(&self, request: Request<Incoming>, member: &Arc<Member>) -> Result<Arrived, h2::Error> {
        let place = match request.version() {
            Version::HTTP_2 => Some(member.begin_stream().map(Arc::new).ok_or_else(|| {
                self.crowd.count(Ending::NoRoom);
                h2::Reason::REFUSED_STREAM
            })?),
            _ => None,
        };
        let (open, number) = (member.begin(), member.next_request());
        let (head, body) = request.into_parts();
        let (version, is_head) = (head.version, head.method == Method::HEAD);
        Ok(Arrived { head: self.admit(head, number, member), body, version, is_head, number, open, place })
    }

    async fn respond(&self, arrived: Arrived, client: Option<SocketAddr>, member: &Arc<Member>) -> Response<Held> {
        let Arrived { head, body, version, is_head, number, mut open, place } = arrived;
        let is_sized = body.size_hint().exact().is_some();
        let mut response = match head {
            Err(refused) => self.refuse(&refused.0, refused.1.as_ref(), client),
            Ok(head) => {
                let deadlines = &self.rules.deadlines;
                let body = Received::new(body, place.clone().map(|place| (deadlines.drain, place)));
                let body = Arriving::new(body, deadlines.body, deadlines.body_whole, Arc::clone(member));
                if body.is_end_stream() {
                    room(member).await; // others wait with their bodies: windows are shared
                }
                let answer = self.service.answer(Request::from_parts(head, body), client);
                let answered = AssertUnwindSafe(answer).catch_unwind().await;
                let answer = answered.unwrap_or_else(|_| self.refuse(&Problem::internal(), None, client));
                // What the body turned out to be says more than what the service made of it.
                match member.fault(number) {
                    Some(fault) if answer.status().is_client_error() || answer.status().is_server_error() => {
                        self.refuse(&Problem::malformed(fault), None, client)
                    }
                    _ => answer,
                }
            }
        };
        // Of a body that the service has not read, hyper takes what has arrived, at once or not at all.
        let is_unread = || member.arrived() < number || (member.has_body() && !is_sized);
        if version == Version::HTTP_10 || (version == Version::HTTP_11 && is_unread()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            *response.version_mut() = version; // otherwise hyper adds that the connection is kept, to please the client
        }
        open.answer();
        Held::response(response, is_head, open, place)
    }

    fn refuse(&self, problem: &Problem, head: Option<&Parts>, client: Option<SocketAddr>) -> Response<Answer> {
        let mut response = problem.response(&self.rules.codes).map(Answer::from);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        self.service.refused(response, head, client)
    }

    /// Checks what concerns every request, and gives it a Host and a target in origin form.
    fn admit(&self, mut head: Parts, number: u64, member: &Member) -> Result<Parts, Box<(Problem, Option<Parts>)>> {
        if let Some(fault) = member.fault(number) {
            return Err(Box::new((Problem::malformed(fault), None)));
        }
        if head.version == Version::HTTP_2
            && let Err(fault) = check_head(&head, self.rules.limits.fields)
        {
            return Err(Box::new((Problem::malformed(fault), None)));
        }
        if let Some(authority) = head.uri.authority() {
            let host = HeaderValue::from_str(authority.as_str());
            let target = head.uri.path_and_query().map_or("/", |each| each.as_str()).parse::<Uri>();
            let (Ok(host), Ok(target)) = (host, target) else {
                return Err(Box::new((Problem::malformed(Malformed::Authority), None)));
            };
            head.headers.insert(header::HOST, host);
            head.uri = target;
        }
        let value = |name: &str| head.headers.get(name).map(HeaderValue::as_bytes);
        let source = Source {
            method: head.method.as_str().as_bytes(),
            host: value("host"),
            origin: value("origin"),
            site: value("sec-fetch-site"),
        };
        match self.rules.origins.refusal(&source) {
            None => Ok(head),
            Some(refusal) => Err(Box::new((Problem::refused(&refusal), Some(head)))),
        }
    }
}

/// Checks of a head of HTTP/2 what [`crate::framing`] checks of others: it has few fields, names one host, and is no CONNECT.
fn check_head(head: &Parts, max_fields: usize) -> Result<(), Malformed> {
    if head.headers.len() > max_fields {
        return Err(Malformed::TooManyFields(max_fields));
    }
    match head.method.as_str() {
        "CONNECT" => return Err(Malformed::Connect),
        method if !is_method(method) => return Err(Malformed::Method),
        _ => {}
    }
    if !is_target(head.uri.path_and_query().map_or("/", PathAndQuery::as_str).as_bytes()) {
        return Err(Malformed::Target);
    }
    let hosts = head.headers.get_all(header::HOST);
    match head.uri.authority() {
        Some(authority) if authority.as_str().contains('@') || !is_host(authority.as_str().as_bytes()) => {
            Err(Malformed::Authority)
        }
        // RFC 9113 section 8.3.1: a Host besides the authority has to be the same.
        Some(authority)
            if !hosts.iter().all(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())) =>
        {
            Err(Malformed::Hosts(hosts.iter().count() + 1))
        }
        Some(_) => Ok(()),
        None if hosts.iter().count() != 1 => Err(Malformed::Hosts(hosts.iter().count())),
        None if !hosts.iter().all(|host| is_host(host.as_bytes())) => Err(Malformed::Host),
        None => Ok(()),
    }
}

impl Problem {
    fn malformed(fault: Malformed) -> Self {
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

/// A connection whose first write is sent at once: it is the whole head.
fn prompt(stream: TcpStream) -> TcpStream {
    // It only is slower, or holds more, without.
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    stream
}

fn http1_builder(rules: &Rules) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Half-closed clients are answered, as the guard tells hyper of a client that has gone only. Heads have been checked
    // and limited: hyper's own limits only have to be wider.
    builder.half_close(false).max_headers(rules.limits.fields).max_buf_size(2 * rules.limits.head_bytes.max(32 << 10));
    builder
}

fn http2_builder(rules: &Rules, streams: Streams) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(
            u32::try_from(rules.shares.per_address).map_or(MAX_STREAMS, |most| most.min(MAX_STREAMS)),
        )
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
