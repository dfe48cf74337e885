//! Responses while they are sent: what clients have not read is counted, and a stream of HTTP/2 that is not read ends.
//!
//! Over HTTP/1, the guard sees how fast a client reads. Over HTTP/2, a client may read one stream and not another, by its
//! windows. So each stream is a task that is held to the pace of reading, as long as hyper has some of its response, or
//! could have it; and hyper gets responses in slices, so that it is seen how much of them was taken.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderValue, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;

use crate::crowd::{Ending, Member, Open, StreamPlace, Unsent};
use crate::pace::{Pace, Rate};
use crate::problem::Error;

/// What hyper gets at once of a response over HTTP/2.
const SLICE_BYTES: usize = 16 << 10;

/// From this on, what a client of HTTP/2 has not read lets its other streams wait: each of a hundred could have a long answer
/// in memory. An answer that is being made counts as so many bytes.
const MAX_UNREAD_BYTES: usize = 1 << 20;
const EXPECTED_BYTES: usize = 128 << 10;

tokio::task_local! {
    /// The stream of HTTP/2 that is being polled.
    static STREAM: Arc<Progress>;
}

/// The body of an answer.
#[derive(Debug)]
pub enum Answer {
    /// All of it.
    Whole(Bytes),
    /// Parts that arrive while it is sent. After an error, the client sees that the response is not complete.
    Parts(UnsyncBoxBody<Bytes, Error>),
}

impl From<Bytes> for Answer {
    fn from(body: Bytes) -> Self {
        Answer::Whole(body)
    }
}

/// A response whose request is open until it is sent or dropped.
pub(crate) struct Held {
    /// What hyper gets next, and what counts it.
    next: Bytes,
    unsent: Option<Unsent>,
    parts: Option<UnsyncBoxBody<Bytes, Error>>,
    stream: Option<Arc<Progress>>,
    open: Open,
    _place: Option<Arc<StreamPlace>>,
}

impl Held {
    /// A response, whose body is left out if it is one to HEAD.
    pub(crate) fn response(
        response: Response<Answer>,
        is_head: bool,
        open: Open,
        place: Option<Arc<StreamPlace>>,
    ) -> Response<Held> {
        let (mut head, body) = response.into_parts();
        let (mut next, mut parts) = match body {
            Answer::Whole(bytes) => (bytes, None),
            Answer::Parts(parts) => (Bytes::new(), Some(parts)),
        };
        if is_head {
            if !next.is_empty() {
                head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(next.len()));
            }
            (next, parts) = (Bytes::new(), None);
        }
        let unsent = (!next.is_empty()).then(|| open.member().hold(next.len()));
        let stream = STREAM.try_with(Arc::clone).ok();
        if let Some(stream) = &stream {
            stream.end_answer(open.member());
        }
        Response::from_parts(head, Held { next, unsent, parts, stream, open, _place: place })
    }

    fn slice(&mut self) -> Slice {
        let Some(stream) = &self.stream else {
            return Slice { bytes: std::mem::take(&mut self.next), _unsent: self.unsent.take() };
        };
        let size = self.next.len().min(SLICE_BYTES);
        stream.taken.fetch_add(size, Ordering::AcqRel);
        stream.is_offered.store(true, Ordering::Release);
        Slice { bytes: self.next.split_to(size), _unsent: self.unsent.as_mut().map(|unsent| unsent.split(size)) }
    }
}

impl Body for Held {
    type Data = Slice;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slice>, Error>>> {
        let this = &mut *self;
        loop {
            if !this.next.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(this.slice()))));
            }
            let Some(parts) = &mut this.parts else { return Poll::Ready(None) };
            match Pin::new(parts).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers mean nothing here.
                    this.next = frame.into_data().unwrap_or_default();
                    this.unsent = Some(this.open.member().hold(this.next.len()));
                }
                Poll::Ready(Some(Err(error))) => {
                    if this.stream.is_none() {
                        this.open.member().end(Ending::Broken); // otherwise it could look complete
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => this.parts = None,
                Poll::Pending => {
                    if let Some(stream) = &this.stream {
                        stream.is_offered.store(false, Ordering::Release);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty() && self.parts.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.parts {
            None => SizeHint::with_exact(self.next.len() as u64),
            Some(parts) if self.next.is_empty() => parts.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}

/// Bytes of a response, which are counted until hyper has written them.
#[derive(Debug)]
pub(crate) struct Slice {
    bytes: Bytes,
    _unsent: Option<Unsent>,
}

impl Buf for Slice {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// Waits, in a stream of HTTP/2, until another answer to the client of the connection may be made.
///
/// Over HTTP/1, a request begins when the answer before it was read anyway.
pub(crate) async fn room(member: &Member) {
    let Ok(stream) = STREAM.try_with(Arc::clone) else { return };
    if stream.is_making.load(Ordering::Acquire) {
        return;
    }
    if !stream.room.begin(member) {
        Box::pin(stream.room.more(member)).await; // each request would have space for it
    }
    stream.is_making.store(true, Ordering::Release);
}

/// How many answers to a client of HTTP/2 are made.
#[derive(Debug, Default)]
struct Room {
    making: AtomicUsize,
}

impl Room {
    /// Begins to make an answer, if the client may have another one in memory.
    fn begin(&self, member: &Member) -> bool {
        let begin = |making: usize| {
            let expected = member.unsent() + making * EXPECTED_BYTES;
            (expected < MAX_UNREAD_BYTES).then_some(making + 1)
        };
        self.making.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin).is_ok()
    }

    /// The same, once it may.
    async fn more(&self, member: &Member) {
        let _awaited = Awaited::new(member);
        loop {
            let mut less = pin!(member.less_unsent().notified());
            less.as_mut().enable();
            if self.begin(member) {
                member.less_unsent().notify_one(); // there may be room for the next as well
                return;
            }
            less.await;
        }
    }

    /// Notes that an answer is made, and counted by [`Member::hold`], or not needed any more.
    fn end(&self, member: &Member) {
        self.making.fetch_sub(1, Ordering::AcqRel);
        member.less_unsent().notify_one();
    }
}

/// Something that waits for the client of a connection, until it is dropped.
pub(crate) struct Awaited<'a>(&'a Member);

impl<'a> Awaited<'a> {
    pub(crate) fn new(member: &'a Member) -> Self {
        member.await_client(true);
        Self(member)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.await_client(false);
    }
}

/// How far the response of a stream of HTTP/2 is.
#[derive(Debug, Default)]
struct Progress {
    room: Arc<Room>,
    /// Whether it is being made, and counts as [`room`] says.
    is_making: AtomicBool,
    /// Whether hyper has some of it that the client does not take.
    is_offered: AtomicBool,
    /// Bytes that were taken since it was looked at.
    taken: AtomicUsize,
}

impl Progress {
    fn end_answer(&self, member: &Member) {
        if self.is_making.swap(false, Ordering::AcqRel) {
            self.room.end(member);
        }
    }
}

/// Runs the streams of a connection, and ends those whose clients do not read them.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    member: Arc<Member>,
    rate: Rate,
    room: Arc<Room>,
}

impl Streams {
    pub(crate) fn new(member: Arc<Member>, rate: Rate) -> Self {
        Streams { member, rate, room: Arc::default() }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let (member, pace) = (Arc::clone(&self.member), Pace::new(self.rate));
        let progress = Arc::new(Progress { room: Arc::clone(&self.room), ..Progress::default() });
        // Boxed, since the task would have room for it twice.
        let mut stream = Box::pin(STREAM.scope(Arc::clone(&progress), stream));
        tokio::spawn(async move {
            let mut reading = Reading { member, progress, pace, is_awaited: false };
            poll_fn(|cx| match stream.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => reading.poll_overdue(cx),
            })
            .await;
        });
    }
}

/// How a client reads one stream.
struct Reading {
    member: Arc<Member>,
    progress: Arc<Progress>,
    pace: Pace,
    is_awaited: bool,
}

impl Reading {
    /// Ready when the client is too slow.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let taken = self.progress.taken.swap(0, Ordering::AcqRel);
        if taken > 0 {
            self.pace.move_on(taken);
            self.member.note_read();
        }
        let is_offered = self.progress.is_offered.load(Ordering::Acquire);
        self.note(is_offered);
        if !is_offered {
            self.pace.move_on(0);
            return Poll::Pending;
        }
        ready!(self.pace.poll(cx, Duration::MAX));
        self.member.crowd().count(Ending::SlowReader);
        Poll::Ready(()) // hyper resets a stream that is dropped
    }

    fn note(&mut self, is_awaited: bool) {
        if std::mem::replace(&mut self.is_awaited, is_awaited) != is_awaited {
            self.member.await_client(is_awaited);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.note(false);
        self.progress.end_answer(&self.member);
    }
}
