//! A gateway on a socket, before a store whose reads a test controls.
#![allow(dead_code, reason = "each test program uses only some of these items")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use coregw_core::PageCache;
use coregw_front::budget::{Arriving, Budget, Capacity};
use coregw_front::counts::{Counts, RequestLog};
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::gateway::{Gateway, GatewayParts, Writers};
use coregw_front::hot::BodyLimits;
use coregw_front::peers::{LOOPBACK, Proxies};
use coregw_front::problem::Codes;
use coregw_front::reads::{Failure, Found, Reads};
use coregw_front::server::{Answer, Listener, Server, Service};
use coregw_front::writes::{SHORT_CHANGE_BYTES, Writes};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::rules::{SOON, codes, rules};
use super::store::Stored;

/// What the application would answer.
struct Cold;

impl Service for Cold {
    async fn answer(&self, request: Request<Arriving>, _client: Option<SocketAddr>) -> Response<Answer> {
        let text = format!("cold {} {}", request.method(), request.uri());
        Response::new(Answer::from(Bytes::from(text)))
    }
}

/// The store and how far it may go.
#[derive(Default)]
pub struct Control {
    pub stored: Stored,
    /// Reads that may begin; all if None.
    pub permits: Option<usize>,
    /// Called after a read, before it is supplied.
    pub after_read: Option<Box<dyn FnOnce() + Send>>,
    /// Batches that were read.
    pub visits: usize,
    /// The sizes of the chunks that were read.
    pub chunk_sizes: Vec<u64>,
    is_closed: bool,
}

#[derive(Default)]
pub struct Store {
    control: Mutex<Control>,
    changed: Condvar,
}

impl Store {
    pub fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().expect("no panic")
    }

    /// Lets so many more reads begin.
    pub fn permit(&self, more: usize) {
        let mut control = self.control();
        control.permits = control.permits.map(|permits| permits + more);
        self.changed.notify_all();
    }

    fn serve(&self, reads: &Reads) {
        while let Some(batch) = reads.next() {
            let mut control = self.control();
            while control.permits == Some(0) && !control.is_closed {
                control = self.changed.wait(control).expect("no panic");
            }
            control.permits = control.permits.map(|permits| permits.saturating_sub(1));
            control.visits += 1;
            control.chunk_sizes.extend(batch.chunks.iter().map(|(_, range)| range.end - range.start));
            let found: Result<Found, Failure> = control.stored.read(&batch);
            let after_read = control.after_read.take();
            drop(control);
            after_read.into_iter().for_each(|call| call());
            reads.supply(batch.id, found);
        }
    }
}

/// The longest payload that a gateway takes.
pub const LONGEST_PAYLOAD: usize = 4 << 20;

pub struct Options {
    pub max_nodes: u64,
    pub node_budget: u64,
    pub patience: Duration,
    pub is_read_only: bool,
    pub writers: Writers,
    pub has_access_log: bool,
    pub take_chunks: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (max_nodes, node_budget, writers) = (1_000_000, 2000, Writers::Anybody);
        Options {
            max_nodes,
            node_budget,
            patience: SOON,
            is_read_only: true,
            writers,
            has_access_log: false,
            take_chunks: true,
        }
    }
}

/// A gateway that runs.
pub struct Running {
    pub address: SocketAddr,
    pub store: Arc<Store>,
    pub cache: Arc<PageCache>,
    pub reads: Arc<Reads>,
    pub writes: Arc<Writes>,
    pub counts: Arc<Counts>,
    pub log: Arc<RequestLog>,
    pub codes: Codes,
    pub budget: Arc<Budget>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reads.close();
        self.writes.close();
        self.store.control().is_closed = true;
        self.store.changed.notify_all();
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }
}

fn one_thread(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

pub async fn start(stored: Stored, options: Options) -> Running {
    let cache = Arc::new(PageCache::new(64 << 20, 1000));
    let reads = Reads::new(Arc::clone(&cache), false);
    let store = Arc::new(Store::default());
    store.control().stored = stored;
    let threads = (0..2).map(|_| {
        let (store, reads) = (Arc::clone(&store), Arc::clone(&reads));
        thread::spawn(move || store.serve(&reads))
    });
    let threads = threads.collect();
    let Options { max_nodes, node_budget, patience, is_read_only, writers, has_access_log, take_chunks } = options;
    let writes = Writes::new(take_chunks);
    let limits = DriverLimits { node_budget, max_nodes, patience, long_queries: 4, threads: 2 };
    let proxies = Arc::new(Proxies::new(LOOPBACK).expect("networks"));
    let (counts, log, codes) = (Arc::default(), Arc::new(RequestLog::new(1 << 20, has_access_log)), codes());
    let capacity = Capacity { total: 64 << 20, per_address: 32 << 20, largest: 16 << 20 };
    let budget = Budget::new(capacity, proxies);
    let parts = GatewayParts {
        driver: Arc::new(Driver::new(Arc::clone(&cache), Arc::clone(&reads), limits)),
        writes: Arc::clone(&writes),
        writers,
        limits: BodyLimits {
            json: 1 << 20,
            verify: 1 << 20,
            resolve_batch: 1 << 20,
            batch_answer: 16 << 20,
            payload: LONGEST_PAYLOAD,
            change: SHORT_CHANGE_BYTES,
        },
        budget: Arc::clone(&budget),
        payload_cache_bytes: 16 << 20,
        codes: codes.clone(),
        fields: vec![(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"))],
        counts: Arc::clone(&counts),
        log: Arc::clone(&log),
        is_read_only,
        answers_hot: true,
        for_each: one_thread,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = Server::new(Gateway::new(parts, Cold), rules(SOON));
    tokio::spawn(async move { server.serve(vec![Listener::Tcp(listener)], std::future::pending(), SOON).await });
    Running { address, store, cache, reads, writes, counts, log, codes, budget, threads }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub status: u16,
    pub fields: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Got {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The status, and the code of an error.
    pub fn outcome(&self) -> (u16, String) {
        let code = self.text().strip_prefix("{\"error\":\"").and_then(|rest| rest.split('"').next());
        (self.status, code.unwrap_or_default().to_owned())
    }
}

impl Running {
    /// Sends a request on a connection of its own.
    pub async fn send(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Got {
        let response = self.begin(method, target, fields, body).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        let field =
            |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().expect("text").to_owned());
        let fields = head.headers.iter().filter(|(name, _)| *name != "date").map(field).collect();
        Got { status: head.status.as_u16(), fields, body }
    }

    /// Sends a request, and waits for the head of the answer.
    pub async fn begin(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Response<hyper::body::Incoming> {
        self.try_begin(method, target, fields, body).await.expect("an answer")
    }

    /// The same; None if the connection ends before there is a head.
    pub async fn try_begin(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Response<hyper::body::Incoming>> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(target).header("host", "localhost");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("a request");
        sender.send_request(request).await.ok()
    }

    pub async fn get(&self, target: &str) -> Got {
        self.send("GET", target, &[], b"").await
    }

    pub async fn post(&self, target: &str, body: &str) -> Got {
        self.send("POST", target, &[], body.as_bytes()).await
    }
}
