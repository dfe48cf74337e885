//! One visit of the store: what is read, what was found, and the replies to those who wait.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use coregw_core::{Digest, Error, Page, RootCid};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Payloads up to this size are read with their size, in bytes.
pub const SMALL_PAYLOAD_BYTES: u64 = 64 << 10;

/// A payload's name in the store: its binary multihash.
pub type Multihash = Vec<u8>;

/// What one visit of the store is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// What [`Reads::supply`](crate::reads::Reads::supply) is told.
    pub id: u64,
    /// Pages.
    pub pages: Vec<Digest>,
    /// Root records.
    pub roots: Vec<RootCid>,
    /// Top pages of maps, and keys: the inner pages on the paths to them are read early, if the store has guides.
    pub descents: Vec<(Digest, Vec<Vec<u8>>)>,
    /// Payloads: their sizes, and the bytes of those of at most [`SMALL_PAYLOAD_BYTES`].
    pub payloads: Vec<Multihash>,
    /// Payloads of which only the sizes are wanted.
    pub sizes: Vec<Multihash>,
    /// Parts of payloads.
    pub chunks: Vec<(Multihash, Range<u64>)>,
}

/// What a visit has found, each list in the order of the batch.
#[derive(Debug, Default)]
pub struct Found {
    /// Pages, None for one that is not stored.
    pub pages: Vec<Option<Vec<u8>>>,
    /// Roots: None for one that is not held, `Some(false)` for one that has lost pages.
    pub roots: Vec<Option<bool>>,
    /// Pages on the paths to the keys of `descents`, in any order; none if they could not be read.
    pub early: Vec<(Digest, Vec<u8>)>,
    /// Payloads.
    pub payloads: Vec<Option<(u64, Option<Vec<u8>>)>>,
    /// The sizes of payloads, None for one that is not held.
    pub sizes: Vec<Option<u64>>,
    /// Parts of payloads.
    pub chunks: Vec<Vec<u8>>,
}

/// Why a visit has found nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The store does not answer, or is closed: all requests of the batch learn that.
    Unavailable(String),
    /// The store has no room.
    Full(String),
    /// Something stored is damaged.
    Damaged(String),
    /// A payload is not held any more.
    NotFound(String),
    /// A failure that the caller has logged.
    Internal,
}

/// A page as it was found.
#[derive(Debug, Clone)]
pub enum FoundPage {
    /// The store does not have it.
    Missing,
    /// As it is stored, unchecked.
    Bytes(Bytes),
    /// Checked and parsed, or damaged.
    Parsed(Result<Arc<Page>, Error>),
}

/// A payload that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPayload {
    /// Its size, in bytes.
    pub size: u64,
    /// Its bytes, if there are at most [`SMALL_PAYLOAD_BYTES`].
    pub bytes: Option<Bytes>,
}

pub(crate) type ReplyTo<T> = oneshot::Sender<Result<T, Failure>>;

/// What was requested, and where it is sent.
pub(crate) fn reply<T>() -> (ReplyTo<T>, Reply<T>) {
    let (to, from) = oneshot::channel();
    (to, Reply(from))
}

/// What was requested. Dropped requests are not read.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Receiver<Result<T, Failure>>);

impl<T> Reply<T> {
    /// Waits for what was found.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn found(self) -> Result<T, Failure> {
        self.0.await.unwrap_or_else(|_| Err(closed()))
    }
}

/// The runtime whose tasks wait for replies.
///
/// Replies that are sent there let many tasks run at once. Each one that another thread sends wakes a thread of the
/// runtime, which may then run in turns with the sender.
#[derive(Default)]
pub(crate) struct Home(OnceLock<Handle>);

impl Home {
    /// Notes the runtime of the caller, if it is the first one.
    pub(crate) fn note(&self) {
        if self.0.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            let _ = self.0.set(runtime); // another thread was first
        }
    }

    /// Sends replies from within the runtime; without one, at once.
    pub(crate) fn send(&self, replies: impl FnOnce() + Send + 'static) {
        match self.0.get() {
            Some(runtime) => drop(runtime.spawn(async move { replies() })),
            None => replies(),
        }
    }
}

pub(crate) fn closed() -> Failure {
    Failure::Unavailable("the store is closed".to_owned())
}
