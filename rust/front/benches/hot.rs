//! CPU time of a warm resolve over HTTP/1.1, against a constant answer of bare hyper in the same run.
//!
//! `cargo bench -p coregw-front -- [KEYS]`: server and client run on a thread each, and only the server's time counts.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use coregw_core::{Arcs, Cid, Key, PageCache, RootCid, Snapshot, Suite};
use coregw_front::budget::{Arriving, Budget, Capacity};
use coregw_front::counts::RequestLog;
use coregw_front::crowd::Shares;
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::framing::Limits;
use coregw_front::gateway::{Gateway, GatewayParts};
use coregw_front::guard::Deadlines;
use coregw_front::hot::BodyLimits;
use coregw_front::origins::Origins;
use coregw_front::pace::Rate;
use coregw_front::peers::{LOOPBACK, Proxies};
use coregw_front::problem::Codes;
use coregw_front::reads::Reads;
use coregw_front::server::{Answer, Listener, Rules, Server, Service};
use coregw_ops::{Operation, Progress};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: usize = 64;
const REQUESTS: usize = 60_000;
const LONG: Duration = Duration::from_secs(600);
const RATE: Rate = Rate { bytes_per_second: 0, grace: LONG, pause: LONG };
const CONSTANT: &[u8] = &[b'x'; 1500];

/// A constant answer, through the connections of the front.
struct Constant;

impl Service for Constant {
    async fn answer(&self, request: Request<Arriving>, _client: Option<SocketAddr>) -> Response<Answer> {
        let _ = request.into_body().collect().await; // as the others read it
        Response::new(Answer::from(Bytes::from_static(CONSTANT)))
    }
}

fn rules() -> Rules {
    Rules {
        origins: Origins::new("auto", "none", "127.0.0.1").expect("hosts"),
        codes: Codes::new([("invalid_request", 400)]),
        limits: Limits { head_bytes: 16 << 10, fields: 100 },
        deadlines: Deadlines { head: LONG, idle: LONG, body: RATE, body_whole: LONG, read: RATE, drain: LONG },
        shares: Shares { connections: 1000, per_address: 1000, unsent: 1 << 30 },
        proxies: Arc::default(),
    }
}

fn gateway(cache: &Arc<PageCache>) -> Gateway<Constant> {
    let reads = Reads::new(Arc::clone(cache), false);
    let limits = DriverLimits { node_budget: 2000, max_nodes: 1_000_000, patience: LONG, long_queries: 4, threads: 1 };
    let proxies = Arc::new(Proxies::new(LOOPBACK).expect("networks"));
    let parts = GatewayParts {
        driver: Arc::new(Driver::new(Arc::clone(cache), reads, limits)),
        limits: BodyLimits { json: 1 << 20, verify: 1 << 20, resolve_batch: 1 << 20, batch_answer: 1 << 20 },
        budget: Budget::new(Capacity { total: 64 << 20, per_address: 32 << 20, largest: 16 << 20 }, proxies),
        payload_cache_bytes: 1 << 20,
        codes: Codes::new([("invalid_request", 400)]),
        fields: vec![(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"))],
        counts: Arc::default(),
        log: Arc::new(RequestLog::new(1 << 20, false)),
        is_read_only: true,
        is_traced: false,
        for_each: |count, work| (0..count).for_each(work),
    };
    Gateway::new(parts, Constant)
}

async fn serve_bare(listener: TcpListener, cache: Option<Arc<PageCache>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let cache = cache.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let cache = cache.clone();
                async move {
                    let body = request.into_body().collect().await.expect("a body").to_bytes();
                    let answer = match cache {
                        None => Bytes::from_static(CONSTANT),
                        Some(cache) => match Operation::resolve(cache, &body).and_then(|mut each| each.poll(10_000)) {
                            Ok(Progress::Done(answer)) => Bytes::from(answer),
                            other => panic!("{other:?}"),
                        },
                    };
                    let response = Response::builder().header("content-type", "application/json");
                    Ok::<_, Infallible>(response.body(Full::new(answer)).expect("a response"))
                }
            });
            let _ = http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    BareConstant,
    BareResolve,
    FrontConstant,
    FrontResolve,
}

/// The CPU time of this thread so far.
fn cpu_of(thread: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).expect("Linux");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

/// Serves on a thread of its own; returns the address and the thread.
fn start(what: What, cache: Arc<PageCache>) -> (SocketAddr, String) {
    let (tell, told) = mpsc::channel();
    let named = thread::Builder::new().name(format!("{what:?}"));
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let link = fs::read_link("/proc/thread-self").expect("Linux");
            let thread = link.file_name().and_then(|name| name.to_str()).expect("a thread").to_owned();
            tell.send((listener.local_addr().expect("an address"), thread)).expect("a receiver");
            let forever = std::future::pending();
            let listeners = |listener| vec![Listener::Tcp(listener)];
            match what {
                What::BareConstant => serve_bare(listener, None).await,
                What::BareResolve => serve_bare(listener, Some(cache)).await,
                What::FrontConstant => Server::new(Constant, rules()).serve(listeners(listener), forever, LONG).await,
                What::FrontResolve => {
                    Server::new(gateway(&cache), rules()).serve(listeners(listener), forever, LONG).await;
                }
            }
        });
    };
    named.spawn(run).expect("a thread");
    told.recv().expect("a server")
}

/// Sends requests on several connections; returns when all are answered.
fn load(address: SocketAddr, requests: &[Vec<u8>], count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(futures_util::future::join_all((0..CONNECTIONS).map(|number| async move {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let (mut buffer, mut at) = (vec![0; 16 << 10], number);
        for _ in 0..count / CONNECTIONS {
            at = (at + CONNECTIONS) % requests.len();
            stream.write_all(&requests[at]).await.expect("sent");
            let mut filled = 0;
            loop {
                filled += stream.read(&mut buffer[filled..]).await.expect("received");
                let text = &buffer[..filled];
                let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
                assert!(head.starts_with("http/1.1 200"), "{head}");
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
                if filled == end + 4 + length {
                    break;
                }
            }
        }
    })));
}

fn tree(keys: u64) -> (Arc<PageCache>, RootCid, Vec<String>) {
    let target = Cid::from_text("bafkreiceznzqyqqeqcqeo62qlltiv5ii7oips3hq5rkmnliwsso5ij7rhi").expect("a CID");
    let (mut arcs, mut x) = (Arcs::default(), 88_172_645_463_325_252_u64);
    let mut random = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let paths: Vec<String> = (0..keys).map(|_| format!("users/{:016x}{:016x}", random(), random())).collect();
    paths.iter().for_each(|path| arcs.push(&Key::from_text(path).expect("a path"), &target));
    let map = Snapshot::map(Suite::Sha2_256, arcs).expect("a map");
    let cache = Arc::new(PageCache::new(16 << 30, 1000));
    map.pages().for_each(|page| cache.insert(page));
    cache.remember(map.root(), cache.generation());
    (cache, map.root(), paths)
}

fn main() {
    let keys = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let (cache, root, paths) = tree(keys);
    let requests: Vec<Vec<u8>> = paths
        .iter()
        .step_by((paths.len() / 50_000).max(1))
        .map(|path| {
            let (first, second) = path.split_once('/').expect("two segments");
            let body = format!(
                "{{\"profile\":\"core.resolve/v0alpha1\",\"root\":\"{root}\",\"segments\":[\"{first}\",\"{second}\"]}}"
            );
            let length = body.len();
            format!("POST /v1/resolve HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n{body}")
                .into_bytes()
        })
        .collect();
    let kinds = [What::BareConstant, What::FrontConstant, What::BareResolve, What::FrontResolve];
    let servers = kinds.map(|what| (what, start(what, Arc::clone(&cache))));
    let mut best = [f64::MAX; 4];
    for _ in 0..4 {
        for ((_, (address, thread)), best) in servers.iter().zip(&mut best) {
            load(*address, &requests, REQUESTS / 10);
            let before = cpu_of(thread);
            load(*address, &requests, REQUESTS);
            let nanoseconds = (cpu_of(thread) - before) as f64 / REQUESTS as f64;
            *best = best.min(nanoseconds / 1000.0);
        }
    }
    for ((what, _), time) in servers.iter().zip(best) {
        println!("{what:?}: {time:.1} µs of CPU a request, {:.2} constants", time / best[0]);
    }
}
