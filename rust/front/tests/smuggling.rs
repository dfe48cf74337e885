//! Requests whose end two parsers might see in different places, on their way through the front to another server.
#![cfg(unix)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use coregw_front::budget::Arriving;
use coregw_front::problem::Problem;
use coregw_front::proxy::Upstream;
use coregw_front::server::{Answer, Listener, Rules, Server, Service};
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

#[path = "support/rules.rs"]
mod rules;

use rules::{SOON, codes, rules};

/// What no case asks for, if its bytes are read as they should be.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Hands on everything.
struct Through(Arc<Upstream>);

impl Service for Through {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        match self.0.send(request, client).await {
            Ok(response) => response,
            Err(failure) => Problem::from(failure).response(&codes()).map(Answer::from),
        }
    }
}

/// Complete requests: their heads and bodies.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// Reads requests as the front has to send them; a panic shows what it may not send.
async fn read_requests(mut stream: UnixStream, seen: Seen) {
    let mut received = String::new();
    while let Some(head) = until(&mut stream, &mut received, "\r\n\r\n").await {
        let mut framing = head.lines().filter_map(|line| line.split_once(": "));
        let value = |field: &str| {
            let values: Vec<_> =
                framing.clone().filter(|(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value).collect();
            assert!(values.len() < 2, "{head}");
            values.first().map(|value| (*value).to_owned())
        };
        let (length, coding) = (value("content-length"), value("transfer-encoding"));
        assert!(framing.next().is_some() && !head.contains('\0'), "{head}");
        let body = match (length, coding.as_deref()) {
            (None, None) => Some(String::new()),
            (Some(length), None) => take(&mut stream, &mut received, length.parse().expect("a length")).await,
            (None, Some("chunked")) => chunks(&mut stream, &mut received).await,
            _ => panic!("{head}"),
        };
        let Some(body) = body else { return }; // the front has given it up
        seen.lock().expect("no panic").push((head, body));
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err() {
            return;
        }
    }
}

async fn take(stream: &mut UnixStream, received: &mut String, size: usize) -> Option<String> {
    while received.len() < size {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
        received.push_str(std::str::from_utf8(&bytes[..read]).expect("text"));
    }
    Some(received.drain(..size).collect())
}

/// What ends with `end`, which is taken but not returned.
async fn until(stream: &mut UnixStream, received: &mut String, end: &str) -> Option<String> {
    loop {
        if let Some(at) = received.find(end) {
            let found = received[..at].to_owned();
            received.drain(..at + end.len());
            return Some(found);
        }
        let known = received.len();
        let more = take(stream, received, known + 1).await?;
        received.insert_str(0, &more);
    }
}

async fn chunks(stream: &mut UnixStream, received: &mut String) -> Option<String> {
    let mut body = String::new();
    loop {
        let size = usize::from_str_radix(&until(stream, received, "\r\n").await?, 16).expect("a size");
        body.push_str(&take(stream, received, size).await?);
        assert_eq!(take(stream, received, 2).await?, "\r\n", "no trailers");
        if size == 0 {
            return Some(body);
        }
    }
}

/// A front before such a server.
async fn start(name: &str) -> (SocketAddr, Seen, Folder) {
    let folder = Folder::fresh(name);
    let path = folder.0.join("socket");
    let unix = UnixListener::bind(&path).expect("a socket");
    let seen = Seen::default();
    let seen_by_server = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = unix.accept().await.expect("a connection");
            tokio::spawn(read_requests(stream, Arc::clone(&seen_by_server)));
        }
    });
    let base = rules(SOON);
    let limits = coregw_front::framing::Limits { head_bytes: 4 << 10, ..base.limits };
    let server = Server::new(Through(Upstream::new(path, SOON)), Rules { limits, ..base });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { server.serve(vec![Listener::Tcp(listener)], std::future::pending(), SOON).await });
    (address, seen, folder)
}

/// A folder that is removed.
struct Folder(PathBuf);

impl Folder {
    fn fresh(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("coregw-front-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sends bytes and ends the sending side; returns all that comes.
async fn exchange(address: SocketAddr, sent: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    let _ = connection.write_all(sent).await; // it may be refused while it is sent
    let _ = connection.shutdown().await;
    let mut received = Vec::new();
    let ended = timeout(SOON, connection.read_to_end(&mut received)).await;
    ended.unwrap_or_else(|_| panic!("no end of {:?}", String::from_utf8_lossy(sent))).expect("no reset");
    String::from_utf8_lossy(&received).into_owned()
}

/// A request with these fields besides Host, and what follows its head.
fn post(fields: &str, rest: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{rest}")
}

/// The requests of a section of the vectors, which the tests of the gateway send to its own server as well.
fn vectors(section: &str) -> Vec<String> {
    let file: serde_json::Value = serde_json::from_str(include_str!("vectors/smuggling.json")).expect("JSON");
    assert_eq!(file["smuggled"], SMUGGLED);
    serde_json::from_value(file[section].clone()).expect("a list of requests")
}

fn statuses(received: &str) -> Vec<&str> {
    received.match_indices("HTTP/1.1 ").filter_map(|(at, _)| received.get(at + 9..at + 12)).collect()
}

fn assert_is_problem(received: &str, sent: &str) {
    let (head, body) = received.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{sent:?}: {received}"));
    for line in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "connection: close",
    ] {
        assert!(head.lines().any(|found| found == line), "{sent:?}: {head}");
    }
    let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{sent:?}: {body}"));
    assert_eq!(problem["error"], "invalid_request", "{sent:?}");
}

#[tokio::test]
async fn what_has_two_meanings_is_refused_and_never_handed_on() {
    let (address, seen, _folder) = start("refused").await;
    let cases = vectors("refused");
    assert!(cases.len() >= 100, "{}", cases.len());
    for sent in cases {
        let received = exchange(address, sent.as_bytes()).await;
        assert_eq!(statuses(&received), ["400"], "{sent:?}: {received}");
        assert_is_problem(&received, &sent);
        assert_eq!(*seen.lock().expect("no panic"), [], "{sent:?}");
    }
    for (sent, status) in [
        (post(&format!("X: {}\r\n", "x".repeat(5000)), SMUGGLED), "431"),
        (post(&"X: a\r\n".repeat(101), SMUGGLED), "431"),
        (post("Transfer-Encoding: chunked\r\n", &format!("0\r\nX: {}\r\n\r\n{SMUGGLED}", "x".repeat(5000))), "400"),
        (post("Transfer-Encoding: chunked\r\n", &format!("0\r\n{}\r\n{SMUGGLED}", "X: a\r\n".repeat(101))), "400"),
        (post("Transfer-Encoding: chunked\r\n", &format!("0;{}\r\n\r\n{SMUGGLED}", "x".repeat(1100))), "400"),
    ] {
        let received = exchange(address, sent.as_bytes()).await;
        assert_eq!(statuses(&received), [status], "{sent:?}: {received}");
        assert_is_problem(&received, &sent);
        assert_eq!(*seen.lock().expect("no panic"), [], "{sent:?}");
    }
    let head =
        exchange(address, format!("HEAD /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(5000)).as_bytes()).await;
    assert!(statuses(&head) == ["431"] && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn what_has_one_meaning_is_handed_on_as_that() {
    let (address, seen, _folder) = start("accepted").await;
    for sent in vectors("accepted") {
        let received = exchange(address, sent.as_bytes()).await;
        assert_eq!(statuses(&received), ["200"], "{sent:?}: {received}");
        let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
        let [(head, body)] = &seen[..] else { panic!("{sent:?}: {seen:?}") };
        assert!(head.contains(" /a HTTP/1.1\r\n") && body == SMUGGLED, "{sent:?}: {seen:?}");
        let names: Vec<_> = head.lines().skip(1).map(|line| line.split(':').next().unwrap_or_default()).collect();
        let is_left = |name: &&str| matches!(*name, "upgrade" | "connection" | "te" | "trailer" | "http2-settings");
        assert!(!names.iter().any(is_left), "{head}");
        assert!(names.iter().filter(|name| **name == "host").count() == 1, "{head}");
        let forwarded: Vec<_> = head.lines().filter(|line| line.to_ascii_lowercase().contains("forwarded")).collect();
        assert_eq!(forwarded, ["x-forwarded-for: 127.0.0.1"], "{head}");
    }
}

#[tokio::test]
async fn what_clients_say_of_themselves_is_not_handed_on() {
    let (address, seen, _folder) = start("forwarded").await;
    let fields = "Forwarded: for=1.2.3.4\r\nX-Forwarded-For: 1.2.3.4\r\nx-forwarded-for: 5.6.7.8\r\nX-Real-IP: 1.2.3.4\r\n\
        X-Forwarded-Host: b\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /b\r\n\
        X-Forwarded-Anything: c\r\nConnection: x-forwarded-for\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 1\r\n";
    let received = exchange(address, post(fields, "").as_bytes()).await;
    assert_eq!(statuses(&received), ["200"], "{received}");
    let seen = seen.lock().expect("no panic");
    let [(head, _)] = &seen[..] else { panic!("{seen:?}") };
    let mut lines: Vec<_> = head.lines().skip(1).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["host: localhost", "x-forwarded-for: 127.0.0.1"]);
}
