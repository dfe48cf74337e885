//! The server on real sockets: what clients send byte by byte, and what they get.
#![cfg(unix)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coregw_front::budget::Arriving;
use coregw_front::guard::Deadlines;
use coregw_front::pace::Rate;
use coregw_front::peers::{LOOPBACK, Proxies};
use coregw_front::problem::Problem;
use coregw_front::proxy::Upstream;
use coregw_front::server::{Answer, Listener, Rules, Server, Service};
use coregw_front::tls::Tls;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[path = "support/rules.rs"]
mod rules;

use rules::{SOON, codes, rules};

const RATE: Rate = Rate { bytes_per_second: 1000, grace: SOON, pause: SOON };

/// Answers with what it has understood; `/cold/…` goes to another server.
struct Echo(Option<Arc<Upstream>>);

fn text(status: StatusCode, text: String) -> Response<Answer> {
    let mut response = Response::new(Answer::from(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

impl Service for Echo {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if let Some(upstream) = self.0.as_ref().filter(|_| path.starts_with("/cold")) {
            return match upstream.send(request, client).await {
                Ok(response) => response,
                Err(failure) => Problem::from(failure).response(&codes()).map(Answer::from),
            };
        }
        if path == "/panic" {
            panic!("as asked for");
        }
        if path == "/early" {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "early".to_owned());
        }
        match request.into_body().collect().await {
            Ok(body) => text(StatusCode::OK, format!("{method} {path} {}", body.to_bytes().len())),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the body failed".to_owned()),
        }
    }
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

async fn start(upstream: Option<PathBuf>) -> Running {
    start_with(upstream, Listener::Tcp).await
}

async fn start_with(upstream: Option<PathBuf>, listen: impl FnOnce(TcpListener) -> Listener) -> Running {
    let second = Duration::from_secs(1);
    let base = rules(SOON);
    let deadlines = Deadlines { body: RATE, read: RATE, drain: second, ..base.deadlines };
    let rules = Rules { deadlines, proxies: Arc::new(Proxies::new(LOOPBACK).expect("networks")), ..base };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = listen(listener);
    let (stop, stopped) = oneshot::channel();
    let service = Echo(upstream.map(|path| Upstream::new(path, 4 * second)));
    let ended = tokio::spawn(async move {
        let stopped = async move { drop(stopped.await) };
        Server::new(service, rules).serve(vec![listener], stopped, SOON).await;
    });
    Running { address, stop, ended }
}

/// Sends bytes and ends the sending side; returns all that comes.
async fn exchange(running: &Running, sent: &[u8]) -> String {
    let mut connection = TcpStream::connect(running.address).await.expect("a connection");
    let _ = connection.write_all(sent).await; // it may be refused while it is sent
    let _ = connection.shutdown().await;
    let mut received = Vec::new();
    let ended = tokio::time::timeout(SOON, connection.read_to_end(&mut received)).await;
    ended.unwrap_or_else(|_| panic!("no end of {:?}", String::from_utf8_lossy(sent))).expect("no reset");
    String::from_utf8_lossy(&received).into_owned()
}

/// The statuses of the answers.
fn statuses(received: &str) -> Vec<&str> {
    let after = received.match_indices("HTTP/1.").filter_map(|(at, _)| received.get(at + 9..at + 12));
    after.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST /y HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}")
}

#[tokio::test]
async fn each_request_has_its_answer_and_a_malformed_one_is_the_last() {
    let running = start(None).await;
    let chunked = "Transfer-Encoding: chunked\r\n";
    let cases = [
        (GET.to_owned(), vec!["200"]),
        (GET.repeat(3), vec!["200"; 3]),
        (post("Content-Length: 3\r\n", &format!("abc{GET}")), vec!["200", "200"]),
        (post(chunked, &format!("3\r\nabc\r\n0\r\n\r\n{GET}")), vec!["200", "200"]),
        ("GET /x HTTP/1.0\r\n\r\n".to_owned(), vec!["200"]),
        (format!("{GET}GET /x HTTP/1.1\r\n\r\n{GET}"), vec!["200", "400"]),
        (format!("{GET}GET /x HTTP/1.1\nHost: localhost\n\n{GET}"), vec!["200", "400"]),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", &format!("0\r\n\r\n{GET}")), vec!["400"]),
        (post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), vec!["400"]),
        (post(chunked, &format!("3\nabc\r\n0\r\n\r\n{GET}")), vec!["400"]),
        (post(chunked, &format!("0x3\r\nabc\r\n0\r\n\r\n{GET}")), vec!["400"]),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(20_000)), vec!["431"]),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(101)), vec!["431"]),
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), vec!["400"]),
        ("GET /x HTTP/1.1\r\nHost: example.org\r\n\r\n".to_owned(), vec!["421"]),
        ("GET http://example.org/x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), vec!["421"]),
        ("GET http://localhost/x HTTP/1.1\r\nHost: example.org\r\n\r\n".to_owned(), vec!["200"]),
        (post("Origin: https://example.org\r\nContent-Length: 0\r\n", GET), vec!["403", "200"]),
        (format!("GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n{GET}"), vec!["500", "200"]),
        (post("Upgrade: h2c\r\nConnection: upgrade\r\n", GET), vec!["200", "200"]),
        (post("Content-Length: 3\r\n", "ab"), vec!["500"]),
        ("GET /x HT".to_owned(), vec![]),
    ];
    for (sent, expected) in cases {
        let received = exchange(&running, sent.as_bytes()).await;
        assert_eq!(statuses(&received), expected, "{sent:.200?}: {received}");
        for refused in received.split("HTTP/1.").filter(|answer| answer.get(2..4).is_some_and(|status| status == "40"))
        {
            assert!(refused.contains("application/json") && refused.contains("\"message\":"), "{refused}");
        }
    }
}

/// A server that answers each head at once with 401, and reads no body.
async fn refuse_heads(listener: UnixListener) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(async move {
            let mut received = Vec::new();
            while !received.windows(4).any(|window| window == b"\r\n\r\n") {
                if stream.read_buf(&mut received).await.is_ok_and(|size| size == 0) {
                    return;
                }
            }
            stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nnope").await.expect("it is read");
            std::future::pending::<()>().await;
        });
    }
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_sends_and_is_the_last() {
    let folder = fresh_folder("early");
    let listener = UnixListener::bind(folder.join("socket")).expect("a socket");
    tokio::spawn(refuse_heads(listener));
    let running = start(Some(folder.join("socket"))).await;
    let long = "x".repeat(3_000_000);
    for (path, status) in [("early", "413"), ("cold", "401")] {
        let head = format!("POST /{path} HTTP/1.1\r\nHost: localhost\r\n");
        for body in [
            format!("Content-Length: 3000000\r\n\r\n{long}{GET}"),
            format!("Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n{long}\r\n0\r\n\r\n{GET}"),
        ] {
            for _ in 0..3 {
                let received = exchange(&running, format!("{head}{body}").as_bytes()).await;
                assert_eq!(statuses(&received), [status], "{path}");
                assert!(received.contains("\r\nconnection: close\r\n"), "{received}");
            }
        }
        // What has arrived is discarded, and the connection goes on.
        let received = exchange(&running, format!("{head}Content-Length: 3\r\n\r\nabc{GET}").as_bytes()).await;
        assert_eq!(statuses(&received), [status, "200"], "{path}");
        assert!(!received.contains("connection: close"), "{received}");
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[tokio::test]
async fn who_sends_without_end_after_an_early_answer_is_left() {
    let running = start(None).await;
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    let endless: [(&str, &str, &str, &[u8]); 7] = [
        ("early", "Content-Length: 9000000000000\r\n\r\n", "", b"0123456789"),
        ("early", chunked, "", b"5\r\nhello\r\n"),
        ("early", chunked, "0\r\n", b"a: b\r\n"),
        ("early", chunked, "1;", b"x"),
        ("y", chunked, "0\r\n", b"a: b\r\n"),
        ("y", chunked, "1;", b"x"),
        ("y", chunked, "", b"1;x=y\r\na\r\n"),
    ];
    for (path, fields, start, piece) in endless {
        let mut connection = TcpStream::connect(running.address).await.expect("a connection");
        let head = format!("POST /{path} HTTP/1.1\r\nHost: localhost\r\n{fields}{start}");
        connection.write_all(head.as_bytes()).await.expect("room");
        let mut received = Vec::new();
        if path == "early" {
            connection.read_buf(&mut received).await.expect("an answer");
        }
        let (mut reading, mut writing) = connection.into_split();
        let answer = tokio::spawn(async move {
            let _ = reading.read_to_end(&mut received).await; // it may end by a reset
            String::from_utf8_lossy(&received).into_owned()
        });
        let pieces = piece.repeat(1000);
        let sending = async {
            loop {
                writing.write_all(&pieces).await?;
            }
        };
        let ended: Result<(), std::io::Error> = tokio::time::timeout(SOON, sending).await.expect("an end");
        assert!(ended.is_err());
        let received = answer.await.expect("no panic");
        // A fault of the body says more than the answer of the service, unless that was sent before.
        assert_eq!(statuses(&received), [if path == "early" { "413" } else { "400" }], "{head}");
    }
}

#[tokio::test]
async fn stopping_waits_for_answers_and_closes_idle_connections() {
    let running = start(None).await;
    let mut idle = TcpStream::connect(running.address).await.expect("a connection");
    idle.write_all(GET.as_bytes()).await.expect("room");
    let mut busy = TcpStream::connect(running.address).await.expect("a connection");
    busy.write_all(post("Content-Length: 3\r\n", "ab").as_bytes()).await.expect("room");
    let mut space = [0; 1000];
    assert!(idle.read(&mut space).await.expect("an answer") > 0);
    tokio::time::sleep(Duration::from_millis(50)).await; // let the other request begin
    running.stop.send(()).expect("it runs");
    assert_eq!(idle.read(&mut space).await.expect("an end"), 0);
    assert!(!running.ended.is_finished());
    busy.write_all(b"c").await.expect("room");
    let mut received = String::new();
    busy.read_to_string(&mut received).await.expect("an answer");
    assert_eq!(statuses(&received), ["200"]);
    running.ended.await.expect("no panic");
}

#[tokio::test]
async fn http2_is_answered_in_clear_with_the_same_checks() {
    let running = start(None).await;
    let stream = TcpStream::connect(running.address).await.expect("a connection");
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    for (authority, status) in [("localhost", 200), ("example.org", 421), ("127.0.0.1:80", 200)] {
        let request = Request::post(format!("http://{authority}/z"))
            .body(Full::new(Bytes::from_static(b"abcd")))
            .expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), status, "{authority}");
    }
}

/// A server that answers every complete head with a short 200, and counts connections and heads.
async fn count_heads(listener: UnixListener, counted: Arc<[AtomicUsize; 2]>, answers_per_connection: usize) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        counted[0].fetch_add(1, Ordering::AcqRel);
        let counted = Arc::clone(&counted);
        tokio::spawn(async move {
            let (mut received, mut answered) = (Vec::new(), 0);
            while answered < answers_per_connection && stream.read_buf(&mut received).await.is_ok_and(|size| size > 0) {
                while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
                    assert!(!head.contains("connection:") && !head.contains("x-hop"), "{head}");
                    received.drain(..end + 4);
                    counted[1].fetch_add(1, Ordering::AcqRel);
                    answered += 1;
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5\r\n\r\nok";
                    stream.write_all(answer).await.expect("the front reads");
                }
            }
        });
    }
}

#[tokio::test]
async fn another_server_answers_over_connections_that_are_kept_and_may_end() {
    let folder = fresh_folder("upstream");
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let counted = Arc::<[AtomicUsize; 2]>::default();
    tokio::spawn(count_heads(listener, Arc::clone(&counted), 3));
    let running = start(Some(path)).await;
    let get =
        "GET /cold HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\nTE: trailers\r\n\r\n";
    for _ in 0..10 {
        let received = exchange(&running, get.as_bytes()).await;
        assert_eq!(statuses(&received), ["200"], "{received}");
        assert!(
            received.ends_with("\r\n\r\nok") && !received.to_ascii_lowercase().contains("keep-alive"),
            "{received}"
        );
    }
    let [connections, heads] = [0, 1].map(|index| counted[index].load(Ordering::Acquire));
    assert_eq!((connections, heads), (4, 10), "ten requests, of which three share a connection");
    std::fs::remove_dir_all(&folder).expect("a folder");
}

/// A folder of one test.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("coregw-front-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Writes a new certificate of localhost and its key; returns what a client has to trust.
fn write_certificate(folder: &Path) -> RootCertStore {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(folder.join("certificate.pem"), made.cert.pem()).expect("a file");
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
    let mut trusted = RootCertStore::empty();
    trusted.add(made.cert.der().clone()).expect("a certificate");
    trusted
}

async fn connect_by_tls(
    running: &Running,
    trusted: &RootCertStore,
    alpn: &[&[u8]],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(trusted.clone()).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(running.address).await?;
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().expect("a name"), stream).await
}

#[tokio::test]
async fn certificates_are_replaced_while_connections_are_open() {
    let folder = fresh_folder("tls");
    let old = write_certificate(&folder);
    let tls = Arc::new(Tls::read(folder.join("certificate.pem"), folder.join("key.pem")).expect("a certificate"));
    let served = Arc::clone(&tls);
    let running = start_with(None, |listener| Listener::Tls(listener, served)).await;

    let mut open = connect_by_tls(&running, &old, &[b"http/1.1"]).await.expect("it is trusted");
    let new = write_certificate(&folder);
    tls.reload().expect("a certificate");
    assert!(connect_by_tls(&running, &old, &[]).await.is_err(), "the old certificate is gone");
    std::fs::write(folder.join("key.pem"), "no key").expect("a file");
    let error = tls.reload().expect_err("it is no key").to_string();
    assert!(error.ends_with("key.pem: has no private key"), "{error}");

    let stream = connect_by_tls(&running, &new, &[b"h2"]).await.expect("it is kept");
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::get("https://localhost/z").body(Full::new(Bytes::new())).expect("a request");
    assert_eq!(sender.send_request(request).await.expect("an answer").status(), 200);

    open.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.expect("it is open");
    let mut received = String::new();
    open.read_to_string(&mut received).await.expect("an answer");
    assert_eq!(statuses(&received), ["200"]);
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = fresh_folder("bad-tls");
    write_certificate(&folder);
    let path = |name: &str| folder.join(name);
    std::fs::rename(path("key.pem"), path("other.pem")).expect("a file");
    write_certificate(&folder);
    std::fs::write(path("empty.pem"), "").expect("a file");
    for (certificate, key, expected) in [
        ("certificate.pem", "other.pem", "certificate.pem: is not the certificate of the key in "),
        ("key.pem", "key.pem", "key.pem: has no certificate"),
        ("certificate.pem", "empty.pem", "empty.pem: has no private key"),
        ("missing.pem", "key.pem", "missing.pem: I/O error: No such file or directory"),
        ("certificate.pem", "missing.pem", "missing.pem: I/O error: No such file or directory"),
    ] {
        let error = Tls::read(path(certificate), path(key)).err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[tokio::test]
async fn a_handshake_is_not_waited_for_at_the_end() {
    let folder = fresh_folder("handshake");
    let trusted = write_certificate(&folder);
    let tls = Arc::new(Tls::read(folder.join("certificate.pem"), folder.join("key.pem")).expect("a certificate"));
    let running = start_with(None, |listener| Listener::Tls(listener, tls)).await;
    let mut silent = TcpStream::connect(running.address).await.expect("a connection");
    let second = connect_by_tls(&running, &trusted, &[]).await.expect("it is trusted");
    drop(second); // so the first one is accepted, too
    running.stop.send(()).expect("it runs");
    // Both the deadline of a handshake and the patience of the server are longer.
    tokio::time::timeout(SOON / 2, running.ended).await.expect("it ends").expect("no panic");
    assert_eq!(silent.read(&mut [0]).await.expect("no reset"), 0);
    std::fs::remove_dir_all(&folder).expect("a folder");
}

#[tokio::test]
async fn who_speaks_no_tls_is_left() {
    let folder = fresh_folder("no-tls");
    write_certificate(&folder);
    let tls = Arc::new(Tls::read(folder.join("certificate.pem"), folder.join("key.pem")).expect("a certificate"));
    let running = start_with(None, |listener| Listener::Tls(listener, tls)).await;
    assert_eq!(statuses(&exchange(&running, GET.as_bytes()).await), Vec::<&str>::new());
    std::fs::remove_dir_all(&folder).expect("a folder");
}
