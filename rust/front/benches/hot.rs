//! CPU time of hot reads through the front, against a constant answer of bare hyper in the same run.
//!
//! `cargo bench -p coregw-front -- [KEYS] [WORD…]`: rows whose names contain one of the words, or all. Each server and the
//! clients run on threads of their own, and only the server's time counts. All rows are measured in turn, in rounds; the
//! minimum counts. The bars are ratios; the last column says whether a row is above its bar. `cargo bench -p coregw-front --
//! constant` serves the constant alone, for measurements from outside, and prints its process and address.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use coregw_core::{Arcs, Cid, Key, PageCache, RootCid, Snapshot, Suite};
use coregw_front::budget::{Arriving, Budget, Capacity};
use coregw_front::counts::RequestLog;
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::gateway::{Gateway, GatewayParts, Writers};
use coregw_front::hot::BodyLimits;
use coregw_front::peers::{LOOPBACK, Proxies};
use coregw_front::proxy::{Application, Upstream};
use coregw_front::reads::Reads;
use coregw_front::server::{Answer, Listener, Server, Service};
use coregw_front::tls::Tls;
use coregw_front::writes::{SHORT_CHANGE_BYTES, Writes};
use coregw_ops::{Operation, Progress};
use futures_util::future::join_all;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[path = "../tests/support/rules.rs"]
mod rules;
#[path = "../tests/support/store.rs"]
mod store;

use rules::{codes, rules};
use store::Stored;

/// Requests in progress, each on a connection of its own unless streams share connections.
const CONCURRENCY: usize = 64;
const STREAMS: usize = 8;
const ROUNDS: usize = 5;
const REQUESTS: usize = 40_000;
const PAYLOADS: u64 = 1000;
const PAYLOAD_BYTES: usize = 4 << 10;
const LONG: Duration = Duration::from_secs(600);
const CONSTANT: &[u8] = &[b'x'; 1500];

/// A constant answer, through the connections of the front.
struct Constant;

impl Service for Constant {
    async fn answer(&self, request: Request<Arriving>, _client: Option<SocketAddr>) -> Response<Answer> {
        let _ = request.into_body().collect().await; // as the others read it
        Response::new(Answer::from(Bytes::from_static(CONSTANT)))
    }
}

fn gateway(cache: &Arc<PageCache>) -> Gateway<Application> {
    let reads = Reads::new(Arc::clone(cache), false);
    let store = Arc::clone(&reads);
    thread::spawn(move || {
        let mut stored = Stored::default();
        for number in 0..PAYLOADS {
            stored.add_payload(number, vec![number as u8; PAYLOAD_BYTES]);
        }
        while let Some(batch) = store.next() {
            store.supply(batch.id, stored.read(&batch));
        }
    });
    let limits = DriverLimits { node_budget: 2000, max_nodes: 1_000_000, patience: LONG, long_queries: 4, threads: 1 };
    let proxies = Arc::new(Proxies::new(LOOPBACK).expect("networks"));
    let parts = GatewayParts {
        writes: Writes::new(true),
        writers: Writers::Anybody,
        driver: Arc::new(Driver::new(Arc::clone(cache), reads, limits)),
        limits: BodyLimits {
            json: 1 << 20,
            verify: 1 << 20,
            resolve_batch: 1 << 20,
            batch_answer: 1 << 20,
            payload: 4 << 20,
            change: SHORT_CHANGE_BYTES,
        },
        budget: Budget::new(Capacity { total: 64 << 20, per_address: 32 << 20, largest: 16 << 20 }, proxies),
        payload_cache_bytes: 64 << 20,
        codes: codes(),
        fields: vec![(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"))],
        counts: Arc::default(),
        log: Arc::new(RequestLog::new(1 << 20, false)),
        is_read_only: true,
        answers_hot: true,
        for_each: |count, work| (0..count).for_each(work),
    };
    let nowhere = Upstream::new(PathBuf::from("/nonexistent"), LONG);
    Gateway::new(parts, Application::new(nowhere, codes(), Vec::new()))
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

// --- servers ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    BareConstant,
    BareResolve,
    FrontConstant,
    FrontHot,
    FrontHotOfTwoThreads,
}

/// A server, its addresses in clear and by TLS, and the threads whose time counts.
struct Running {
    what: What,
    clear: SocketAddr,
    tls: SocketAddr,
    threads: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// The CPU time of its threads so far, in nanoseconds.
    fn cpu(&self) -> u64 {
        let cpu_of = |thread: &String| {
            let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).expect("Linux");
            text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).expect("a number")
        };
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).iter().map(cpu_of).sum()
    }
}

fn this_thread() -> String {
    let link = fs::read_link("/proc/thread-self").expect("Linux");
    link.file_name().and_then(|name| name.to_str()).expect("a thread").to_owned()
}

fn start(what: What, cache: Arc<PageCache>, tls: &Arc<Tls>) -> Running {
    let (tell, told) = mpsc::channel();
    let (threads, tls) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(tls));
    let started = Arc::clone(&threads);
    let note = move || started.lock().unwrap_or_else(PoisonError::into_inner).push(this_thread());
    let run = move || {
        let runtime = match what {
            // As it is in a gateway.
            What::FrontHot => build(of_threads(1).on_thread_start(note)),
            What::FrontHotOfTwoThreads => build(of_threads(2).on_thread_start(note)),
            _ => {
                note();
                build(&mut Builder::new_current_thread())
            }
        };
        let serving = async move {
            let clear = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let encrypted = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = |listener: &TcpListener| listener.local_addr().expect("an address");
            tell.send((address(&clear), address(&encrypted))).expect("a receiver");
            let forever = std::future::pending();
            let listeners = |clear| vec![Listener::Tcp(clear), Listener::Tls(encrypted, tls)];
            match what {
                What::BareConstant => serve_bare(clear, None).await,
                What::BareResolve => serve_bare(clear, Some(cache)).await,
                What::FrontConstant => Server::new(Constant, rules(LONG)).serve(listeners(clear), forever, LONG).await,
                What::FrontHot | What::FrontHotOfTwoThreads => {
                    Server::new(gateway(&cache), rules(LONG)).serve(listeners(clear), forever, LONG).await;
                }
            }
        };
        // On a thread of the runtime, whose time counts.
        runtime.block_on(async { tokio::spawn(serving).await }).expect("no end");
    };
    thread::Builder::new().name(format!("{what:?}")).spawn(run).expect("a thread");
    let (clear, tls) = told.recv().expect("a server");
    Running { what, clear, tls, threads }
}

fn of_threads(count: usize) -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(count).thread_name("front");
    builder
}

fn build(builder: &mut Builder) -> Runtime {
    builder.enable_all().build().expect("a runtime")
}

// --- clients ---------------------------------------------------------------------------------------------------------

/// What is asked, cyclically.
#[derive(Clone)]
struct Asked {
    method: &'static str,
    /// Targets and bodies.
    requests: Arc<Vec<(String, String)>>,
}

/// How it is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Clear,
    Tls,
    /// HTTP/2 with prior knowledge, and so many requests at a time on each connection.
    Http2(usize),
}

/// The CPU time of a server for a request, in nanoseconds, when connections are open and have been used.
fn measure(server: &Running, way: Way, trusted: &ClientConfig, asked: &Asked) -> f64 {
    let runtime = build(&mut Builder::new_current_thread());
    runtime.block_on(async {
        let connections = CONCURRENCY / if let Way::Http2(streams) = way { streams } else { 1 };
        let mut open = join_all((0..connections).map(|_| connect(server, way, trusted))).await;
        let each = REQUESTS / CONCURRENCY;
        send(&mut open, way, asked, each / 10).await;
        let before = server.cpu();
        send(&mut open, way, asked, each).await;
        (server.cpu() - before) as f64 / (each * CONCURRENCY) as f64
    })
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

enum Connection {
    Http1(Box<dyn Stream>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

async fn connect(server: &Running, way: Way, trusted: &ClientConfig) -> Connection {
    let address = if way == Way::Tls { server.tls } else { server.clear };
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("an option");
    match way {
        Way::Clear => Connection::Http1(Box::new(stream)),
        Way::Tls => {
            let connector = TlsConnector::from(Arc::new(trusted.clone()));
            let name = ServerName::try_from("localhost").expect("a name");
            Connection::Http1(Box::new(connector.connect(name, stream).await.expect("TLS")))
        }
        Way::Http2(_) => {
            let builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
            tokio::spawn(connection);
            Connection::Http2(sender)
        }
    }
}

/// Sends so many requests at each place; returns when all are answered.
async fn send(open: &mut [Connection], way: Way, asked: &Asked, each: usize) {
    let streams = if let Way::Http2(streams) = way { streams } else { 1 };
    join_all(open.iter_mut().enumerate().map(|(number, connection)| async move {
        match connection {
            Connection::Http1(stream) => send_http1(stream, asked, number, each).await,
            Connection::Http2(sender) => {
                let first = number * streams;
                join_all((first..first + streams).map(|at| send_http2(sender.clone(), asked, at, each))).await;
            }
        }
    }))
    .await;
}

async fn send_http1(stream: &mut Box<dyn Stream>, asked: &Asked, mut at: usize, count: usize) {
    let mut buffer = vec![0; 16 << 10];
    for _ in 0..count {
        let (target, body) = &asked.requests[at % asked.requests.len()];
        at += CONCURRENCY;
        let (method, length) = (asked.method, body.len());
        let fields = if body.is_empty() { String::new() } else { format!("Content-Length: {length}\r\n") };
        let request = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
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
}

async fn send_http2(mut sender: http2::SendRequest<Full<Bytes>>, asked: &Asked, mut at: usize, count: usize) {
    for _ in 0..count {
        let (target, body) = &asked.requests[at % asked.requests.len()];
        at += CONCURRENCY;
        let request = Request::builder().method(asked.method).uri(format!("http://127.0.0.1{target}"));
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("a request");
        sender.ready().await.expect("room");
        let response = sender.send_request(request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.expect("complete");
    }
}

// --- rows ------------------------------------------------------------------------------------------------------------

/// What is measured: its CPU time over that of the first row, and for the last over that of the row before, is to be at
/// most the bar.
struct Row {
    name: &'static str,
    what: What,
    way: Way,
    asked: Asked,
    over: usize,
    bar: f64,
}

fn rows(resolves: Asked, payloads: Asked) -> Vec<Row> {
    let row = |name, what, way, asked: &Asked, over, bar| Row { name, what, way, asked: asked.clone(), over, bar };
    vec![
        row("bare hyper, constant", What::BareConstant, Way::Clear, &resolves, 0, f64::INFINITY),
        row("bare hyper, resolve", What::BareResolve, Way::Clear, &resolves, 0, f64::INFINITY),
        row("front, constant", What::FrontConstant, Way::Clear, &resolves, 0, f64::INFINITY),
        row("resolve", What::FrontHot, Way::Clear, &resolves, 0, 2.8),
        row("resolve, TLS", What::FrontHot, Way::Tls, &resolves, 0, 4.0),
        row("resolve, HTTP/2", What::FrontHot, Way::Http2(1), &resolves, 0, 4.0),
        row("resolve, HTTP/2, 8 streams", What::FrontHot, Way::Http2(STREAMS), &resolves, 0, 4.0),
        row("payload of 4 KiB", What::FrontHot, Way::Clear, &payloads, 0, 2.2),
        row("resolve, 2 threads / 1", What::FrontHotOfTwoThreads, Way::Clear, &resolves, 3, 1.1),
    ]
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

fn resolve_requests(root: &RootCid, paths: &[String]) -> Asked {
    let request = |path: &String| {
        let (first, second) = path.split_once('/').expect("two segments");
        let body = format!(
            "{{\"profile\":\"core.resolve/v0alpha1\",\"root\":\"{root}\",\"segments\":[\"{first}\",\"{second}\"]}}"
        );
        ("/v1/resolve".to_owned(), body)
    };
    let requests = paths.iter().step_by((paths.len() / 50_000).max(1)).map(request).collect();
    Asked { method: "POST", requests: Arc::new(requests) }
}

fn payload_requests() -> Asked {
    let request = |number| (format!("/v1/cas/{}", store::target(number)), String::new());
    Asked { method: "GET", requests: Arc::new((0..PAYLOADS).map(request).collect()) }
}

/// A certificate of this server, and a client that trusts it.
fn tls() -> (Arc<Tls>, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let folder = std::env::temp_dir().join(format!("coregw-hot-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    fs::write(&certificate, made.cert.pem()).expect("room");
    fs::write(&key, made.signing_key.serialize_pem()).expect("room");
    let tls = Arc::new(Tls::read(certificate.clone(), key).expect("a certificate"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("an authority");
    let _ = fs::remove_dir_all(folder);
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (tls, config)
}

/// Serves the constant until the process is ended.
fn serve_constant() {
    build(&mut Builder::new_current_thread()).block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{} http://{}", std::process::id(), listener.local_addr().expect("an address"));
        serve_bare(listener, None).await;
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if arguments == ["constant"] {
        serve_constant();
    }
    let keys = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let words: Vec<&String> = arguments.iter().filter(|argument| argument.parse::<u64>().is_err()).collect();
    let (cache, root, paths) = tree(keys);
    let (tls, trusted) = tls();
    let rows = rows(resolve_requests(&root, &paths), payload_requests());
    let is_wanted = |row: &Row| words.is_empty() || words.iter().any(|word| row.name.contains(*word));
    let needed: Vec<usize> = rows.iter().filter(|row| is_wanted(row)).map(|row| row.over).collect();
    let is_measured = |index: usize| index == 0 || needed.contains(&index) || is_wanted(&rows[index]);
    let mut servers: Vec<Running> = Vec::new();
    let mut best = vec![f64::MAX; rows.len()];
    for _ in 0..ROUNDS {
        for (index, row) in rows.iter().enumerate().filter(|(index, _)| is_measured(*index)) {
            if servers.iter().all(|server| server.what != row.what) {
                servers.push(start(row.what, Arc::clone(&cache), &tls));
            }
            let Some(server) = servers.iter().find(|server| server.what == row.what) else { continue };
            best[index] = best[index].min(measure(server, row.way, &trusted, &row.asked) / 1000.0);
        }
    }
    for (index, row) in rows.iter().enumerate().filter(|(index, _)| is_measured(*index)) {
        let ratio = best[index] / best[row.over];
        let above = if ratio > row.bar { format!("above its bar of {}", row.bar) } else { String::new() };
        println!("{:28} {:6.1} µs of CPU a request {ratio:6.2} {above}", row.name, best[index]);
    }
}
