//! Clients of HTTP/2 that flood or stall, by raw frames: their streams or connections end, and nothing is left of them.
#![cfg(unix)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coregw_front::budget::{Arriving, Budget, Capacity, read_whole};
use coregw_front::guard::Deadlines;
use coregw_front::pace::Rate;
use coregw_front::peers::Shares;
use coregw_front::problem::Codes;
use coregw_front::server::{Answer, Listener, Rules, Server, Service};
use http::{Method, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[path = "support/rules.rs"]
mod rules;

use rules::{SOON, rules, until};

const MIB: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Answers GET / with 1 MiB, reads bodies of POST, and answers other paths never.
struct Slow(Arc<Budget>);

impl Service for Slow {
    async fn answer(&self, request: Request<Arriving>, _: Option<SocketAddr>) -> Response<Answer> {
        if request.uri().path() != "/" {
            return std::future::pending().await;
        }
        if request.method() == Method::GET {
            return Response::new(Answer::from(Bytes::from(vec![7; MIB])));
        }
        let mut account = self.0.account(None);
        let found = read_whole(request.into_body(), MIB, &mut account).await;
        let codes = Codes::new([("invalid_request", 400)]);
        found
            .map_or_else(|problem| problem.response(&codes).map(Answer::from), |body| Response::new(Answer::from(body)))
    }
}

struct Client {
    stream: TcpStream,
    server: Arc<Server<Slow>>,
}

const SHORT: Duration = Duration::from_millis(200);

/// A client whose connection is open, and that has sent these settings.
async fn connect(settings: &[u8]) -> Client {
    connect_with(settings, SHORT).await
}

/// The same, of a server that takes so long over the rest of a body.
async fn connect_with(settings: &[u8], drain: Duration) -> Client {
    connect_to(settings, drain, rules(SOON).shares).await
}

/// The same, of a server with so much for its connections.
async fn connect_to(settings: &[u8], drain: Duration, shares: Shares) -> Client {
    let rate = Rate { bytes_per_second: 1000, grace: SHORT, pause: SHORT };
    let base = rules(SOON);
    let deadlines = Deadlines { head: SHORT, body: rate, read: rate, drain, ..base.deadlines };
    let rules = Rules { deadlines, shares, ..base };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let budget = Budget::new(Capacity { total: MIB, per_address: MIB, largest: MIB }, Arc::default());
    let server = Server::new(Slow(budget), rules);
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve(vec![Listener::Tcp(listener)], std::future::pending(), SOON).await });
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("room");
    let mut client = Client { stream, server };
    client.send(SETTINGS, 0, 0, settings).await.expect("room");
    client
}

impl Client {
    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload)).await
    }

    async fn find(&mut self, is_it: impl Fn(u8, u32, &[u8]) -> bool) -> bool {
        find(&mut self.stream, is_it).await
    }
}

/// Waits until no connection is open, and nothing is left of what it held.
async fn has_left_nothing(server: &Server<Slow>) {
    until(|| {
        let figures = server.figures();
        (figures.connections, figures.requests, figures.unsent_bytes) == (0, 0, 0)
    })
    .await;
}

/// Reads frames until one is as it should be; false if the connection ends before.
async fn find(stream: &mut (impl AsyncRead + Unpin), is_it: impl Fn(u8, u32, &[u8]) -> bool) -> bool {
    let finding = async {
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            if stream.read_exact(&mut payload).await.is_err() {
                return false;
            }
            if is_it(head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), &payload) {
                return true;
            }
        }
        false
    };
    timeout(SOON, finding).await.expect("an end")
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head: the method and the path are numbers of the static table (RFC 7541 appendix A).
fn head(method: u8, path: u8) -> Vec<u8> {
    [&[0x80 | method, 0x86, 0x80 | path, 0x01, 9], &b"localhost"[..]].concat()
}

const GET: u8 = 2;
const POST: u8 = 3;
const ROOT: u8 = 4;
const OTHER: u8 = 5;

#[tokio::test]
async fn a_stream_that_is_not_read_ends_and_the_connection_goes_on() {
    let mut client = connect(&[0, 4, 0, 0, 0, 0]).await; // an initial window of nothing
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head(GET, ROOT)).await.expect("room");
    assert!(client.find(|kind, stream, _| (kind, stream) == (RST_STREAM, 1)).await);
    let figures = client.server.figures();
    assert_eq!((figures.slow_reader, figures.unsent_bytes), (1, 0));
    client.send(HEADERS, END_HEADERS, 3, &head(POST, ROOT)).await.expect("room");
    assert!(client.find(|kind, stream, _| (kind, stream) == (HEADERS, 3)).await);
}

/// Clients that let bytes through one by one: for a stream, or for all of a connection.
#[tokio::test]
async fn a_window_that_hardly_opens_does_not_keep_a_stream() {
    let no_window: &[u8] = &[0, 4, 0, 0, 0, 0];
    for (settings, opened) in [(no_window, 1), (&[0, 4, 0x7f, 0xff, 0xff, 0xff], 0), (&[], 0)] {
        let mut client = connect(settings).await;
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head(GET, ROOT)).await.expect("room");
        let (mut reading, mut writing) = client.stream.into_split();
        let opening = tokio::spawn(async move {
            while writing.write_all(&frame(WINDOW_UPDATE, 0, opened, &[0, 0, 0, 1])).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(find(&mut reading, |kind, stream, _| (kind, stream) == (RST_STREAM, 1)).await);
        let figures = client.server.figures();
        assert_eq!((figures.slow_reader, figures.unsent_bytes), (1, 0));
        opening.abort();
    }
}

#[tokio::test]
async fn streams_beyond_the_most_are_refused() {
    let mut client = connect(&[]).await;
    for number in 0..101 {
        client.send(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head(GET, OTHER)).await.expect("room");
    }
    // REFUSED_STREAM is error number 7.
    assert!(client.find(|kind, stream, payload| (kind, stream, payload) == (RST_STREAM, 201, &[0, 0, 0, 7])).await);
    until(|| client.server.figures().requests >= 100).await;
}

#[tokio::test]
async fn a_stream_without_a_place_is_refused_and_places_are_free_again() {
    let mut client = connect_to(&[], SHORT, Shares { connections: 3, per_address: 3, unsent: MIB }).await;
    // MAX_CONCURRENT_STREAMS is setting 3.
    let three = [0, 3, 0, 0, 0, 3];
    assert!(client.find(|kind, _, payload| kind == SETTINGS && payload.chunks(6).any(|each| each == three)).await);
    let mut other = TcpStream::connect(client.stream.peer_addr().expect("an address")).await.expect("a connection");
    other.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("room");
    other.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("room");
    assert!(find(&mut other, |kind, _, _| kind == SETTINGS).await);
    for stream in [1, 3] {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head(GET, OTHER)).await.expect("room");
    }
    until(|| client.server.figures().requests >= 2).await;
    client.send(HEADERS, END_HEADERS | END_STREAM, 5, &head(GET, OTHER)).await.expect("room");
    // REFUSED_STREAM is error number 7.
    assert!(client.find(|kind, stream, payload| (kind, stream, payload) == (RST_STREAM, 5, &[0, 0, 0, 7])).await);
    assert_eq!(client.server.figures().no_room, 1);
    client.send(RST_STREAM, 0, 3, &[0, 0, 0, 8]).await.expect("room");
    until(|| client.server.figures().requests <= 1).await;
    client.send(HEADERS, END_HEADERS | END_STREAM, 7, &head(GET, ROOT)).await.expect("room");
    assert!(client.find(|kind, stream, _| (kind, stream) == (HEADERS, 7)).await);
}

#[tokio::test]
async fn a_head_of_many_fields_is_refused() {
    let mut client = connect(&[]).await;
    let many = [head(GET, ROOT), [0x00, 1, b'x', 1, b'y'].repeat(101)].concat();
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &many).await.expect("room");
    // Status 431 is a literal value of name 8 of the static table, by Huffman's code or not.
    let status = |payload: &[u8]| payload.first() == Some(&0x08) || payload.first() == Some(&0x48);
    assert!(client.find(|kind, stream, payload| (kind, stream) == (HEADERS, 1) && status(payload)).await);
}

#[tokio::test]
async fn streams_wait_while_much_is_unread_on_their_connection() {
    let mut client = connect(&[0, 4, 0, 0, 0, 0]).await; // no answer is read
    for number in 0..10 {
        client.send(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &head(GET, ROOT)).await.expect("room");
    }
    let server = Arc::clone(&client.server);
    until(|| server.figures().requests >= 10).await;
    assert_eq!(server.figures().unsent_bytes, MIB); // one answer, as others wait for it
    // Each is answered once those before it were given up.
    assert!(client.find(|kind, stream, _| (kind, stream) == (HEADERS, 19)).await);
    assert!(server.figures().unsent_bytes <= MIB);
}

#[tokio::test]
async fn a_body_that_stalls_is_answered() {
    let mut client = connect(&[]).await;
    client.send(HEADERS, END_HEADERS, 1, &head(POST, ROOT)).await.expect("room");
    // Status 400 is number 12 of the static table.
    assert!(client.find(|kind, stream, payload| (kind, stream, payload.first()) == (HEADERS, 1, Some(&0x8c))).await);
}

/// A client that takes whole responses, of a server that takes so long over the rest of a body; it has begun to send one
/// that nobody reads.
async fn connect_and_send(drain: Duration) -> Client {
    let mut client = connect_with(&[0, 4, 0x7f, 0xff, 0xff, 0xff], drain).await;
    client.send(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]).await.expect("room");
    assert!(client.find(|kind, _, _| kind == SETTINGS).await);
    client.send(SETTINGS, ACK, 0, &[]).await.expect("room"); // from then on, its windows count
    client.send(HEADERS, END_HEADERS, 1, &head(GET, ROOT)).await.expect("room");
    client
}

/// Its client may not look for the response before it has sent all, which is more than the window of a stream.
#[tokio::test]
async fn an_early_answer_does_not_reset_a_stream_whose_client_still_sends() {
    let mut client = connect_and_send(SOON).await;
    for _ in 0..16 {
        client.send(DATA, 0, 1, &[0; 16 << 10]).await.expect("room");
    }
    let seen = RefCell::new(BTreeSet::new());
    let has_seen = |wanted: &[(u8, u32)]| {
        let (seen, wanted) = (&seen, wanted.to_vec());
        move |kind: u8, stream: u32, _: &[u8]| {
            let mut seen = seen.borrow_mut();
            seen.insert((kind, stream));
            wanted.iter().all(|each| seen.contains(each))
        }
    };
    assert!(client.find(has_seen(&[(HEADERS, 1), (WINDOW_UPDATE, 1)])).await);
    client.send(DATA, END_STREAM, 1, &[0; 16 << 10]).await.expect("room");
    client.send(HEADERS, END_HEADERS | END_STREAM, 3, &head(GET, ROOT)).await.expect("room");
    assert!(client.find(has_seen(&[(HEADERS, 3)])).await);
    assert!(!seen.borrow().contains(&(RST_STREAM, 1)));
}

#[tokio::test]
async fn who_does_not_end_a_body_after_an_early_answer_is_not_waited_for() {
    let mut client = connect_and_send(SHORT).await;
    assert!(client.find(|kind, stream, _| (kind, stream) == (HEADERS, 1)).await);
    // NO_ERROR, as the response is complete (RFC 9113 section 8.1).
    assert!(client.find(|kind, stream, payload| (kind, stream, payload) == (RST_STREAM, 1, &[0; 4])).await);
}

#[tokio::test]
async fn a_connection_without_a_complete_head_ends() {
    for flags in [None, Some(END_STREAM)] {
        let mut client = connect(&[]).await;
        if let Some(flags) = flags {
            client.send(HEADERS, flags, 1, &head(GET, ROOT)).await.expect("room");
        }
        assert!(!client.find(|kind, _, _| kind == HEADERS).await);
        has_left_nothing(&client.server).await;
    }
}

#[tokio::test]
async fn floods_end_their_connections() {
    type Next = fn(u32) -> Vec<u8>;
    let floods: [(&str, Next); 4] = [
        ("rapid reset", |count| {
            let stream = 2 * count + 1;
            let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(GET, OTHER));
            [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        ("pings", |_| frame(PING, 0, 0, &[0; 8]).repeat(1000)),
        ("settings", |_| frame(SETTINGS, 0, 0, &[]).repeat(1000)),
        ("continuations", |count| {
            let kind = if count == 0 { HEADERS } else { CONTINUATION };
            frame(kind, 0, 1, &[0; 1000])
        }),
    ];
    for (name, next) in floods {
        for reads in [false, true] {
            println!("{name}, and the client reads: {reads}");
            let client = connect(&[]).await;
            let (mut reading, mut writing) = client.stream.into_split();
            let discarding = async {
                let mut bytes = [0; 1 << 12];
                while reads && reading.read(&mut bytes).await.is_ok_and(|size| size > 0) {}
                std::future::pending().await
            };
            let flooding = async {
                let mut count = 0;
                while writing.write_all(&next(count)).await.is_ok() {
                    count += 1;
                }
            };
            let flooding = async {
                tokio::select! { () = flooding => {}, () = discarding => {} }
            };
            timeout(SOON, flooding).await.expect("an end");
            has_left_nothing(&client.server).await;
        }
    }
}

#[tokio::test]
async fn requests_for_no_host_or_for_a_tunnel_are_refused() {
    let mut client = connect(&[]).await;
    let no_host = [0x80 | GET, 0x86, 0x80 | ROOT];
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &no_host).await.expect("room");
    assert!(client.find(|kind, stream, payload| (kind, stream, payload.first()) == (HEADERS, 1, Some(&0x8c))).await);
    // Number 38 of the static table is Host, which may repeat the authority.
    for (stream, host, status) in [(3, "LOCALHOST", 0x88), (5, "b", 0x8c)] {
        let named = [&head(GET, ROOT)[..], &[0x0f, 0x17, host.len() as u8], host.as_bytes()].concat();
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &named).await.expect("room");
        assert!(client.find(|kind, at, payload| (kind, at, payload.first()) == (HEADERS, stream, Some(&status))).await);
    }
    let unknown = [&[0x02, 4], &b"BREW"[..], &[0x86, 0x80 | ROOT, 0x01, 9], b"localhost"].concat();
    client.send(HEADERS, END_HEADERS | END_STREAM, 7, &unknown).await.expect("room");
    assert!(client.find(|kind, stream, payload| (kind, stream, payload.first()) == (HEADERS, 7, Some(&0x8c))).await);
    let tunnel = [&[0x02, 7], &b"CONNECT"[..], &[0x01, 9], b"localhost"].concat();
    client.send(HEADERS, END_HEADERS | END_STREAM, 9, &tunnel).await.expect("room");
    assert!(client.find(|kind, stream, payload| (kind, stream, payload.first()) == (HEADERS, 9, Some(&0x8c))).await);
}
