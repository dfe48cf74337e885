//! What connections, requests and answers cost in memory, as the system counts it: one test after the other, in a process
//! of their own.
#![cfg(target_os = "linux")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coregw_front::budget::{Arriving, Budget, Capacity, read_whole};
use coregw_front::problem::Problem;
use coregw_front::proxy::Upstream;
use coregw_front::server::{Answer, Listener, Server, Service};
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

#[path = "support/rules.rs"]
mod rules;

use rules::{SOON, codes, rules, until};

const CLIENTS: usize = 48;
const BODY_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 1 << 10;

const IDLE_CLIENTS: usize = 300;

/// Tests would count each other's memory.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Reads bodies whole, or hands them on.
struct Reader {
    budget: Arc<Budget>,
    upstream: Arc<Upstream>,
}

impl Service for Reader {
    async fn answer(&self, request: Request<Arriving>, client: Option<SocketAddr>) -> Response<Answer> {
        let answer = if request.uri().path() == "/cold" {
            self.upstream.send(request, client).await.map_err(Problem::from)
        } else {
            let mut account = self.budget.account(None);
            let body = read_whole(request.into_body(), BODY_BYTES, &mut account).await;
            body.map(|body| Response::new(Answer::from(body)))
        };
        answer.unwrap_or_else(|problem| problem.response(&codes()).map(Answer::from))
    }
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this system has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// The parts of a request without its last byte, and that.
fn parts(path: &str, is_chunked: bool) -> (Vec<Vec<u8>>, Vec<u8>) {
    let framing =
        if is_chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {BODY_BYTES}") };
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n");
    let bytes = vec![7; CHUNK_BYTES];
    let chunk = if is_chunked { [b"400\r\n", &bytes[..], b"\r\n"].concat() } else { bytes };
    let mut parts = vec![chunk; BODY_BYTES / CHUNK_BYTES];
    parts.insert(0, head.into_bytes());
    let last = parts.last_mut().expect("a part");
    let end = last.split_off(last.len() - if is_chunked { 3 } else { 1 });
    (parts, if is_chunked { [&end[..], b"0\r\n\r\n"].concat() } else { end })
}

/// A server for bodies, whose application listens at a path.
async fn start(budget: &Arc<Budget>, path: PathBuf) -> SocketAddr {
    let service = Reader { budget: Arc::clone(budget), upstream: Upstream::new(path, SOON) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = Server::new(service, rules(SOON));
    tokio::spawn(async move { server.serve(vec![Listener::Tcp(listener)], std::future::pending(), SOON).await });
    address
}

#[tokio::test]
async fn an_idle_connection_keeps_no_buffers() {
    let _alone = ALONE.lock().await;
    let budget = Budget::new(Capacity { total: 1 << 20, per_address: 1 << 20, largest: 1 << 10 }, Arc::default());
    let address = start(&budget, PathBuf::from("/nonexistent")).await;
    let mut clients = Vec::new();
    let mut space = [0; 1000];
    let mut before = 0;
    for number in 0..2 * IDLE_CLIENTS {
        if number == IDLE_CLIENTS {
            before = resident(); // what all connections use in turn is there
        }
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
        client.write_all(request).await.expect("room");
        let mut received = 0;
        while !space[..received].ends_with(b"hello") {
            received += client.read(&mut space[received..]).await.expect("an answer");
        }
        clients.push(client);
    }
    let each = resident().saturating_sub(before) / IDLE_CLIENTS;
    println!("idle: {each} bytes a connection, with the client's");
    assert!(each < 8 << 10, "{each} bytes a connection");
}

#[tokio::test]
async fn a_body_costs_little_more_than_its_bytes() {
    let _alone = ALONE.lock().await;
    let folder = std::env::temp_dir().join(format!("coregw-front-{}-memory", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("socket");
    let unix = UnixListener::bind(&path).expect("a socket");
    tokio::spawn(async move {
        let mut streams = Vec::new();
        loop {
            let (mut stream, _) = unix.accept().await.expect("a connection");
            let mut head = [0; 4];
            stream.read_exact(&mut head).await.expect("a request");
            if &head != b"GET " {
                streams.push(stream); // what it is sent, it does not read
                continue;
            }
            tokio::spawn(async move {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await.expect("it is read");
                while stream.write_all(&[7; CHUNK_BYTES]).await.is_ok() {}
            });
        }
    });
    let total = CLIENTS * BODY_BYTES;
    let budget = Budget::new(Capacity { total: 2 * total, per_address: total, largest: BODY_BYTES }, Arc::default());
    let address = start(&budget, path).await;

    for is_chunked in [false, true] {
        let (parts, end) = parts("/", is_chunked);
        let before = resident();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(TcpStream::connect(address).await.expect("a connection"));
        }
        for part in &parts {
            for client in &mut clients {
                client.write_all(part).await.expect("room");
            }
        }
        until(|| budget.held() >= total - CLIENTS).await;
        let cost = resident().saturating_sub(before);
        println!("chunked: {is_chunked}: {} bytes a byte", cost as f64 / total as f64);
        assert!(cost < 2 * total, "{cost} bytes for {total}");
        for client in &mut clients {
            client.write_all(&end).await.expect("room");
        }
        for mut client in clients {
            client.shutdown().await.expect("it is open");
            let mut received = Vec::new();
            timeout(SOON, client.read_to_end(&mut received)).await.expect("an end").expect("an answer");
            let start = String::from_utf8_lossy(&received[..received.len().min(400)]);
            assert!(received.starts_with(b"HTTP/1.1 200 ") && received.len() > BODY_BYTES, "{start}");
        }
        until(|| budget.held() == 0).await;
    }

    // Nobody reads these: they stay with their clients.
    for is_chunked in [false, true] {
        let (parts, _) = parts("/cold", is_chunked);
        let before = resident();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = TcpStream::connect(address).await.expect("a connection");
            for part in &parts {
                if timeout(Duration::from_millis(100), client.write_all(part)).await.is_err() {
                    break;
                }
            }
            clients.push(client);
        }
        let each = resident().saturating_sub(before) / CLIENTS;
        println!("handed on, chunked: {is_chunked}: {each} bytes a connection");
        assert!(each < 256 << 10, "{each} bytes a connection");
    }
    // Nobody reads these answers: they stay where they come from.
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address).await.expect("a connection");
        client.write_all(b"GET /cold HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("room");
        clients.push(client);
    }
    sleep(Duration::from_secs(2)).await; // as much as there is room for
    let each = resident().saturating_sub(before) / CLIENTS;
    println!("handed back: {each} bytes a connection");
    assert!(each < 400 << 10, "{each} bytes a connection");
    std::fs::remove_dir_all(&folder).expect("a folder");
}
