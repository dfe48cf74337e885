//! Another server behind the front: what becomes of its answers, and of it when clients go.
#![cfg(unix)]

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coregw_front::budget::Arriving;
use coregw_front::guard::Deadlines;
use coregw_front::pace::Rate;
use coregw_front::problem::Problem;
use coregw_front::proxy::Upstream;
use coregw_front::server::{Answer, Listener, Rules, Server, Service};
use futures_util::stream::pending;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

#[path = "support/rules.rs"]
mod rules;

use rules::{SOON, codes, rules, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const OLD_GET: &[u8] = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

struct Through(Arc<Upstream>);

impl Service for Through {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        match self.0.send(request, client).await {
            Ok(response) => response,
            Err(failure) => Problem::from(failure).response(&codes()).map(Answer::from),
        }
    }
}

/// A front before a server that a test plays.
struct Running {
    server: Arc<Server<Through>>,
    address: SocketAddr,
    listener: UnixListener,
    folder: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn start(name: &str) -> Running {
    start_with(name, rules(SOON)).await
}

async fn start_with(name: &str, rules: Rules) -> Running {
    let folder = std::env::temp_dir().join(format!("coregw-front-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let listener = UnixListener::bind(folder.join("socket")).expect("a socket");
    let server = Server::new(Through(Upstream::new(folder.join("socket"), SOON)), rules);
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = tcp.local_addr().expect("an address");
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve(vec![Listener::Tcp(tcp)], std::future::pending(), SOON).await });
    Running { server, address, listener, folder }
}

impl Running {
    async fn connect(&self, sent: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.expect("a connection");
        client.write_all(sent).await.expect("room");
        client
    }

    /// The next request of the front, whose head has arrived.
    async fn accept(&self) -> UnixStream {
        let accepting = async {
            let (mut stream, _) = self.listener.accept().await.expect("a connection");
            let mut received = Vec::new();
            while !received.windows(4).any(|window| window == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut received).await.expect("a request") > 0);
            }
            stream
        };
        timeout(SOON, accepting).await.expect("a request")
    }
}

/// Waits until the front has closed a connection.
async fn closed(mut stream: UnixStream) {
    let mut rest = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut rest)).await.expect("an end");
    assert!(rest.is_empty());
}

/// All that comes, and whether the connection then ends in order.
async fn everything(mut client: TcpStream) -> (String, bool) {
    let mut received = Vec::new();
    let ended = timeout(SOON, client.read_to_end(&mut received)).await.expect("an end");
    (String::from_utf8_lossy(&received).into_owned(), ended.is_ok())
}

#[tokio::test]
async fn the_request_of_a_client_that_has_gone_ends() {
    let running = start("gone").await;
    for sent in [GET, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nab"] {
        for is_reset in [true, false] {
            let client = running.connect(sent).await;
            let stream = running.accept().await;
            if is_reset {
                SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a socket");
            }
            drop(client); // otherwise its system answers the next bytes with a reset
            let (mut reading, _writing) = stream.into_split();
            let _ = timeout(SOON, reading.read_to_end(&mut Vec::new())).await.expect("an end");
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_its_request() {
    let running = start("stream").await;
    let stream = std::net::TcpStream::connect(running.address).expect("a connection");
    stream.set_nonblocking(true).expect("a socket");
    let same = stream.try_clone().expect("a socket");
    let io = hyper_util::rt::TokioIo::new(TcpStream::from_std(stream).expect("a socket"));
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut requests = Vec::new();
    for _ in 0..2 {
        let request = Request::get("http://localhost/").body(Full::new(Bytes::new())).expect("a request");
        requests.push(tokio::spawn(sender.send_request(request)));
    }
    let (first, second) = (running.accept().await, running.accept().await);
    for request in requests {
        request.abort();
    }
    closed(first).await;
    closed(second).await;
    let request = Request::get("http://localhost/").body(Full::new(Bytes::new())).expect("a request");
    let _third = tokio::spawn(sender.send_request(request));
    let third = running.accept().await;
    same.shutdown(Shutdown::Both).expect("it is open");
    closed(third).await;
}

#[tokio::test]
async fn a_client_that_has_ended_its_side_gets_its_answer() {
    let running = start("half").await;
    for is_old in [false, true] {
        let mut client = running.connect(if is_old { OLD_GET } else { GET }).await;
        client.shutdown().await.expect("it is open");
        let mut stream = running.accept().await;
        if !is_old {
            let mut interim = [0; 25];
            timeout(SOON, client.read_exact(&mut interim)).await.expect("an end").expect("an interim response");
            assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        tokio::time::sleep(Duration::from_millis(1500)).await; // it is looked at again meanwhile
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("it is read");
        let (received, is_whole) = everything(client).await;
        assert!(is_whole && received.starts_with("HTTP/1.1 200 ") && received.ends_with("\r\n\r\nok"), "{received}");
    }
}

#[tokio::test]
async fn a_client_that_has_ended_its_side_gets_all_of_a_long_answer() {
    let running = start("long").await;
    let mut client = running.connect(GET).await;
    client.shutdown().await.expect("it is open");
    let mut stream = running.accept().await;
    let answering = tokio::spawn(async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n").await.expect("it is read");
        stream.write_all(&[b'x'; 20_000_000]).await.expect("it is read");
        stream
    });
    tokio::time::sleep(Duration::from_millis(500)).await; // it fills what is between
    let (received, is_whole) = everything(client).await;
    assert!(is_whole && received.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= 20_000_000));
    answering.await.expect("no panic");
}

#[tokio::test]
async fn a_client_that_cuts_its_body_off_learns_what_is_wrong_with_the_rest() {
    let running = start("cut").await;
    for framing in ["Content-Length: 99\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        for is_answered in [true, false] {
            let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\n{framing}");
            let mut client = running.connect(request.as_bytes()).await;
            let mut stream = running.accept().await;
            client.shutdown().await.expect("it is open");
            if is_answered {
                let answer = b"HTTP/1.1 415 Unsupported Media Type\r\nContent-Length: 2\r\n\r\nno";
                stream.write_all(answer).await.expect("it is read");
            }
            let (received, is_whole) = everything(client).await;
            let expected = if is_answered { "HTTP/1.1 415 " } else { "HTTP/1.1 400 " };
            assert!(is_whole && received.contains(expected) && received.contains("connection: close"), "{received}");
            drop(stream);
        }
    }
}

#[tokio::test]
async fn a_body_that_stalls_ends_its_request() {
    let short = Duration::from_millis(200);
    let rate = Rate { bytes_per_second: 0, grace: short, pause: short };
    let base = rules(SOON);
    let rules = Rules { deadlines: Deadlines { body: rate, drain: short, ..base.deadlines }, ..base };
    let running = start_with("stalls", rules).await;
    let client = running.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nab").await;
    let mut stream = running.accept().await;
    let (received, is_whole) = everything(client).await;
    assert!(is_whole && received.starts_with("HTTP/1.1 400 ") && received.contains("in time"), "{received}");
    timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("an end").expect("no reset");

    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(running.address).await.expect("a connection"));
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    let body = StreamBody::new(pending::<Result<Frame<Bytes>, Infallible>>());
    let request = Request::post("http://localhost/").body(body).expect("a request");
    let response = timeout(SOON, sender.send_request(request)).await.expect("an end").expect("an answer");
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    closed(running.accept().await).await;
}

#[tokio::test]
async fn an_answer_without_length_is_framed_for_its_client() {
    let running = start("framed").await;
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc",
    ] {
        for (sent, is_old) in [(OLD_GET, true), (GET, false)] {
            let mut client = running.connect(sent).await;
            let mut stream = running.accept().await;
            stream.write_all(answer.as_bytes()).await.expect("it is read");
            drop(stream);
            if !is_old {
                client.shutdown().await.expect("it is open");
            }
            let (received, is_whole) = everything(client).await;
            assert!(is_whole && received.starts_with("HTTP/1.1 200 OK\r\n"), "{received}");
            let (head, body) = received.split_once("\r\n\r\n").expect("a head");
            let is_chunked = head.contains("transfer-encoding: chunked");
            let is_last = head.contains("connection: close") && !head.contains("keep-alive");
            let expected = if is_old { (false, true, "abc") } else { (true, false, "3\r\nabc\r\n0\r\n\r\n") };
            assert_eq!((is_chunked, is_last, body), expected, "{received}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_completed() {
    let running = start("broken").await;
    for (answer, end) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", ""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", ""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "z\r\n"),
    ] {
        for sent in [GET, OLD_GET] {
            let mut client = running.connect(sent).await;
            let mut stream = running.accept().await;
            stream.write_all(answer.as_bytes()).await.expect("it is read");
            let mut received = Vec::new();
            let beginning = async {
                while !received.windows(3).any(|window| window == b"abc") {
                    assert!(client.read_buf(&mut received).await.expect("an answer") > 0);
                }
            };
            timeout(SOON, beginning).await.expect("an answer");
            stream.write_all(end.as_bytes()).await.expect("it is read");
            drop(stream);
            let (rest, is_whole) = everything(client).await;
            assert!(!is_whole && rest.is_empty(), "{answer:?}: {rest:?}");
        }
    }
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(running.address).await.expect("a connection"));
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::get("http://localhost/").body(Full::new(Bytes::new())).expect("a request");
    let sending = tokio::spawn(sender.send_request(request));
    let mut stream = running.accept().await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await.expect("it is read");
    let mut response = sending.await.expect("no panic").expect("an answer");
    assert_eq!(response.frame().await.expect("a frame").expect("a part").into_data().expect("data"), "abc");
    drop(stream);
    assert!(response.body_mut().collect().await.is_err());
}

#[tokio::test]
async fn without_an_answer_the_gateway_is_unavailable() {
    let running = start("none").await;
    for answer in ["", "HTTP/1.1 2", "garbage\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let mut client = running.connect(GET).await;
        let mut stream = running.accept().await;
        stream.write_all(answer.as_bytes()).await.expect("it is read");
        drop(stream);
        client.shutdown().await.expect("it is open");
        assert_unavailable(&everything(client).await.0);
    }
    std::fs::remove_file(running.folder.join("socket")).expect("a socket");
    let mut client = running.connect(GET).await;
    client.shutdown().await.expect("it is open");
    assert_unavailable(&everything(client).await.0);
}

#[tokio::test]
async fn a_server_that_has_not_accepted_the_last_connections_yet_is_waited_for_in_turn() {
    let running = start("queue").await;
    SockRef::from(&running.listener).listen(0).expect("a shorter queue");
    let path = running.folder.join("socket");
    let first = UnixStream::connect(&path).await.expect("a place in the queue");
    assert!(UnixStream::connect(&path).await.is_err(), "the queue is full");
    let mut clients = Vec::new();
    for number in 0..6 {
        clients.push(running.connect(format!("GET /{number} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await);
        until(|| running.server.figures().requests > number).await; // it takes its turn in the poll that begins it
    }
    drop(first);
    running.listener.accept().await.expect("the first");
    for (number, client) in clients.iter_mut().enumerate() {
        let (mut stream, _) = timeout(SOON, running.listener.accept()).await.expect("its turn").expect("a connection");
        let mut target = [0; 7];
        timeout(SOON, stream.read_exact(&mut target)).await.expect("a request").expect("its line");
        assert_eq!(target, format!("GET /{number} ").as_bytes());
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).await.expect("it is read");
        let mut received = [0; 15];
        timeout(SOON, client.read_exact(&mut received)).await.expect("an answer").expect("all of it");
        assert_eq!(&received, b"HTTP/1.1 200 OK");
    }
}

#[tokio::test]
async fn a_request_that_waits_for_the_server_and_for_its_body_makes_room_for_others() {
    let mut few = rules(SOON);
    few.shares.connections = 3;
    let running = start_with("room", few).await;
    SockRef::from(&running.listener).listen(0).expect("a shorter queue");
    let _first = UnixStream::connect(running.folder.join("socket")).await.expect("a place in the queue");
    let mut clients = Vec::new();
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n";
    for (requests, sent) in [(1, format!("{head}ab")), (2, format!("{head}a")), (2, String::new())] {
        clients.push(running.connect(sent.as_bytes()).await);
        let figures = || running.server.figures();
        until(|| figures().requests >= requests && figures().connections >= clients.len()).await;
        tokio::time::sleep(Duration::from_millis(5)).await; // times are in milliseconds, and the older one has to differ
    }
    let mut newest = running.connect(b"").await;
    let [whole, part, idle] = &mut clients[..] else { unreachable!() };
    assert_eq!(timeout(SOON, part.read_u8()).await.expect("an end").map_err(drop), Err(()));
    for client in [whole, idle, &mut newest] {
        assert!(client.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

fn assert_unavailable(received: &str) {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    assert!(received.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{received}");
    assert!(received.contains("\r\ncontent-type: application/json\r\n") && received.contains("retry-after: 1\r\n"));
    assert!(received.contains("\r\n\r\n{\"error\":\"unavailable\",\"message\":"), "{received}");
}
