//! The front of a gateway: sockets, the server on them, and the reads that it wants of the store.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use core::{Digest, InputCode};
use coregw_core as core;
use coregw_front::budget::{Budget, Capacity};
use coregw_front::counts::{Counts, Event, HistogramSnapshot, Logged, RequestLog};
use coregw_front::crowd::Shares;
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::framing::Limits;
use coregw_front::gateway::{Gateway, GatewayParts, Writers};
use coregw_front::guard::Deadlines;
use coregw_front::hot::BodyLimits;
use coregw_front::listen;
use coregw_front::origins::Origins;
use coregw_front::pace::Rate;
use coregw_front::peers;
use coregw_front::problem::Codes;
use coregw_front::proxy::{Application, Upstream};
use coregw_front::reads::{Failure, Found, Reads, SMALL_PAYLOAD_BYTES};
use coregw_front::server::{self, Rules, Server};
use coregw_front::tls::Tls;
use coregw_front::writes::{SHORT_CHANGE_BYTES, SHORT_PAYLOAD_BYTES, Writes, Written};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::convert::{BytesLike, Items};
use crate::engine::cache::{PageCache, root_bytes};
use crate::engine::operation::for_each;
use crate::errors::{invalid, of_panic};
use crate::tuples;

/// A TCP socket that listens. Connections wait until a `Front` serves it.
///
/// The unspecified address of IPv6 is every address, of IPv4 as well.
///
/// Args:
///     host: An IP address; that of a link has its scope as a number: ``fe80::1%2``.
///     port: The port; 0 takes a free one.
///     backlog: How many connections may wait.
///
/// Raises:
///     OSError: If the address is in use, does not exist, or may not be used.
///     ValueError: If `host` is no IP address.
///
/// >>> with_a_free_port = Listener("127.0.0.1", 0, 1)
/// >>> with_a_free_port.address[0]
/// '127.0.0.1'
#[pyclass(frozen, module = "coregw._core")]
pub struct Listener {
    socket: Mutex<Option<TcpListener>>,
    address: SocketAddr,
}

#[pymethods]
impl Listener {
    #[new]
    fn new(host: &str, port: u16, backlog: u32) -> PyResult<Self> {
        let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let address = text.parse::<SocketAddr>().map_err(|_| refused("host", &host))?;
        let socket = listen::tcp(address, backlog).map_err(|error| os_error(&error))?;
        let address = socket.local_addr().map_err(|error| os_error(&error))?;
        Ok(Self { socket: Mutex::new(Some(socket)), address })
    }

    /// The IP address and the port.
    #[getter]
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Close the socket, unless a `Front` has taken it. Idempotent.
    fn close(&self) {
        drop(self.take());
    }
}

impl Listener {
    fn take(&self) -> Option<TcpListener> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn os_error(error: &io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

fn refused(what: &str, value: &dyn Display) -> PyErr {
    PyValueError::new_err(format!("{what}: {value} is not valid"))
}

/// The addresses that many clients share, so that no limit per address applies to them.
///
/// Args:
///     text: Addresses and networks, separated by commas, or ``none``.
///
/// Raises:
///     InvalidInput: If one of them is neither; the message names the setting.
///
/// >>> proxies = Proxies("127.0.0.0/8, ::1")
/// >>> proxies.key_of("127.0.0.1"), proxies.key_of("203.0.113.9"), proxies.key_of("2001:db8:1:2:3:4:5:6")
/// (None, '203.0.113.9', '2001:db8:1:2::/64')
#[pyclass(frozen, module = "coregw._core")]
pub struct Proxies(peers::Proxies);

#[pymethods]
impl Proxies {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        peers::Proxies::new(text).map(Self).map_err(|bad| {
            let shown: String = bad.0.chars().take(100).collect();
            let expected = "addresses or networks such as 10.0.0.5 or 10.0.0.0/24, or none";
            invalid(InputCode::InvalidRequest, format!("setting proxies has {shown:?}, expected {expected}"))
        })
    }

    /// Return what limits count a client under: its IPv4 address or IPv6 /64 network; None if no limit applies.
    ///
    /// Args:
    ///     host: The client's address; None, or anything but an IP address, for a Unix socket.
    fn key_of(&self, host: Option<&str>) -> Option<String> {
        let address = host?.split('%').next()?.parse().ok()?; // without the scope of an address of a link
        self.0.key_of(address).map(|key| match key {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(subnet) => format!("{subnet}/64"),
        })
    }
}

/// A certificate with its chain, and its key, as a `Front` shows them to clients that connect by TLS.
///
/// Args:
///     certificate: The path of the certificate and what leads to an authority, as PEM.
///     key: The path of its private key, as PEM.
///
/// Raises:
///     InvalidInput: If a file cannot be read or holds no certificate or key, or if the two do not belong together; the
///         message names the file.
#[pyclass(frozen, module = "coregw._core")]
pub struct Certificate(Arc<Tls>);

#[pymethods]
impl Certificate {
    #[new]
    fn new(py: Python<'_>, certificate: PathBuf, key: PathBuf) -> PyResult<Self> {
        let read = guarded(py, || Tls::read(certificate, key))?;
        read.map(|tls| Self(Arc::new(tls))).map_err(|error| unusable(&error))
    }

    /// Read the files again, for connections that begin from now on. After an error they get the old certificate.
    ///
    /// Raises:
    ///     InvalidInput: As the class.
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || self.0.reload())?.map_err(|error| unusable(&error))
    }
}

fn unusable(error: &io::Error) -> PyErr {
    invalid(InputCode::InvalidRequest, error.to_string())
}

/// What hot requests read from a store: a queue, from which threads of the caller take batches.
///
/// Args:
///     cache: What is known about the store. Pages that are read are parsed, and put into it.
///     guided: Whether the store has guides, so that inner pages on the paths to keys can be read early.
///
/// >>> reads = StoreReads(PageCache(1 << 20))
/// >>> reads.close()
/// >>> reads.next() is None
/// True
#[pyclass(frozen, module = "coregw._core")]
pub struct StoreReads(Arc<Reads>);

/// A digest and a page.
type EarlyPage = (BytesLike, BytesLike);
/// The size of a payload, and its bytes if it is small.
type FoundPayload = (u64, Option<BytesLike>);

#[pymethods]
impl StoreReads {
    #[new]
    #[pyo3(signature = (cache, guided = false))]
    fn new(cache: &PageCache, guided: bool) -> Self {
        Self(Reads::new(Arc::clone(&cache.0), guided))
    }

    /// Payloads of at most so many bytes are read with their sizes.
    #[getter]
    fn small_payload_bytes(&self) -> u64 {
        SMALL_PAYLOAD_BYTES
    }

    /// Wait, with the GIL released, until something is to be read. For any number of threads.
    ///
    /// Returns:
    ///     A `ReadBatch`, which `supply` or `fail` answers; None when the queue was closed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(batch) = py.detach(|| self.0.next()) else { return Ok(None) };
        let bytes = |each: &[u8]| PyBytes::new(py, each);
        let all = |names: &[Vec<u8>]| names.iter().map(|name| bytes(name)).collect::<Vec<_>>();
        let pages: Vec<_> = batch.pages.iter().map(|page| bytes(&page.0)).collect();
        let roots: Vec<_> = batch.roots.iter().map(|root| root_bytes(py, root)).collect();
        let descents: Vec<_> = batch.descents.iter().map(|(top, keys)| (bytes(&top.0), all(keys))).collect();
        let chunks: Vec<_> = batch.chunks.iter().map(|(name, range)| (bytes(name), range.start, range.end)).collect();
        let fields = (batch.id, pages, roots, descents, all(&batch.payloads), all(&batch.sizes), chunks);
        tuples::READ_BATCH.instance(py, fields).map(Some)
    }

    /// Answer a batch. O(bytes); pages are parsed with the GIL released. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch. All lists are in its order.
    ///     pages: Pages, None for one that is not stored.
    ///     roots: Whether each root is complete, None for one that is not held.
    ///     early: Digests and pages on the paths to the keys of the descents, in any order.
    ///     payloads: Sizes, with the bytes of small payloads; None for one that is not held.
    ///     sizes: Sizes; None for a payload that is not held.
    ///     chunks: The parts of payloads.
    ///
    /// Raises:
    ///     ValueError: If a digest does not have 32 bytes.
    #[allow(clippy::too_many_arguments, reason = "one for each list of a batch")]
    fn supply(
        &self,
        py: Python<'_>,
        batch: u64,
        pages: Items<Option<BytesLike>>,
        roots: Items<Option<bool>>,
        early: Items<EarlyPage>,
        payloads: Items<Option<FoundPayload>>,
        sizes: Items<Option<u64>>,
        chunks: Items<BytesLike>,
    ) -> PyResult<()> {
        let early = early.0.iter().map(|(digest, page)| Ok((digest_of(digest)?, page.to_vec())));
        let found = Found {
            pages: pages.0.iter().map(|page| page.as_deref().map(<[u8]>::to_vec)).collect(),
            roots: roots.0,
            early: early.collect::<PyResult<_>>()?,
            payloads: (payloads.0.iter())
                .map(|each| each.as_ref().map(|(size, bytes)| (*size, bytes.as_deref().map(<[u8]>::to_vec))))
                .collect(),
            sizes: sizes.0,
            chunks: chunks.0.iter().map(|chunk| chunk.to_vec()).collect(),
        };
        guarded(py, || self.0.supply(batch, Ok(found)))
    }

    /// Say why a batch was not read. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch.
    ///     kind: ``unavailable`` if the store does not answer, of which all requests of the batch learn; ``damaged`` or
    ///         ``not_found`` if something stored is, or a payload is not held any more; ``internal`` for a failure that
    ///         the caller has logged.
    ///     message: A sentence for clients, or for the log if something is damaged.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn fail(&self, py: Python<'_>, batch: u64, kind: &str, message: String) -> PyResult<()> {
        let failure = failure_of(kind, message)?;
        guarded(py, || self.0.supply(batch, Err(failure)))
    }

    /// End the queue: requests fail from now on, and `next` returns None. Idempotent.
    fn close(&self) {
        self.0.close();
    }

    /// How many batches were taken, and how many pages were read. O(1).
    #[getter]
    fn figures(&self) -> (u64, u64) {
        self.0.figures()
    }
}

/// Why a batch was not read or written.
fn failure_of(kind: &str, message: String) -> PyResult<Failure> {
    Ok(match kind {
        "unavailable" => Failure::Unavailable(message),
        "full" => Failure::Full(message),
        "damaged" => Failure::Damaged(message),
        "not_found" => Failure::NotFound(message),
        "internal" => Failure::Internal,
        _ => return Err(refused("kind", &kind)),
    })
}

/// Why a write has failed: the kind and the message of `StoreWrites.fail`.
type Reason = (String, String);

/// What became of new trees.
#[derive(FromPyObject)]
enum TreesOutcome {
    Failed(Reason),
    Stored(u64),
}

/// What became of a renewal.
#[derive(FromPyObject)]
enum RenewalOutcome {
    Failed(Reason),
    Held(Vec<bool>),
}

/// What hot requests write to a store: a queue, from which threads of the caller take batches.
///
/// >>> writes = StoreWrites()
/// >>> writes.close()
/// >>> writes.next() is None
/// True
#[pyclass(frozen, module = "coregw._core")]
pub struct StoreWrites(Arc<Writes>);

#[pymethods]
impl StoreWrites {
    #[new]
    fn new() -> Self {
        Self(Writes::new())
    }

    /// Wait, with the GIL released, until something is to be written, and take all that waits, up to a size.
    ///
    /// Returns:
    ///     A `WriteBatch`, of which `done` or `fail` is told; None when the queue was closed.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(batch) = py.detach(|| self.0.next()) else { return Ok(None) };
        let payloads: Vec<_> =
            batch.payloads.iter().map(|(name, bytes)| (PyBytes::new(py, name), PyBytes::new(py, bytes))).collect();
        let all = |roots: &[core::RootCid]| roots.iter().map(|root| root_bytes(py, root)).collect::<Vec<_>>();
        let trees = batch.trees.iter().map(|each| {
            let page = |(digest, page): &(Digest, Vec<u8>)| (PyBytes::new(py, &digest.0), PyBytes::new(py, page));
            let pages: Vec<_> = each.pages.iter().map(page).collect();
            tuples::NEW_TREES.instance(py, (pages, all(&each.roots), all(&each.requires), each.since))
        });
        let trees = trees.collect::<PyResult<Vec<_>>>()?;
        let renewals: Vec<_> = batch.renewals.iter().map(|roots| all(roots)).collect();
        tuples::WRITE_BATCH.instance(py, (batch.id, payloads, trees, renewals)).map(Some)
    }

    /// Say what became of a batch, when that is durable. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch. All lists are in its order; a write without an outcome has failed.
    ///     payloads: None for one that is stored; or why it is not, as the kind and the message of `fail`.
    ///     trees: The store's time; or why they are not stored, where ``not_found`` is a required root.
    ///     renewals: Which roots are held; or why that is not known.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn done(
        &self,
        py: Python<'_>,
        batch: u64,
        payloads: Items<Option<Reason>>,
        trees: Items<TreesOutcome>,
        renewals: Items<RenewalOutcome>,
    ) -> PyResult<()> {
        let payload = |reason: Option<Reason>| reason.map(|why| failure_of(&why.0, why.1)).transpose();
        let stored = |outcome| match outcome {
            TreesOutcome::Failed((kind, message)) => failure_of(&kind, message).map(Err),
            TreesOutcome::Stored(now) => Ok(Ok(now)),
        };
        let renewed = |outcome| match outcome {
            RenewalOutcome::Failed((kind, message)) => failure_of(&kind, message).map(Err),
            RenewalOutcome::Held(held) => Ok(Ok(held)),
        };
        let written = Written {
            payloads: (payloads.0.into_iter().map(payload))
                .map(|each| each.map(|failure| failure.map_or(Ok(()), Err)))
                .collect::<PyResult<_>>()?,
            trees: trees.0.into_iter().map(stored).collect::<PyResult<_>>()?,
            renewals: renewals.0.into_iter().map(renewed).collect::<PyResult<_>>()?,
        };
        guarded(py, || self.0.done(batch, Ok(written)))
    }

    /// Say why nothing of a batch is known to be written. An unknown batch is ignored.
    ///
    /// Args:
    ///     batch: The id of the batch.
    ///     kind: ``unavailable`` or ``full`` if the store takes nothing now; ``damaged`` if something stored is;
    ///         ``internal`` for a failure that the caller has logged.
    ///     message: A sentence for clients, or for the log if something is damaged.
    ///
    /// Raises:
    ///     ValueError: If there is no such kind.
    fn fail(&self, py: Python<'_>, batch: u64, kind: &str, message: String) -> PyResult<()> {
        let failure = failure_of(kind, message)?;
        guarded(py, || self.0.done(batch, Err(failure)))
    }

    /// End the queue: what waits fails, and `next` returns None. Idempotent.
    fn close(&self) {
        self.0.close();
    }
}

fn digest_of(bytes: &[u8]) -> PyResult<Digest> {
    bytes.try_into().map(Digest).map_err(|_| PyValueError::new_err("a digest has 32 bytes"))
}

/// Calls the front with the GIL released. A panic becomes a `CoregwError`.
fn guarded<T: Send>(py: Python<'_>, task: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(task))).map_err(|panic| of_panic(&*panic))
}

/// The limits of a front: a `FrontLimits`.
#[derive(FromPyObject)]
struct FrontLimits {
    threads: usize,
    connections: usize,
    connections_per_address: usize,
    unsent_bytes: usize,
    buffered_bytes: usize,
    buffered_bytes_per_address: usize,
    payload_cache_bytes: u64,
    log_bytes: usize,
    head_bytes: usize,
    header_fields: usize,
    head_seconds: f64,
    idle_seconds: f64,
    min_rate_bytes: u32,
    rate_grace_seconds: f64,
    body_pause_seconds: f64,
    body_seconds: f64,
    read_pause_seconds: f64,
    drain_seconds: f64,
    json_body_bytes: usize,
    verify_body_bytes: usize,
    resolve_batch_body_bytes: usize,
    batch_answer_bytes: usize,
    payload_bytes: usize,
    change_body_bytes: usize,
    node_budget: u64,
    max_nodes: u64,
    operation_seconds: f64,
    long_queries: usize,
    worker_threads: usize,
    upstream_idle_seconds: f64,
}

/// The longest time that a limit can mean.
const MAX_SECONDS: f64 = 1e9;

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(MAX_SECONDS)).unwrap_or_default()
}

impl FrontLimits {
    fn driver(&self) -> DriverLimits {
        DriverLimits {
            node_budget: self.node_budget,
            max_nodes: self.max_nodes,
            patience: duration(self.operation_seconds),
            long_queries: self.long_queries,
            threads: self.worker_threads,
        }
    }

    fn bodies(&self) -> BodyLimits {
        BodyLimits {
            json: self.json_body_bytes,
            verify: self.verify_body_bytes,
            resolve_batch: self.resolve_batch_body_bytes,
            batch_answer: self.batch_answer_bytes,
            payload: self.payload_bytes.min(SHORT_PAYLOAD_BYTES),
            change: self.change_body_bytes.min(SHORT_CHANGE_BYTES),
        }
    }

    fn capacity(&self) -> Capacity {
        let bodies = [self.json_body_bytes, self.verify_body_bytes, self.resolve_batch_body_bytes];
        let largest = bodies.into_iter().max().unwrap_or_default();
        Capacity { total: self.buffered_bytes, per_address: self.buffered_bytes_per_address, largest }
    }

    fn deadlines(&self) -> Deadlines {
        let rate = |pause| Rate {
            bytes_per_second: self.min_rate_bytes,
            grace: duration(self.rate_grace_seconds),
            pause: duration(pause),
        };
        Deadlines {
            head: duration(self.head_seconds),
            idle: duration(self.idle_seconds),
            body: rate(self.body_pause_seconds),
            body_whole: duration(self.body_seconds),
            read: rate(self.read_pause_seconds),
            drain: duration(self.drain_seconds),
        }
    }

    fn shares(&self) -> Shares {
        let per_address = self.connections_per_address;
        Shares { connections: self.connections, per_address, unsent: self.unsent_bytes }
    }
}

/// The server of a gateway: it answers hot reads, and hands everything else to an application on a Unix socket.
///
/// Args:
///     reads: What hot requests read from the store.
///     writes: Takes the short payloads that are stored.
///     cache: What is known about the store.
///     limits: How much clients may have, and how long they may take.
///     hosts: As of `Origins`.
///     allow_origin: As of `Origins`.
///     listens_on: As of `Origins`.
///     proxies: Addresses and networks that many clients share, separated by commas, or ``none``: no limit per address
///         applies to them.
///     codes: The statuses of all codes of errors.
///     fields: Names and values of the header fields of all answers.
///     upstream: The path of the application's socket.
///     write_tokens: The SHA-256 digests of the bearer tokens whose holders may write; None if everybody may. Other
///         requests that write are the application's.
///     read_only: Whether nothing is renewed when clients ask which payloads are held.
///     hot: Whether hot reads are answered here; otherwise the application answers all requests.
///     access_log: Whether each answer is logged.
///
/// Raises:
///     InvalidInput: If one of the hosts is not a host name, or one of the proxies is neither an address nor a network.
///     ValueError: If a header field is malformed, or a digest does not have 32 bytes.
#[pyclass(frozen, module = "coregw._core")]
pub struct Front {
    server: Arc<Server<Gateway<Application>>>,
    counts: Arc<Counts>,
    codes: Codes,
    log: Arc<RequestLog>,
    budget: Arc<Budget>,
    threads: usize,
    stop: watch::Sender<bool>,
}

#[pymethods]
impl Front {
    #[new]
    #[pyo3(signature = (reads, writes, cache, limits, hosts, allow_origin, listens_on, proxies, codes, fields, upstream,
                        write_tokens = None, read_only = false, hot = true, access_log = false))]
    #[allow(clippy::too_many_arguments, reason = "each is a thing of its own")]
    fn new(
        reads: &StoreReads,
        writes: &StoreWrites,
        cache: &PageCache,
        limits: FrontLimits,
        hosts: &str,
        allow_origin: &str,
        listens_on: &str,
        proxies: &str,
        codes: BTreeMap<String, u16>,
        fields: Vec<(String, String)>,
        upstream: PathBuf,
        write_tokens: Option<Vec<BytesLike>>,
        read_only: bool,
        hot: bool,
        access_log: bool,
    ) -> PyResult<Self> {
        let input = |what: String| invalid(InputCode::InvalidRequest, what);
        let origins = Origins::new(hosts, allow_origin, listens_on)
            .map_err(|bad| input(format!("hosts: {} is not a host name", bad.0)))?;
        let proxies = peers::Proxies::new(proxies)
            .map_err(|bad| input(format!("proxies: {} is neither an address nor a network", bad.0)))?;
        let proxies = Arc::new(proxies);
        let fields = fields.into_iter().map(|(name, value)| {
            let parsed = name.parse().ok().zip(value.parse().ok());
            parsed.ok_or_else(|| refused("field", &name))
        });
        let fields: Vec<_> = fields.collect::<PyResult<_>>()?;
        let digests = |all: Vec<BytesLike>| all.iter().map(|each| digest_of(each)).collect::<PyResult<_>>();
        let writers = write_tokens.map(digests).transpose()?.map_or(Writers::Anybody, Writers::Holders);
        let codes = Codes::new(codes);
        let counts = Arc::default();
        let log = Arc::new(RequestLog::new(limits.log_bytes, access_log));
        let budget = Budget::new(limits.capacity(), Arc::clone(&proxies));
        let cold = Application::new(
            Upstream::new(upstream, duration(limits.upstream_idle_seconds)),
            codes.clone(),
            fields.clone(),
        );
        let parts = GatewayParts {
            driver: Arc::new(Driver::new(Arc::clone(&cache.0), Arc::clone(&reads.0), limits.driver())),
            writes: Arc::clone(&writes.0),
            writers,
            limits: limits.bodies(),
            budget: Arc::clone(&budget),
            payload_cache_bytes: limits.payload_cache_bytes,
            codes: codes.clone(),
            fields,
            counts: Arc::clone(&counts),
            log: Arc::clone(&log),
            is_read_only: read_only,
            answers_hot: hot,
            for_each,
        };
        let rules = Rules {
            origins,
            codes: codes.clone(),
            limits: Limits { head_bytes: limits.head_bytes, fields: limits.header_fields },
            deadlines: limits.deadlines(),
            shares: limits.shares(),
            proxies,
        };
        let server = Server::new(Gateway::new(parts, cold), rules);
        let (stop, _) = watch::channel(false);
        Ok(Self { server, counts, codes, log, budget, threads: limits.threads, stop })
    }

    /// Accept connections until `stop` is called, with the GIL released; then finish the requests in progress. Once.
    ///
    /// It starts threads of its own. Signals are the main thread's, so another one calls this. At the end the log is
    /// closed.
    ///
    /// Args:
    ///     listeners: The sockets, which are closed as soon as it stops.
    ///     patience: The time for requests in progress to be finished after `stop`, in seconds.
    ///     certificate: With one, all connections are by TLS, and of HTTP/2 if clients offer it.
    ///
    /// Raises:
    ///     OSError: If the threads cannot be started, or the system has no room for the sockets.
    ///     ValueError: If a listener is closed, or served already.
    #[pyo3(signature = (listeners, patience, certificate = None))]
    fn serve(
        &self,
        py: Python<'_>,
        listeners: Vec<PyRef<'_, Listener>>,
        patience: f64,
        certificate: Option<&Certificate>,
    ) -> PyResult<()> {
        let tls = certificate.map(|each| Arc::clone(&each.0));
        let sockets = listeners.iter().map(|each| each.take().ok_or_else(|| refused("listener", &"a closed one")));
        let sockets = sockets.collect::<PyResult<Vec<_>>>();
        drop(listeners);
        let served = sockets.and_then(|sockets| {
            let served = guarded(py, || self.run(sockets, tls.as_ref(), duration(patience)))?;
            served.map_err(|error| os_error(&error))
        });
        self.log.close();
        served
    }

    /// Begin to end `serve`: no new connections, and idle ones are closed. For any thread; idempotent.
    fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// What the server has counted, and holds now: `FrontFigures`. O(connections).
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let figures = self.server.figures();
        let fields = (
            figures.connections,
            figures.requests,
            figures.unsent_bytes,
            self.budget.held(),
            figures.no_room,
            figures.unread_responses,
            figures.slow_reader,
            figures.floods,
            figures.exhausted,
            self.server.service().jobs(),
            self.log.dropped(),
        );
        tuples::FRONT_FIGURES.instance(py, fields)
    }

    /// What was counted of the answers of this server, without those of the application: `FrontCounts`.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let routes = self.counts.snapshot().into_iter().map(|each| {
            let statuses: BTreeMap<u16, u64> = each.statuses.into_iter().collect();
            let fields = (each.method, each.route, statuses, values(&each.nanoseconds), values(&each.sizes));
            tuples::ROUTE_TOTALS.instance(py, fields)
        });
        let routes = PyList::new(py, routes.collect::<PyResult<Vec<_>>>()?)?;
        let refusals: BTreeMap<String, u64> = self.codes.counts().into_iter().collect();
        tuples::FRONT_COUNTS.instance(py, (routes, values(&self.counts.bodies()), refusals))
    }

    /// Wait, with the GIL released, until something is to be logged, and return it: a list of `LoggedRequest`.
    ///
    /// Returns:
    ///     At least one; none when `serve` has ended and all was taken. For one thread.
    fn take_log<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lines = py.detach(|| self.log.take());
        let named = lines.into_iter().map(|line| logged(py, line));
        PyList::new(py, named.collect::<PyResult<Vec<_>>>()?)
    }
}

impl Front {
    /// Serves in threads of its own.
    fn run(&self, sockets: Vec<TcpListener>, tls: Option<&Arc<Tls>>, patience: Duration) -> io::Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(self.threads.max(1))
            .thread_name("coregw-front")
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listeners = sockets.into_iter().map(tokio::net::TcpListener::from_std);
            let listener = |socket| match tls {
                Some(tls) => server::Listener::Tls(socket, Arc::clone(tls)),
                None => server::Listener::Tcp(socket),
            };
            let listeners = listeners.map(|each| each.map(listener)).collect::<io::Result<Vec<_>>>()?;
            self.server.serve(listeners, self.stopped(), patience).await;
            Ok(())
        })
    }

    fn stopped(&self) -> impl Future<Output = ()> {
        let mut stop = self.stop.subscribe();
        async move {
            // The sender lives as long as the server.
            let _ = stop.wait_for(|&is_stopped| is_stopped).await;
        }
    }
}

/// The sum of all values, followed by how many have each number of bits.
fn values(histogram: &HistogramSnapshot) -> Vec<u64> {
    [&[histogram.total], histogram.counts.as_slice()].concat()
}

fn logged<'py>(py: Python<'py>, line: Logged) -> PyResult<Bound<'py, PyAny>> {
    let client = line.client.map(|client: IpAddr| client.to_canonical().to_string());
    let (status, bytes, seconds, failure) = match line.event {
        Event::Answered { status, bytes, took } => (Some(status), bytes, took.as_secs_f64(), None),
        Event::Failed(reason) => (None, 0, 0.0, Some(reason)),
    };
    tuples::LOGGED_REQUEST.instance(py, (client, line.method, line.path, line.id, status, bytes, seconds, failure))
}
