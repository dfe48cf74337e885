//! The front of a gateway: sockets, and the server on them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use core::InputCode;
use coregw_core as core;
use coregw_front::budget::{Budget, Capacity};
use coregw_front::counts::{Counts, Event, HistogramSnapshot, Logged, RequestLog};
use coregw_front::driver::{Driver, DriverLimits};
use coregw_front::framing::Limits;
use coregw_front::gateway::{Gateway, GatewayParts, Writers};
use coregw_front::guard::Deadlines;
use coregw_front::hot::BodyLimits;
use coregw_front::listen;
use coregw_front::origins::Origins;
use coregw_front::pace::Rate;
use coregw_front::peers;
use coregw_front::peers::Shares;
use coregw_front::problem::Codes;
use coregw_front::proxy::{Application, Upstream};
use coregw_front::server::{self, Rules, Server};
use coregw_front::tls::Tls;
use coregw_front::writes::SHORT_CHANGE_BYTES;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::convert::BytesLike;
use crate::engine::cache::PageCache;
use crate::engine::operation::for_each;
use crate::errors::{guarded, invalid, refused};
use crate::queues::{StoreReads, StoreWrites, digest_of};
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
            payload: self.payload_bytes,
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
///     writes: Takes what hot requests write to the store.
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
