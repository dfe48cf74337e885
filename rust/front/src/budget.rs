//! Bodies of requests: the pace at which they arrive, and their memory.
//!
//! Memory has a share for small bodies, one for each address, and none for stalled ones: if it is short, those are refused
//! first whose clients are too slow, and of them those that hold most.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::crowd::{Member, StreamPlace};
use crate::pace::{Pace, Rate};
use crate::peers::Proxies;
use crate::problem::{Error, Problem};

/// A body that holds at most this much is small.
pub const SMALL_BYTES: usize = 64 << 10;
/// One part in this many of the budget is for small bodies only.
const SMALL_SHARE: usize = 8;
/// A body that has been too slow for this long is stalled.
const STALLED: Duration = Duration::from_secs(1);

/// Why a body is not complete.
#[derive(Debug)]
pub enum Broken {
    /// Its client took too long over it.
    Late,
    /// The connection ended, or cannot be understood.
    Cut(Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::Late => "the request body did not arrive in time",
            Broken::Cut(_) => "the request body is incomplete",
        })
    }
}

impl std::error::Error for Broken {}

/// A body as hyper receives it.
///
/// What nobody has read of one over HTTP/2 is read and discarded for a while, as the guard of a connection does over HTTP/1.
/// Otherwise hyper would reset the stream right after the response: some clients (curl 7.88) then report no response, and
/// others (httpcore) wait for the window of a stream that does not exist anymore.
#[derive(Debug)]
pub struct Received {
    /// None after its end.
    body: Option<Incoming>,
    drain: Option<(Duration, Arc<StreamPlace>)>,
}

impl Received {
    /// A body of which the rest is read when it is dropped, if its stream and the longest time for that are given.
    pub fn new(body: Incoming, drain: Option<(Duration, Arc<StreamPlace>)>) -> Self {
        Received { body: Some(body), drain }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream()).zip(self.drain.take());
        if let (Some((mut body, (drain, place))), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(timeout(drain, async move {
                let _place = place;
                while let Some(Ok(_)) = body.frame().await {}
            }));
        }
    }
}

/// A body that arrives while it is read. Its client is held to a pace while the reader waits for it.
#[derive(Debug)]
pub struct Arriving<B = Received> {
    body: B,
    pace: Pace,
    whole: Duration,
    connection: Arc<Member>,
    is_awaited: bool,
}

impl<B: Body> Arriving<B> {
    /// A body of a request on a connection, which has to arrive at a rate, and in `whole` in all.
    pub fn new(body: B, rate: Rate, whole: Duration, connection: Arc<Member>) -> Self {
        connection.set_body(!body.is_end_stream());
        Arriving { body, pace: Pace::new(rate), whole, connection, is_awaited: false }
    }
}

impl<B> Arriving<B> {
    /// The connection.
    pub(crate) fn connection(&self) -> &Arc<Member> {
        &self.connection
    }

    /// Whether what has arrived cannot be understood.
    pub(crate) fn is_malformed(&self) -> bool {
        self.connection.fault(u64::MAX).is_some()
    }

    /// Tells the connection whether, and since when, this body waits for its client.
    fn note(&mut self, since: Option<Instant>) {
        if let Some(since) = since {
            self.connection.touch(since);
        }
        if self.is_awaited != since.is_some() {
            self.is_awaited = since.is_some();
            self.connection.await_client(self.is_awaited);
        }
    }
}

impl<B> Body for Arriving<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(found) => {
                let bytes = match &found {
                    Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                    _ => 0,
                };
                this.pace.move_on(bytes);
                this.note(None);
                if found.is_none() || this.body.is_end_stream() {
                    this.connection.set_body(false);
                }
                Poll::Ready(found.map(|frame| frame.map_err(|error| Broken::Cut(error.into()))))
            }
            Poll::Pending if this.pace.poll(cx, this.whole).is_ready() => Poll::Ready(Some(Err(Broken::Late))),
            Poll::Pending => {
                this.note(this.pace.behind_since());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.note(None);
    }
}

/// How much memory bodies may hold, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// All of them together.
    pub total: usize,
    /// Those of one address that are not small.
    pub per_address: usize,
    /// The largest body: there is always room for one.
    pub largest: usize,
}

/// The memory of all bodies together.
#[derive(Debug)]
pub struct Budget {
    capacity: Capacity,
    /// For bodies that are not small.
    large: usize,
    proxies: Arc<Proxies>,
    state: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    held: usize,
    large: usize,
    by_address: HashMap<IpAddr, usize>,
    /// The bodies that wait for their clients, by the number of their account.
    waiting: HashMap<u64, Waiting>,
    accounts: u64,
}

#[derive(Debug)]
struct Waiting {
    held: usize,
    address: Option<IpAddr>,
    behind_since: Instant,
    waker: Waker,
    is_refused: bool,
}

impl Budget {
    /// A budget of which nothing is held. No share per address applies to `proxies`.
    pub fn new(capacity: Capacity, proxies: Arc<Proxies>) -> Arc<Self> {
        let large = capacity.total - capacity.total / SMALL_SHARE;
        let large = large.max(capacity.largest.min(capacity.total));
        let capacity = Capacity { per_address: capacity.per_address.max(capacity.largest), ..capacity };
        Arc::new(Budget { capacity, large, proxies, state: Mutex::default() })
    }

    /// An account for one body. What it holds is counted until it is dropped.
    pub fn account(self: &Arc<Self>, client: Option<IpAddr>) -> Account {
        let address = client.and_then(|client| self.proxies.key_of(client));
        Account { budget: Arc::clone(self), address, held: 0, waits_as: None }
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.state.lock()
    }

    /// By how much these further bytes, and these of large bodies, would exceed the budget.
    fn excess(&self, state: &Accounts, size: usize, large: usize) -> usize {
        let of_large = if large > 0 { (state.large + large).saturating_sub(self.large) } else { 0 };
        (state.held + size).saturating_sub(self.capacity.total).max(of_large)
    }
}

impl Accounts {
    fn release(&mut self, held: usize, address: Option<IpAddr>) {
        self.held -= held;
        if held <= SMALL_BYTES {
            return;
        }
        self.large -= held;
        if let Some(address) = address
            && let Some(sum) = self.by_address.get_mut(&address)
        {
            *sum -= held;
            if *sum == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// Refuses stalled bodies until they have freed this many bytes. O(bodies that wait for their clients).
    fn relieve(&mut self, mut needed: usize) {
        let is_stalled = |each: &Waiting| !each.is_refused && each.behind_since.elapsed() >= STALLED;
        let mut stalled: Vec<_> =
            self.waiting.iter().filter(|(_, each)| is_stalled(each)).map(|(&id, each)| (each.held, id)).collect();
        stalled.sort_unstable_by(|one, other| other.cmp(one));
        for (held, id) in stalled {
            if needed == 0 {
                return;
            }
            let Some(each) = self.waiting.get_mut(&id) else { continue };
            each.is_refused = true;
            each.waker.wake_by_ref();
            let address = each.address;
            self.release(held, address);
            needed = needed.saturating_sub(held);
        }
    }
}

/// What one body holds; made by [`Budget::account`].
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    address: Option<IpAddr>,
    held: usize,
    /// The number under which it waits, if it does.
    waits_as: Option<u64>,
}

impl Account {
    /// Counts further bytes as held.
    ///
    /// # Errors
    ///
    /// `unavailable` if all bodies together, or those of the address, exceed their budget.
    pub fn add(&mut self, size: usize) -> Result<(), Problem> {
        let budget = Arc::clone(&self.budget);
        let mut state = budget.lock();
        let held = self.held + size;
        let large = match (held > SMALL_BYTES, self.held > SMALL_BYTES) {
            (false, _) => 0,
            (true, true) => size,
            (true, false) => held,
        };
        if let Some(address) = self.address.filter(|_| large > 0) {
            let sum = state.by_address.get(&address).copied().unwrap_or(0);
            if sum + large > budget.capacity.per_address {
                return Err(Problem::unavailable(
                    "the request bodies of your address exceed its share of the gateway's memory; retry later",
                ));
            }
        }
        let excess = budget.excess(&state, size, large);
        if excess > 0 {
            state.relieve(excess);
            if budget.excess(&state, size, large) > 0 {
                return Err(short());
            }
        }
        state.held += size;
        state.large += large;
        if let Some(address) = self.address.filter(|_| large > 0) {
            *state.by_address.entry(address).or_default() += large;
        }
        self.held = held;
        Ok(())
    }

    /// Counts that a change holds this much in all, besides its body, if that is more than before.
    ///
    /// # Errors
    ///
    /// `too_large` if it alone exceeds the budget; otherwise as [`Account::add`].
    pub(crate) fn hold(&mut self, held: usize, counted: &mut usize) -> Result<(), Problem> {
        let most = self.budget.capacity.total;
        if held > most {
            let message = format!("the change needs more than {most} bytes of memory; send fewer at once");
            return Err(Problem::new("too_large", message));
        }
        if let Some(more) = held.checked_sub(*counted).filter(|more| *more > 0) {
            self.add(more)?;
            *counted = held;
        }
        Ok(())
    }

    /// Notes that the body waits for its client, which is too slow since then. Returns whether it has been refused.
    fn wait(&mut self, behind_since: Instant, waker: &Waker) -> bool {
        let mut state = self.budget.lock();
        let id = *self.waits_as.get_or_insert_with(|| {
            state.accounts += 1;
            state.accounts
        });
        let entry = state.waiting.entry(id).or_insert_with(|| {
            let (held, address) = (self.held, self.address);
            Waiting { held, address, behind_since, waker: waker.clone(), is_refused: false }
        });
        entry.behind_since = behind_since;
        entry.waker.clone_from(waker);
        entry.is_refused
    }

    /// Notes that it does not wait any more. Returns whether it was refused meanwhile, and holds nothing.
    fn resume(&mut self) -> bool {
        let Some(id) = self.waits_as.take() else { return false };
        let is_refused = self.budget.lock().waiting.remove(&id).is_some_and(|entry| entry.is_refused);
        if is_refused {
            self.held = 0;
        }
        is_refused
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.resume();
        if self.held > 0 {
            self.budget.lock().release(self.held, self.address);
        }
    }
}

/// Reads a whole body. Its memory is counted in `account`, which the caller keeps as long as the body.
///
/// # Errors
///
/// `too_large` if the body is longer than `limit` (nothing is read if its declared length is), `unavailable` if the
/// budget is exceeded, `invalid_request` if it arrives too slowly or is cut off.
pub async fn read_whole<B>(mut body: Arriving<B>, limit: usize, account: &mut Account) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    let mut whole = Pieces::new(declared_length(&body, limit)?);
    while let Some(piece) = next_piece(&mut body, account).await? {
        if whole.len() + piece.len() > limit {
            return Err(Problem::too_large(limit));
        }
        whole.add(piece, account)?;
    }
    Ok(whole.take())
}

/// The declared length of a body; the largest number if it has none.
///
/// # Errors
/// `too_large` if it is more than `limit`.
pub(crate) fn declared_length(body: &impl Body, limit: usize) -> Result<usize, Problem> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Problem::too_large(limit));
    }
    Ok(body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX))
}

/// Pieces of a body that become one. Their memory is counted in an account.
pub(crate) struct Pieces {
    /// How many bytes there will be at most.
    most: usize,
    /// The only piece.
    first: Bytes,
    /// All of them, if there are several.
    rest: Vec<u8>,
    /// How many bytes are counted.
    counted: usize,
}

impl Pieces {
    /// No pieces yet of what may have this many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Pieces { most, first: Bytes::new(), rest: Vec::new(), counted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// As [`Account::add`].
    pub(crate) fn add(&mut self, piece: Bytes, account: &mut Account) -> Result<(), Problem> {
        let length = self.len() + piece.len();
        account.add(length.saturating_sub(self.counted))?;
        self.counted = self.counted.max(length);
        if length == piece.len() && self.rest.capacity() == 0 {
            self.first = piece;
            return Ok(());
        }
        if self.rest.capacity() < length {
            // Twice as much as before, but no more than there will be; not at once, as it may never arrive.
            let capacity = self.most.min(2 * self.rest.capacity()).max(length);
            self.rest.reserve_exact(capacity - self.rest.len());
        }
        self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        self.rest.extend_from_slice(&piece);
        Ok(())
    }

    /// Makes room for this many bytes in all, which are counted from now on, though they have not arrived.
    ///
    /// # Errors
    /// As [`Account::add`].
    pub(crate) fn reserve(&mut self, bytes: usize, account: &mut Account) -> Result<(), Problem> {
        account.add(bytes.saturating_sub(self.counted))?;
        self.counted = self.counted.max(bytes);
        self.rest.reserve_exact(bytes.saturating_sub(self.rest.len()));
        Ok(())
    }

    /// Returns the bytes of all pieces, and forgets them.
    pub(crate) fn take(&mut self) -> Bytes {
        self.counted = 0;
        let (first, rest) = (std::mem::take(&mut self.first), std::mem::take(&mut self.rest));
        if rest.is_empty() { first } else { Bytes::from(rest) }
    }
}

/// Waits for the next piece of a body; None at its end. `account` is what the body holds.
pub(crate) async fn next_piece<B>(body: &mut Arriving<B>, account: &mut Account) -> Result<Option<Bytes>, Problem>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    while let Some(frame) = next_frame(body, account).await? {
        if let Ok(piece) = frame.into_data() {
            return Ok(Some(piece)); // trailers mean nothing here
        }
    }
    Ok(None)
}

async fn next_frame<B>(body: &mut Arriving<B>, account: &mut Account) -> Result<Option<Frame<Bytes>>, Problem>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Error>,
{
    poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Pending => {
            let behind_since = body.pace.behind_since().unwrap_or_else(Instant::now);
            if account.wait(behind_since, cx.waker()) { Poll::Ready(Err(short())) } else { Poll::Pending }
        }
        Poll::Ready(_) if account.resume() => Poll::Ready(Err(short())),
        Poll::Ready(frame) => {
            Poll::Ready(frame.transpose().map_err(|broken| Problem::bad_request(&broken.to_string())))
        }
    })
    .await
}

fn short() -> Problem {
    Problem::unavailable("request bodies exceed the gateway's memory for them; retry later")
}
