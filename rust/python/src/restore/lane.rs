//! One answer with payloads: its bytes in order, as they come, and the thread that works on them.
//!
//! Any number of lanes are open at once. A thread works on one lane at a time, and no lane has two threads, so the bytes
//! of an answer are parsed, hashed and written in their order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use coregw_core::Cid;
use coregw_ops::car::{PayloadPart, PayloadReader};
use pyo3::pybacked::PyBackedBytes;

use super::batch::{Batch, Files, PlannedPayload, Request};
use super::failure::RestoreFailure;
use super::folders::LastFolder;
use super::lock::locked;
use super::write::{check_size, write, write_identities};
use super::writing::{Job, Writing};

/// Payloads up to this size are collected, and written in one call; longer ones are written as they come,
const COLLECTED_BYTES: u64 = 1 << 20;
/// so many bytes at a time, at least.
const WRITTEN_BYTES: usize = 256 << 10;

/// One answer.
pub(super) struct Lane {
    inbox: Mutex<Inbox>,
    idle: Condvar,
    stream: Mutex<Stream>,
    /// What was requested.
    pub request: Request,
    /// Limit on the size of one payload.
    max_bytes: u64,
}

/// What has come and is not read yet.
#[derive(Default)]
struct Inbox {
    chunks: VecDeque<PyBackedBytes>,
    /// Whether the lane is in the queue for threads, or a thread works on it.
    is_scheduled: bool,
}

/// What is read of the answer.
struct Stream {
    reader: PayloadReader,
    /// The payload that is being collected.
    collected: Vec<u8>,
    last: LastFolder,
}

impl Lane {
    /// A lane for the answer to a request for these payloads.
    pub fn new(request: Request, max_bytes: u64) -> Self {
        let reader = reader(&request, max_bytes);
        let stream = Mutex::new(Stream { reader, collected: Vec::new(), last: LastFolder::default() });
        Self { inbox: Mutex::default(), idle: Condvar::new(), stream, request, max_bytes }
    }

    /// Takes the next bytes of the answer. They are worked on in a thread.
    pub fn push(self: &Arc<Self>, chunks: Vec<PyBackedBytes>, work: &Writing) {
        if work.is_stopped() {
            return;
        }
        work.waiting.fetch_add(chunks.iter().map(|chunk| chunk.len()).sum(), Ordering::Relaxed);
        let mut inbox = locked(&self.inbox);
        inbox.chunks.extend(chunks);
        if !inbox.is_scheduled {
            inbox.is_scheduled = true;
            work.schedule(self.clone());
        }
    }

    /// Forgets what has come: the answer is sent again from its start.
    pub fn restart(&self, work: &Writing) {
        let dropped = std::mem::take(&mut locked(&self.inbox).chunks);
        work.waiting.fetch_sub(dropped.iter().map(|chunk| chunk.len()).sum(), Ordering::Relaxed);
        let mut stream = locked(&self.stream);
        stream.reader = reader(&self.request, self.max_bytes);
        stream.collected.clear();
    }

    /// Waits until all that has come is worked on, and checks that the answer is complete.
    pub fn finish(&self, work: &Writing) -> Result<(), RestoreFailure> {
        let mut inbox = locked(&self.inbox);
        while inbox.is_scheduled {
            inbox = self.idle.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
        drop(inbox);
        if work.is_stopped() { Ok(()) } else { Ok(locked(&self.stream).reader.check_end()?) }
    }
}

impl Job for Lane {
    fn run(&self, work: &Writing) {
        let mut stream = locked(&self.stream);
        loop {
            let mut inbox = locked(&self.inbox);
            let Some(chunk) = inbox.chunks.pop_front() else {
                inbox.is_scheduled = false;
                self.idle.notify_all();
                return;
            };
            drop(inbox);
            if !work.is_stopped() {
                work.attempt(|| stream.read(&self.request, &chunk, work));
            }
            work.taken(chunk.len());
        }
    }
}

fn reader(request: &Request, max_bytes: u64) -> PayloadReader {
    PayloadReader::new(request.payloads().map(PlannedPayload::cid).collect(), max_bytes)
}

impl Stream {
    fn read(&mut self, request: &Request, chunk: &[u8], work: &Writing) -> Result<(), RestoreFailure> {
        let batch = &request.batch;
        let Self { reader, collected, last } = self;
        reader.feed(chunk, |part| {
            let payload = &batch.payloads[request.indices[part.index] as usize];
            if payload.is_done.load(Ordering::Acquire) {
                return Ok(()); // a repeated answer has payloads that the first one had
            }
            take((batch, payload), &part, collected, last, work)
        })
    }
}

fn take(
    (batch, payload): (&Batch, &PlannedPayload),
    part: &PayloadPart<'_>,
    collected: &mut Vec<u8>,
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    if part.start == 0 {
        check_size(batch, payload, part.size, work)?;
    }
    let is_long = part.size > COLLECTED_BYTES;
    if collected.is_empty() && (part.start == 0 && part.is_last || is_long && part.bytes.len() >= WRITTEN_BYTES) {
        return write(batch, payload, (part.start, part.bytes, part.is_last), last, work);
    }
    collected.extend_from_slice(part.bytes);
    if part.is_last || is_long && collected.len() >= WRITTEN_BYTES {
        let start = part.start + part.bytes.len() as u64 - collected.len() as u64;
        write(batch, payload, (start, collected, part.is_last), last, work)?;
        collected.clear();
    }
    Ok(())
}

/// The CIDs of payloads that an answer has left out.
pub(super) fn missing(lane: &Lane) -> Vec<Cid> {
    let missing = lane.request.payloads().filter(|payload| !payload.is_done.load(Ordering::Acquire));
    missing.map(PlannedPayload::cid).collect()
}

/// Makes what needs no payload: folders, and the files that are in their CIDs.
pub(super) fn begin(work: &Writing) -> Result<(), RestoreFailure> {
    let mut files = locked(&work.files);
    if files.open.is_none() { begin_batch(&mut files, work) } else { Ok(()) }
}

/// Makes the folders that were added, and a batch of the files that were added.
fn begin_batch(files: &mut Files, work: &Writing) -> Result<(), RestoreFailure> {
    work.top.make_folders(&mut work.plan_mut())?;
    if files.draft.len() > 0 {
        let batch = files.draft.take();
        write_identities(&batch, work)?;
        files.open = Some((Arc::new(batch), 0));
    }
    Ok(())
}

/// The next payloads to request: of about `bytes` together, at least one. None if all that were added have been.
pub(super) fn next_request(work: &Writing, bytes: u64) -> Result<Option<Request>, RestoreFailure> {
    let mut files = locked(&work.files);
    loop {
        if let Some((batch, next)) = &mut files.open {
            let indices = batch.next_payloads(next, bytes, work.mean_size());
            if !indices.is_empty() {
                return Ok(Some(Request::new(Arc::clone(batch), indices)));
            }
            files.open = None;
        }
        begin_batch(&mut files, work)?;
        if files.open.is_none() {
            return Ok(None);
        }
    }
}
