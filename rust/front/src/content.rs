//! What a URL names and never changes: the whole of it or a part, if the client does not have it (RFC 9110 sections 13, 14);
//! and how what is long is sent in parts.
//!
//! While a part is sent, the next one is read, if clients have not much unread:
//!
//! ```text
//! store     | part 1 | part 2 |         | part 3 |
//! socket             | ──── part 1 ──── | ──── part 2 ────
//! ```

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE,
    RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use crate::conditions::{Precondition, Selection, evaluate, select};
use crate::driver::Driver;
use crate::problem::{Error, Problem};
use crate::reads::{Failure, HeldPayload, Multihash, Reply};
use crate::server::Answer;

/// The Cache-Control of answers that never change.
pub(crate) const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The largest part that is read at once: of a payload, what stores keep together.
const CHUNK_BYTES: u64 = 1 << 20;
/// Parts that are read at once for all clients, besides those that are read ahead.
const MAX_CHUNK_READS: usize = 16;
/// If clients have not read this much of parts, less is read for each, and nothing ahead: what waits for slow ones stays in
/// the store.
const MANY_UNREAD_BYTES: usize = 32 << 20;
const PIECE_BYTES: u64 = 256 << 10;

/// The values of a field, joined with commas.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
    let mut values = headers.get_all(name).iter();
    let mut joined = Cow::Borrowed(values.next()?.as_bytes());
    for value in values {
        let all = joined.to_mut();
        all.extend_from_slice(b", ");
        all.extend_from_slice(value.as_bytes());
    }
    Some(joined)
}

/// Bytes that are named by their content, or where they are.
pub(crate) enum Content {
    Bytes(Bytes),
    Payload(Multihash, u64),
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Payload(_, size) => *size,
        }
    }
}

/// The answer if the preconditions of a request are not met: 304. `fields` are those of a 304.
///
/// # Errors
/// `precondition_failed` if the client wants something else.
pub(crate) fn unmet(headers: &HeaderMap, etag: &str, fields: &HeaderMap) -> Result<Option<Response<Answer>>, Problem> {
    let (if_match, if_none_match) = (field(headers, &IF_MATCH), field(headers, &IF_NONE_MATCH));
    if if_match.is_none() && if_none_match.is_none() {
        return Ok(None);
    }
    match evaluate(etag.as_bytes(), if_match.as_deref(), if_none_match.as_deref()) {
        Precondition::Met => Ok(None),
        Precondition::NotModified => {
            let mut response = Response::new(Answer::from(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().clone_from(fields);
            Ok(Some(response))
        }
        Precondition::Failed => {
            Err(Problem::new("precondition_failed", format!("If-Match does not name the ETag {etag}")))
        }
    }
}

/// The value of a field.
pub(crate) fn field_value(text: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(text).map_err(|_| Problem::internal())
}

/// Sends what is named by its content.
pub(crate) struct Sender {
    pub(crate) driver: Arc<Driver>,
    pub(crate) chunks: Arc<Chunks>,
    small: Cache<Multihash, SmallPayload, ByBytes>,
}

/// What is sent in parts, which are requested of the store in order.
pub(crate) trait PartSource: Send + 'static {
    /// A part that was requested.
    type Begun: Send;

    /// Requests the next part, of about `most` bytes at most; None after the last one.
    fn begin(&mut self, most: u64) -> Option<Self::Begun>;

    /// Waits for a part. After a failure the answer ends, and the client sees that it is not complete.
    fn finish(&mut self, begun: Self::Begun) -> impl Future<Output = Result<Bytes, Problem>> + Send;
}

/// Reads of parts, and what clients have not read of them.
pub(crate) struct Chunks {
    pub(crate) driver: Arc<Driver>,
    turns: Semaphore,
    unread: AtomicUsize,
}

/// A part of a payload that was requested.
pub(crate) struct Chunk {
    reply: Reply<Bytes>,
    size: usize,
    count: UnreadCount,
}

/// A part of a payload, which is sent in parts.
struct PayloadRange {
    chunks: Arc<Chunks>,
    name: Multihash,
    range: Range<u64>,
}

/// An answer that is being sent.
struct Sending<S: PartSource> {
    chunks: Arc<Chunks>,
    source: S,
    first: Option<Bytes>,
    ahead: Option<S::Begun>,
}

/// A part that is counted until it is sent.
struct Unread {
    bytes: Bytes,
    _count: UnreadCount,
}

/// Bytes that are read, or were and are not sent.
pub(crate) struct UnreadCount {
    chunks: Arc<Chunks>,
    size: usize,
}

/// A small payload, held as of a generation of the cache of pages.
#[derive(Clone)]
struct SmallPayload {
    generation: u64,
    bytes: Bytes,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Multihash, SmallPayload> for ByBytes {
    fn weight(&self, name: &Multihash, payload: &SmallPayload) -> u64 {
        (2 * size_of::<Multihash>() + 2 * name.len() + size_of::<SmallPayload>() + payload.bytes.len()) as u64
    }
}

impl Sender {
    /// A sender that keeps small payloads of at most `cache_bytes`.
    pub(crate) fn new(driver: Arc<Driver>, cache_bytes: u64) -> Self {
        let small = Cache::with_weighter(1024, cache_bytes, ByBytes);
        let (turns, unread) = (Semaphore::new(MAX_CHUNK_READS), AtomicUsize::new(0));
        let chunks = Arc::new(Chunks { driver: Arc::clone(&driver), turns, unread });
        Self { driver, chunks, small }
    }

    /// Finds a payload; None if it is not held.
    pub(crate) async fn find(&self, name: &[u8]) -> Result<Option<Content>, Problem> {
        let generation = self.driver.cache.generation();
        if let Some(known) = self.small.get(name)
            && known.generation == generation
        {
            return Ok(Some(Content::Bytes(known.bytes)));
        }
        let name = name.to_vec();
        let reply = self.driver.reads.payloads(vec![name.clone()]);
        let found = self.driver.in_time(async { reply.found().await.map_err(Problem::of_failure) }).await?;
        Ok(match found.into_iter().next().flatten() {
            None => None,
            Some(HeldPayload { bytes: Some(bytes), .. }) => {
                self.small.insert(name, SmallPayload { generation, bytes: bytes.clone() });
                Some(Content::Bytes(bytes))
            }
            Some(HeldPayload { size, bytes: None }) => Some(Content::Payload(name, size)),
        })
    }

    /// The answer to a GET or HEAD: everything, one range, 304; of HEAD without a body, and whatever Range says.
    ///
    /// # Errors
    /// `precondition_failed`, `range_not_satisfiable`, and those of reading.
    pub(crate) async fn answer(
        &self,
        headers: &HeaderMap,
        is_head: bool,
        content: Content,
        etag: &str,
    ) -> Result<Response<Answer>, Problem> {
        let size = content.size();
        let mut fields = HeaderMap::new();
        fields.insert(ETAG, field_value(etag)?);
        fields.insert(CACHE_CONTROL, IMMUTABLE);
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(response) = unmet(headers, etag, &fields)? {
            return Ok(response);
        }
        let selected = match field(headers, &RANGE).filter(|_| !is_head) {
            None => Selection::Whole,
            range => select(range.as_deref(), field(headers, &IF_RANGE).as_deref(), etag.as_bytes(), size),
        };
        let (status, range) = match selected {
            Selection::Whole => (StatusCode::OK, 0..size),
            Selection::Part(range) => {
                let shown = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                fields.insert(CONTENT_RANGE, field_value(&shown)?);
                (StatusCode::PARTIAL_CONTENT, range)
            }
            Selection::Unsatisfiable => {
                let problem = Problem::new("range_not_satisfiable", format!("the payload has {size} bytes"));
                return Err(problem.with(CONTENT_RANGE, field_value(&format!("bytes */{size}"))?));
            }
        };
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        fields.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        let body = if is_head { Answer::from(Bytes::new()) } else { self.read(content, range).await? };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        Ok(response)
    }

    /// A part of what is named: at once if it fits in a chunk and few are unread, else bit by bit as the client reads it.
    async fn read(&self, content: Content, range: Range<u64>) -> Result<Answer, Problem> {
        let (name, range) = match content {
            Content::Bytes(bytes) => return Ok(Answer::from(bytes.slice(range.start as usize..range.end as usize))),
            Content::Payload(name, _) => (name, range),
        };
        let is_one_chunk = range.end - range.start <= CHUNK_BYTES;
        let mut source = PayloadRange { chunks: Arc::clone(&self.chunks), name, range };
        let first = if is_one_chunk { self.chunks.next(&mut source).await? } else { None };
        match first {
            Some(whole) if source.range.is_empty() => Ok(Answer::from(whole)),
            first => Ok(self.chunks.send(first, source)),
        }
    }
}

impl PartSource for PayloadRange {
    type Begun = Chunk;

    fn begin(&mut self, most: u64) -> Option<Chunk> {
        let part = first_of(&mut self.range, most)?;
        Some(self.chunks.begin(&self.name, part))
    }

    async fn finish(&mut self, begun: Chunk) -> Result<Bytes, Problem> {
        begun.found().await.map_err(Problem::of_failure)
    }
}

/// Takes the first part of a range of a payload, up to a multiple of `most`, so that it is one of what stores keep together.
pub(crate) fn first_of(range: &mut Range<u64>, most: u64) -> Option<Range<u64>> {
    let part = range.start..range.end.min((range.start / most + 1) * most);
    range.start = part.end;
    (!part.is_empty()).then_some(part)
}

impl Chunks {
    /// Sends what a source has after `first`, as the client reads it.
    pub(crate) fn send(self: &Arc<Self>, first: Option<Bytes>, source: impl PartSource) -> Answer {
        let sending = Sending { chunks: Arc::clone(self), source, first, ahead: None };
        let parts = futures_util::stream::unfold(Some(sending), |sending| async {
            let mut sending = sending?;
            match sending.next().await.transpose()? {
                Ok(part) => Some((Ok(Frame::data(part)), Some(sending))),
                Err(problem) => Some((Err(Error::from(problem.logged.unwrap_or(problem.message))), None)),
            }
        });
        Answer::Parts(StreamBody::new(parts).boxed_unsync())
    }

    /// Requests a part of a payload.
    pub(crate) fn begin(self: &Arc<Self>, name: &[u8], range: Range<u64>) -> Chunk {
        let size = (range.end - range.start) as usize;
        Chunk { size, count: self.count(size), reply: self.driver.reads.chunk(name.to_vec(), range) }
    }

    /// Counts bytes from when they are requested.
    pub(crate) fn count(self: &Arc<Self>, size: usize) -> UnreadCount {
        self.unread.fetch_add(size, Ordering::Relaxed);
        UnreadCount { chunks: Arc::clone(self), size }
    }

    fn is_much_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) >= MANY_UNREAD_BYTES
    }

    /// Reads the next part of a source, in turn.
    async fn next<S: PartSource>(&self, source: &mut S) -> Result<Option<Bytes>, Problem> {
        let reading = async {
            let _turn = self.turns.acquire().await.map_err(|_| Problem::internal())?;
            let most = if self.is_much_unread() { PIECE_BYTES } else { CHUNK_BYTES };
            match source.begin(most) {
                Some(begun) => source.finish(begun).await.map(Some),
                None => Ok(None),
            }
        };
        self.driver.in_time(reading).await
    }
}

impl<S: PartSource> Sending<S> {
    /// The next part; None after the last one. Requests the one after it.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let next = match (self.first.take(), self.ahead.take()) {
            (None, Some(begun)) => Some(self.chunks.driver.in_time(self.source.finish(begun)).await?),
            (None, None) => self.chunks.next(&mut self.source).await?,
            (first, _) => first,
        };
        if next.is_some() && !self.chunks.is_much_unread() {
            self.ahead = self.source.begin(CHUNK_BYTES);
        }
        Ok(next)
    }
}

impl Chunk {
    /// How many bytes it should have.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Waits for it.
    pub(crate) async fn found(self) -> Result<Bytes, Failure> {
        let bytes = self.reply.found().await?;
        if bytes.len() != self.size {
            return Err(Failure::Damaged("a part of a payload has the wrong size".to_owned()));
        }
        Ok(self.count.until_sent(bytes))
    }
}

impl UnreadCount {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Counts these bytes until they are sent.
    pub(crate) fn until_sent(mut self, bytes: Bytes) -> Bytes {
        self.chunks.unread.fetch_add(bytes.len(), Ordering::Relaxed);
        self.chunks.unread.fetch_sub(std::mem::replace(&mut self.size, bytes.len()), Ordering::Relaxed);
        Bytes::from_owner(Unread { bytes, _count: self })
    }
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnreadCount {
    fn drop(&mut self) {
        self.chunks.unread.fetch_sub(self.size, Ordering::Relaxed);
    }
}
