//! What is counted of hot requests, and logged of each: without a lock, and without Python.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;

use crate::routes::{self, Hot};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The numbers of bits that a value may have.
const BUCKETS: usize = 65;
const FIRST_STATUS: u16 = 100;
const STATUSES: usize = 500;

/// Integers, counted by their number of bits: `counts[k]` of them are less than 2^k and not less than 2^(k - 1).
#[derive(Debug)]
struct Histogram {
    counts: [AtomicU64; BUCKETS],
    total: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), total: AtomicU64::new(0) }
    }
}

impl Histogram {
    fn add(&self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.counts[bits].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(value, Ordering::Relaxed);
    }

    fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        HistogramSnapshot { counts, total: self.total.load(Ordering::Relaxed) }
    }
}

/// A histogram as it was at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// `counts[k]` is how many values have `k` bits.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub total: u64,
}

/// One method of one route.
#[derive(Debug)]
struct RouteCounts {
    statuses: Vec<AtomicU64>,
    nanoseconds: Histogram,
    sizes: Histogram,
}

impl Default for RouteCounts {
    fn default() -> Self {
        let statuses = (0..STATUSES).map(|_| AtomicU64::new(0)).collect();
        Self { statuses, nanoseconds: Histogram::default(), sizes: Histogram::default() }
    }
}

/// The counts of one method of one route, as they were at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSnapshot {
    /// The method.
    pub method: &'static str,
    /// The template of the path.
    pub route: &'static str,
    /// How many answers had each status, if any had.
    pub statuses: Vec<(u16, u64)>,
    /// Times from complete heads of requests to heads of answers.
    pub nanoseconds: HistogramSnapshot,
    /// Sizes of the bodies of answers.
    pub sizes: HistogramSnapshot,
}

/// Counts of hot requests.
#[derive(Debug)]
pub struct Counts {
    /// Two of each route: HEAD, and the other method.
    routes: Vec<[RouteCounts; 2]>,
    bodies: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self { routes: Hot::ALL.iter().map(|_| Default::default()).collect(), bodies: Histogram::default() }
    }
}

impl Counts {
    /// Counts an answer.
    pub fn add(&self, hot: Hot, is_head: bool, status: u16, took: Duration, size: u64) {
        let counts = &self.routes[hot.index()][usize::from(is_head)];
        if let Some(count) = counts.statuses.get(usize::from(status.saturating_sub(FIRST_STATUS))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        counts.nanoseconds.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        counts.sizes.add(size);
    }

    /// Counts a complete body of a request.
    pub fn add_body(&self, size: usize) {
        self.bodies.add(size as u64);
    }

    /// Sizes of complete bodies of requests.
    pub fn bodies(&self) -> HistogramSnapshot {
        self.bodies.snapshot()
    }

    /// The counts of routes that were used.
    pub fn snapshot(&self) -> Vec<RouteSnapshot> {
        let mut used = Vec::new();
        for (hot, methods) in Hot::ALL.iter().zip(&self.routes) {
            let names = if hot.is_by_url() { ["GET", "HEAD"] } else { ["POST", "HEAD"] };
            for (method, counts) in names.into_iter().zip(methods) {
                let statuses = counts.statuses.iter().zip(FIRST_STATUS..);
                let statuses = statuses.map(|(count, status)| (status, count.load(Ordering::Relaxed)));
                let statuses: Vec<(u16, u64)> = statuses.filter(|(_, count)| *count > 0).collect();
                if !statuses.is_empty() {
                    let (nanoseconds, sizes) = (counts.nanoseconds.snapshot(), counts.sizes.snapshot());
                    used.push(RouteSnapshot { method, route: hot.template(), statuses, nanoseconds, sizes });
                }
            }
        }
        used
    }
}

/// What is logged of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Logged {
    /// The client.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: String,
    /// The path, decoded, as the client sent it: not everything in it may be logged.
    pub path: String,
    /// The id of the request.
    pub id: String,
    /// What is logged.
    pub event: Event,
}

impl Logged {
    pub(crate) fn new(head: &Parts, client: Option<IpAddr>, id: String, event: Event) -> Self {
        let path = routes::decoded(head.uri.path()).into_owned();
        Logged { client, method: head.method.as_str().to_owned(), path, id, event }
    }
}

/// Why a request is logged.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It was answered.
    Answered {
        /// The status.
        status: u16,
        /// Bytes of the body that were sent, or are.
        bytes: u64,
        /// From the head of the request until now.
        took: Duration,
    },
    /// The gateway failed, and says why.
    Failed(String),
}

impl Logged {
    fn bytes(&self) -> usize {
        let reason = if let Event::Failed(reason) = &self.event { reason.len() } else { 0 };
        size_of::<Self>() + self.method.len() + self.path.len() + self.id.len() + reason
    }
}

/// What waits to be logged, bounded in bytes. Whoever adds something never waits.
#[derive(Debug)]
pub struct RequestLog {
    waiting: Mutex<WaitingLines>,
    arrived: Condvar,
    dropped: AtomicU64,
    max_bytes: usize,
    has_access: bool,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: VecDeque<Logged>,
    bytes: usize,
    is_closed: bool,
}

impl RequestLog {
    /// An empty log of at most `max_bytes` that wait. Answers are added if it has access lines.
    pub fn new(max_bytes: usize, has_access: bool) -> Self {
        let (waiting, arrived) = (Mutex::default(), Condvar::new());
        Self { waiting, arrived, dropped: AtomicU64::new(0), max_bytes, has_access }
    }

    /// Whether each answer is logged.
    pub fn has_access(&self) -> bool {
        self.has_access
    }

    /// Adds a line, or drops it if too much waits.
    pub fn add(&self, line: Logged) {
        let bytes = line.bytes();
        let mut waiting = self.lock();
        if waiting.bytes + bytes > self.max_bytes || waiting.is_closed {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += bytes;
        waiting.lines.push_back(line);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for lines, and takes all; none if the log was closed. For one thread.
    pub fn take(&self) -> Vec<Logged> {
        let mut waiting = self.lock();
        while waiting.lines.is_empty() && !waiting.is_closed {
            self.arrived.wait(&mut waiting);
        }
        waiting.bytes = 0;
        waiting.lines.drain(..).collect()
    }

    /// How many lines were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ends the log; what waits can still be taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock()
    }
}
