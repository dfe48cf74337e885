//! The open connections: what each holds, and which has to go when there are too many of them, or too much is unread.
//!
//! Connections are limited in all and for each address. A stream of HTTP/2 beside another one of its connection counts as a
//! connection, as it costs as much. A connection counts as idle while it waits for its client, also within a request: for
//! the rest of a head or body that arrives too slowly, and for a response to be read. The one that has been idle for
//! longest makes room for a new one; one whose request is being worked on never does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::framing::Malformed;
use crate::peers::{Proxies, Shares};

/// After this time idle connections are looked for again, when there was none, or too much was unread.
const BUSY_MILLIS: u64 = 50;
/// A client that has read nothing for this long is stalled.
const STALLED_MILLIS: u64 = 500;
/// Requests that a client may give up in a row, before they are answered: each costs more than it costs the client.
const MAX_GIVEN_UP: usize = 200;

/// Why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    /// Others need the room.
    NoRoom = 1,
    /// Memory is short, and the client reads nothing.
    UnreadResponses,
    /// The client reads too slowly.
    SlowReader,
    /// The client gives up one request after the other.
    Flood,
    /// A response cannot be completed. The client has to see that.
    Broken,
}

const ENDINGS: usize = 6;

/// Figures of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Connections that are open.
    pub connections: usize,
    /// Requests that are not answered completely.
    pub requests: usize,
    /// Bytes of responses that clients have not read.
    pub unsent_bytes: usize,
    /// Connections that were closed to make room, or not taken, and streams that were refused.
    pub no_room: u64,
    /// Connections whose clients read nothing when memory was short.
    pub unread_responses: u64,
    /// Connections and streams whose clients read too slowly.
    pub slow_reader: u64,
    /// Connections whose clients gave up one request after the other.
    pub floods: u64,
    /// How often the system had no descriptor or memory for a connection.
    pub exhausted: u64,
}

/// The open connections of a server.
#[derive(Debug)]
pub struct Crowd {
    shares: Shares,
    proxies: Arc<Proxies>,
    epoch: Instant,
    state: Mutex<Connections>,
    unsent: AtomicUsize,
    relieved: AtomicU64,
    endings: [AtomicU64; ENDINGS],
    exhausted: AtomicU64,
    is_stopping: AtomicBool,
    left: Notify,
}

#[derive(Debug, Default)]
struct Connections {
    members: HashMap<u64, Arc<Member>>,
    by_address: HashMap<IpAddr, OfAddress>,
    entered: u64,
    /// Connections, and streams beside others.
    places: usize,
    /// Those that were idle when it was filled, the longest idle one last: since when, and which.
    idle: Vec<(u64, u64)>,
    next_fill: u64,
}

#[derive(Debug, Default)]
struct OfAddress {
    ids: Vec<u64>,
    places: usize,
}

impl Crowd {
    /// A server without connections. No share per address applies to `proxies`.
    pub fn new(shares: Shares, proxies: Arc<Proxies>) -> Arc<Self> {
        Arc::new(Crowd {
            shares,
            proxies,
            epoch: Instant::now(),
            state: Mutex::default(),
            unsent: AtomicUsize::new(0),
            relieved: AtomicU64::new(0),
            endings: Default::default(),
            exhausted: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            left: Notify::new(),
        })
    }

    /// Takes a new connection, and ends the longest idle one if there are too many. None if no other is idle.
    ///
    /// Amortised O(log connections), or O(connections of the address) if it has its share.
    pub fn enter(self: &Arc<Self>, client: Option<IpAddr>) -> Option<Place> {
        let address = client.and_then(|client| self.proxies.key_of(client));
        let mut state = self.lock();
        let oldest = match address.and_then(|address| state.by_address.get(&address)) {
            Some(of_address) if of_address.places >= self.shares.per_address => {
                Some(state.longest_idle_of(&of_address.ids))
            }
            _ if state.places >= self.shares.connections => Some(state.longest_idle(self.now())),
            _ => None,
        };
        if let Some(oldest) = oldest {
            let Some(oldest) = oldest else {
                self.count(Ending::NoRoom);
                return None;
            };
            state.end(oldest);
        }
        state.entered += 1;
        let member = Arc::new(Member::new(Arc::clone(self), state.entered, address));
        state.members.insert(member.id, Arc::clone(&member));
        if let Some(address) = address {
            state.by_address.entry(address).or_default().ids.push(member.id);
        }
        state.places(address).for_each(|places| *places += 1);
        Some(Place { member })
    }

    /// The figures of now. O(connections).
    pub fn figures(&self) -> Figures {
        let state = self.lock();
        let ended = |ending: Ending| self.endings[ending as usize].load(Ordering::Relaxed);
        Figures {
            connections: state.members.len(),
            requests: state.members.values().map(|member| member.open.load(Ordering::Relaxed)).sum(),
            unsent_bytes: self.unsent.load(Ordering::Relaxed),
            no_room: ended(Ending::NoRoom),
            unread_responses: ended(Ending::UnreadResponses),
            slow_reader: ended(Ending::SlowReader),
            floods: ended(Ending::Flood),
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    /// Lets all connections end: idle ones at once, the others after their answers. Ready when there are none.
    pub async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.lock().members.values().for_each(|member| member.waker.wake());
        loop {
            let left = self.left.notified();
            if self.lock().members.is_empty() {
                return;
            }
            left.await;
        }
    }

    /// Whether connections are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Notes that the system had nothing left for a connection.
    pub(crate) fn count_exhausted(&self) {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, ending: Ending) {
        self.endings[ending as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.state.lock()
    }

    /// Milliseconds since the server began.
    fn now(&self) -> u64 {
        self.millis(Instant::now())
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_millis() as u64
    }

    /// Ends connections until no more is unread than may be: first those of addresses of which more is unread than their
    /// share, and of them those whose clients have read nothing for longest. Up to two thirds of the limit nobody has to
    /// go, and up to the limit no client that is not stalled yet; the newest has had no time.
    fn relieve(&self, newest: &Arc<Member>) {
        let (now, limit, soft) = (self.now(), self.shares.unsent, self.shares.soft_unsent());
        let is_hard = self.unsent.load(Ordering::Relaxed) > limit;
        if !is_hard && now < self.relieved.load(Ordering::Relaxed) + BUSY_MILLIS {
            return;
        }
        self.relieved.store(now, Ordering::Relaxed);
        let state = self.lock();
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        let mut readers = Vec::new();
        for member in state.members.values() {
            let unsent = member.unsent.load(Ordering::Relaxed);
            if unsent > 0 {
                readers.push((member.read_at.load(Ordering::Relaxed), member));
                member.address.into_iter().for_each(|address| *by_address.entry(address).or_default() += unsent);
            }
        }
        let share = self.shares.unsent_per_address();
        let has_share = |member: &Member| member.address.is_none_or(|address| by_address[&address] <= share);
        readers.sort_unstable_by_key(|(read_at, member)| (has_share(member), *read_at));
        for (read_at, member) in readers {
            let is_stalled = now.saturating_sub(read_at) >= STALLED_MILLIS;
            if self.unsent.load(Ordering::Relaxed) <= if is_stalled { soft } else { limit } {
                return;
            }
            if !Arc::ptr_eq(member, newest) {
                member.end(Ending::UnreadResponses);
                // What it holds is as good as free: nobody else has to go for it.
                self.unsent.fetch_sub(member.unsent.swap(0, Ordering::AcqRel), Ordering::AcqRel);
            }
        }
    }
}

impl Connections {
    /// The counts of places that a connection of this address has a part in.
    fn places(&mut self, address: Option<IpAddr>) -> impl Iterator<Item = &mut usize> {
        let of_address = address.and_then(|address| self.by_address.get_mut(&address));
        std::iter::once(&mut self.places).chain(of_address.map(|each| &mut each.places))
    }

    fn leave(&mut self, id: u64) -> Option<Arc<Member>> {
        let member = self.members.remove(&id)?;
        let held = member.streams.load(Ordering::Relaxed).max(1);
        self.places(member.address).for_each(|places| *places -= held);
        if let Some(address) = member.address
            && let Some(of_address) = self.by_address.get_mut(&address)
        {
            of_address.ids.retain(|each| *each != id);
            if of_address.ids.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(member)
    }

    fn end(&mut self, id: u64) {
        if let Some(member) = self.leave(id) {
            member.end(Ending::NoRoom);
        }
    }

    fn longest_idle_of(&self, ids: &[u64]) -> Option<u64> {
        let idle = ids.iter().filter_map(|id| Some((self.members.get(id)?.idle_since()?, *id)));
        idle.min().map(|(_, id)| id)
    }

    /// The connection that has been idle for longest.
    ///
    /// Those that were idle when `idle` was filled, and are so since the same time, have been idle for longer than all
    /// others; so the list is filled again only when it is used up.
    fn longest_idle(&mut self, now: u64) -> Option<u64> {
        let found = self.pop_idle();
        if found.is_some() || now < self.next_fill {
            return found;
        }
        let idle = self.members.iter().filter_map(|(id, member)| Some((member.idle_since()?, *id)));
        self.idle = idle.collect();
        self.idle.sort_unstable_by(|one, other| other.cmp(one));
        let found = self.pop_idle();
        if found.is_none() {
            self.next_fill = now + BUSY_MILLIS;
        }
        found
    }

    fn pop_idle(&mut self) -> Option<u64> {
        while let Some((since, id)) = self.idle.pop() {
            if self.members.get(&id).and_then(|member| member.idle_since()) == Some(since) {
                return Some(id);
            }
        }
        None
    }
}

/// The place of a connection, which it leaves when this is dropped.
#[derive(Debug)]
pub struct Place {
    member: Arc<Member>,
}

impl Place {
    /// The connection.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let crowd = &self.member.crowd;
        crowd.lock().leave(self.member.id);
        if crowd.is_stopping() {
            crowd.left.notify_one();
        }
    }
}

/// The place of a stream of HTTP/2, which it leaves when this is dropped.
#[derive(Debug)]
pub struct StreamPlace(Arc<Member>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let Self(member) = self;
        let mut state = member.crowd.lock();
        let others = member.streams.load(Ordering::Relaxed) - 1;
        member.streams.store(others, Ordering::Relaxed);
        if others > 0 && state.members.contains_key(&member.id) {
            state.places(member.address).for_each(|places| *places -= 1);
        }
    }
}

/// What the two sides of a connection, its bytes and its requests, know of each other. Times are milliseconds of its crowd.
#[derive(Debug)]
pub struct Member {
    crowd: Arc<Crowd>,
    id: u64,
    address: Option<IpAddr>,
    /// Streams of HTTP/2 that have begun and not ended. It changes while the crowd is locked.
    streams: AtomicUsize,
    is_http2: AtomicBool,
    /// Requests that are not answered completely; those that have begun; those that ended.
    open: AtomicUsize,
    begun: AtomicU64,
    done: AtomicU64,
    /// Bodies, and responses of HTTP/2, that wait for the client.
    awaited: AtomicUsize,
    /// Whether what is written waits for the client.
    is_unread: AtomicBool,
    /// Over HTTP/1: whether nothing of a request has arrived, and nothing of an answer is to be written.
    is_quiet: AtomicBool,
    /// Whether the next request has arrived, or the end, and is read when the last one is answered.
    is_held_back: AtomicBool,
    /// Whether the response of the last request has begun.
    is_answering: AtomicBool,
    /// Over HTTP/1: whether the body of the last request has not been read to its end, and how many requests have arrived
    /// completely.
    has_body: AtomicBool,
    arrived: AtomicU64,
    /// When the client was last active: opened the connection, sent as fast as it has to, read, or was answered.
    active: AtomicU64,
    /// What the client has not read, and when it last read; and the streams that wait for it to be less.
    unsent: AtomicUsize,
    read_at: AtomicU64,
    less_unsent: Notify,
    /// Requests that were given up, less those that were answered.
    given_up: AtomicUsize,
    /// Why it is to end, once it is.
    ending: AtomicU8,
    waker: AtomicWaker,
    fault: OnceLock<(u64, Malformed)>,
}

impl Member {
    fn new(crowd: Arc<Crowd>, id: u64, address: Option<IpAddr>) -> Self {
        let now = crowd.now();
        Member {
            crowd,
            id,
            address,
            streams: AtomicUsize::new(0),
            is_http2: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            awaited: AtomicUsize::new(0),
            is_unread: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            is_held_back: AtomicBool::new(false),
            is_answering: AtomicBool::new(false),
            has_body: AtomicBool::new(false),
            arrived: AtomicU64::new(0),
            active: AtomicU64::new(now),
            unsent: AtomicUsize::new(0),
            read_at: AtomicU64::new(now),
            less_unsent: Notify::new(),
            given_up: AtomicUsize::new(0),
            ending: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            fault: OnceLock::new(),
        }
    }

    /// Takes a place for a stream of HTTP/2; the first one has that of its connection. None if there is no place, and no
    /// other connection is idle, or the address has its share: then its other streams have to end before.
    ///
    /// Complexity as of [`Crowd::enter`].
    pub fn begin_stream(self: &Arc<Self>) -> Option<StreamPlace> {
        let crowd = &self.crowd;
        let mut state = crowd.lock();
        if !state.members.contains_key(&self.id) {
            return None; // it is to end
        }
        let streams = self.streams.load(Ordering::Relaxed);
        if streams > 0 {
            let of_address = self.address.and_then(|address| state.by_address.get(&address));
            if of_address.is_some_and(|of_address| of_address.places >= crowd.shares.per_address) {
                return None;
            }
            if state.places >= crowd.shares.connections {
                self.touch(Instant::now()); // others have been idle for longer
                let oldest = state.longest_idle(crowd.now()).filter(|oldest| *oldest != self.id)?;
                state.end(oldest);
            }
            state.places(self.address).for_each(|places| *places += 1);
        }
        self.streams.store(streams + 1, Ordering::Relaxed);
        Some(StreamPlace(Arc::clone(self)))
    }

    /// Notes that a request begins. The connection is not idle until the value is dropped.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.is_answering.store(false, Ordering::Release);
        Open { member: Arc::clone(self), is_answered: false }
    }

    /// The number of a request whose head has been read, counted from 1. Once a request.
    pub fn next_request(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Why the request with this number, counted from 1, cannot be understood, or what follows it cannot.
    pub fn fault(&self, request: u64) -> Option<Malformed> {
        self.fault.get().filter(|(number, _)| *number <= request).map(|(_, fault)| *fault)
    }

    /// Notes why nothing is read from the request with this number on.
    pub(crate) fn set_fault(&self, request: u64, fault: Malformed) {
        let _ = self.fault.set((request, fault)); // the first stays
    }

    /// Since when it has waited for its client, in milliseconds; None if the client waits for it.
    pub fn idle_since(&self) -> Option<u64> {
        let open = self.open.load(Ordering::Acquire);
        let is_idle = self.awaited.load(Ordering::Acquire) >= open || self.is_unread.load(Ordering::Acquire);
        is_idle.then(|| self.active.load(Ordering::Acquire))
    }

    /// Whether no request is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// How many requests have begun, and how many have ended.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Acquire), self.done.load(Ordering::Acquire))
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.is_answering.load(Ordering::Acquire)
    }

    /// Notes whether neither a request nor an answer is on the connection.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        if self.is_quiet.load(Ordering::Relaxed) != is_quiet {
            self.is_quiet.store(is_quiet, Ordering::Release);
        }
    }

    /// Whether an HTTP library knows nothing of the connection that is needed for the next request.
    pub(crate) fn is_between(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire) && self.is_idle()
    }

    /// Notes whether something is read when the last request is answered.
    pub(crate) fn set_held_back(&self, is_held_back: bool) {
        self.is_held_back.store(is_held_back, Ordering::Release);
    }

    /// Notes whether some of the body of the last request has not been read.
    pub(crate) fn set_body(&self, has_body: bool) {
        self.has_body.store(has_body, Ordering::Release);
    }

    /// Whether some of the body of the last request, of HTTP/1, has not been read.
    pub(crate) fn has_body(&self) -> bool {
        self.has_body.load(Ordering::Acquire)
    }

    /// Notes that so many requests of HTTP/1 have arrived completely.
    pub(crate) fn set_arrived(&self, requests: u64) {
        self.arrived.store(requests, Ordering::Release);
    }

    /// How many requests of HTTP/1 have arrived completely.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Acquire)
    }

    /// Whether the last request of HTTP/1 that has begun has not arrived completely.
    pub(crate) fn is_arriving(&self) -> bool {
        !self.is_http2() && self.arrived() < self.progress().0
    }

    /// Notes that it speaks HTTP/2.
    pub(crate) fn set_http2(&self) {
        self.is_http2.store(true, Ordering::Release);
    }

    /// Whether it speaks HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Acquire)
    }

    /// Notes that a body or response begins to wait for the client, or ends to.
    pub(crate) fn await_client(&self, is_awaited: bool) {
        if is_awaited {
            self.awaited.fetch_add(1, Ordering::AcqRel);
        } else {
            self.awaited.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes that the client was active then.
    pub(crate) fn touch(&self, at: Instant) {
        self.active.fetch_max(self.crowd.millis(at), Ordering::AcqRel);
    }

    /// When the client was last active.
    pub(crate) fn active(&self) -> Instant {
        self.crowd.epoch + Duration::from_millis(self.active.load(Ordering::Acquire))
    }

    /// Notes whether what is written waits for the client.
    pub(crate) fn set_unread(&self, is_unread: bool) {
        if self.is_unread.load(Ordering::Relaxed) != is_unread {
            self.is_unread.store(is_unread, Ordering::Release);
            // Without a request, what a client of HTTP/2 reads are answers to pings and settings, however many it sends.
            let is_answer = !self.is_idle() || !self.is_http2.load(Ordering::Relaxed);
            if is_answer && !is_unread {
                self.note_read();
            }
        }
    }

    /// Notes that the client reads.
    pub(crate) fn note_read(&self) {
        let now = self.crowd.now();
        self.read_at.store(now, Ordering::Release);
        self.active.fetch_max(now, Ordering::AcqRel);
    }

    /// Counts bytes that the client has not read, until the value is dropped. It may end connections.
    pub fn hold(self: &Arc<Self>, size: usize) -> Unsent {
        if self.unsent.fetch_add(size, Ordering::AcqRel) == 0 {
            self.read_at.store(self.crowd.now(), Ordering::Release);
        }
        let total = self.crowd.unsent.fetch_add(size, Ordering::AcqRel) + size;
        if total > self.crowd.shares.soft_unsent() {
            self.crowd.relieve(self);
        }
        Unsent { member: Arc::clone(self), size }
    }

    /// What the client has not read, in bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Acquire)
    }

    /// Notified when that may be less.
    pub(crate) fn less_unsent(&self) -> &Notify {
        &self.less_unsent
    }

    /// Lets the connection end, as soon as it is polled.
    pub(crate) fn end(&self, ending: Ending) {
        if self.ending.compare_exchange(0, ending as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.crowd.count(ending);
            self.waker.wake();
        }
    }

    /// Whether the server has ended it.
    pub fn is_ended(&self) -> bool {
        self.ending.load(Ordering::Acquire) != 0
    }

    /// Ready when the server has ended it. The task is also woken when something held back may be read, HTTP/2 is
    /// idle, or the server is to stop.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_ended() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn crowd(&self) -> &Arc<Crowd> {
        &self.crowd
    }
}

impl Default for Member {
    /// The only connection of a server without limits.
    fn default() -> Self {
        let shares = Shares { connections: usize::MAX, per_address: usize::MAX, unsent: usize::MAX };
        Member::new(Crowd::new(shares, Arc::default()), 0, None)
    }
}

/// A request that is not answered completely.
#[derive(Debug)]
pub struct Open {
    member: Arc<Member>,
    is_answered: bool,
}

impl Open {
    /// The connection.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Notes that the response begins.
    pub fn answer(&mut self) {
        self.is_answered = true;
        self.member.is_answering.store(true, Ordering::Release);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let member = &self.member;
        if !self.is_answered {
            if member.given_up.fetch_add(1, Ordering::AcqRel) >= MAX_GIVEN_UP {
                member.end(Ending::Flood);
            }
        } else if member.given_up.load(Ordering::Relaxed) > 0 {
            let _ = member.given_up.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1));
        }
        member.touch(Instant::now());
        member.done.fetch_add(1, Ordering::AcqRel);
        let was_open = member.open.fetch_sub(1, Ordering::AcqRel);
        // Over HTTP/2, the deadline for the next request begins.
        if member.is_held_back.load(Ordering::Acquire) || (was_open == 1 && member.is_http2.load(Ordering::Relaxed)) {
            member.waker.wake();
        }
    }
}

/// Bytes in memory that a client has not read.
#[derive(Debug)]
pub struct Unsent {
    member: Arc<Member>,
    size: usize,
}

impl Unsent {
    /// Splits off so many bytes.
    pub(crate) fn split(&mut self, size: usize) -> Unsent {
        let size = size.min(self.size);
        self.size -= size;
        Unsent { member: Arc::clone(&self.member), size }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let left = |unsent: usize| unsent.checked_sub(self.size);
        // Otherwise it was written off when its connection was ended.
        if self.member.unsent.fetch_update(Ordering::AcqRel, Ordering::Relaxed, left).is_ok() {
            self.member.crowd.unsent.fetch_sub(self.size, Ordering::AcqRel);
        }
        self.member.less_unsent.notify_one();
    }
}
