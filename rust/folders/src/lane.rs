//! The answers to one request for payloads: their bytes in order, as they come, and the thread that works on them.
//!
//! An answer that is truncated is followed by another, with those payloads that are not complete.
//!
//! Any number of lanes are open at once. A thread works on one lane at a time, and no lane has two threads, so the bytes
//! of an answer are parsed, hashed and written in their order.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use coregw_core::{Cid, Error, InputCode};
use coregw_ops::car::{PayloadPart, PayloadReader};

use crate::parallel::locked;
use crate::plan::{Batch, Files, PlannedPayload, Request};
use crate::top::{LastFolder, RestoreFailure};
use crate::writer::{Job, Writing};

/// Payloads up to this size are collected, and written in one call; longer ones are written as they come,
const COLLECTED_BYTES: u64 = 1 << 20;
/// so many bytes at a time, at least.
const WRITTEN_BYTES: usize = 256 << 10;

/// Bytes of an answer, wherever they are held.
pub type Received = Box<dyn AsRef<[u8]> + Send + Sync>;

/// The answers to one request.
pub struct Lane {
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
    chunks: VecDeque<Received>,
    /// Whether the lane is in the queue for threads, or a thread works on it.
    is_scheduled: bool,
}

/// What is read of the answers.
struct Stream {
    /// Which of the requested payloads the answer may have.
    asked: Vec<u32>,
    reader: PayloadReader,
    /// The payload that is being collected.
    collected: Vec<u8>,
    last: LastFolder,
    /// Bytes of complete payloads.
    completed: u64,
    /// Whether an earlier answer may have left bytes in the files.
    is_repeated: bool,
}

impl Lane {
    /// A lane for the answer to a request for these payloads.
    pub fn new(request: Request, max_bytes: u64) -> Self {
        let asked: Vec<u32> = (0..).take(request.indices.len()).collect();
        let stream = Mutex::new(Stream {
            reader: reader(&request, &asked, max_bytes),
            asked,
            collected: Vec::new(),
            last: LastFolder::default(),
            completed: 0,
            is_repeated: false,
        });
        Self { inbox: Mutex::default(), idle: Condvar::new(), stream, request, max_bytes }
    }

    /// The payloads that the next answer may have, in this order.
    pub fn asked(&self) -> Vec<&PlannedPayload> {
        let asked = &locked(&self.stream).asked;
        asked.iter().map(|&index| self.request.payload(index as usize)).collect()
    }

    /// Takes the next bytes of the answer. They are worked on in a thread.
    pub fn push(self: &Arc<Self>, chunks: Vec<Received>, work: &Writing) {
        if work.is_stopped() {
            return;
        }
        work.waiting.fetch_add(chunks.iter().map(|chunk| (**chunk).as_ref().len()).sum(), Ordering::Relaxed);
        let mut inbox = locked(&self.inbox);
        inbox.chunks.extend(chunks);
        if !inbox.is_scheduled {
            inbox.is_scheduled = true;
            work.schedule(self.clone());
        }
    }

    /// Bytes of complete payloads, which no other answer needs to have.
    pub fn received(&self) -> u64 {
        self.wait();
        locked(&self.stream).completed
    }

    /// Keeps the payloads that are complete: an answer with the others is next.
    pub fn restart(&self) {
        self.wait();
        let mut stream = locked(&self.stream);
        stream.is_repeated |= stream.reader.is_in_payload();
        let is_missing = |&index: &u32| !self.request.payload(index as usize).is_done.load(Ordering::Acquire);
        stream.asked = (0..).take(self.request.indices.len()).filter(is_missing).collect();
        stream.reader = reader(&self.request, &stream.asked, self.max_bytes);
        stream.collected.clear();
    }

    /// Waits until all that has come is worked on, and checks that the answer is complete.
    pub fn finish(&self, work: &Writing) -> Result<(), RestoreFailure> {
        self.wait();
        let mut stream = locked(&self.stream);
        if stream.collected.is_empty() && stream.collected.capacity() > 0 {
            work.keep_buffer(std::mem::take(&mut stream.collected));
        }
        let needs_no_answer = stream.asked.is_empty();
        if work.is_stopped() || needs_no_answer { Ok(()) } else { Ok(stream.reader.check_end()?) }
    }

    /// Waits until all that has come is worked on.
    fn wait(&self) {
        let mut inbox = locked(&self.inbox);
        while inbox.is_scheduled {
            inbox = self.idle.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Job for Lane {
    fn run(&self, work: &Writing) {
        let mut stream = locked(&self.stream);
        if stream.collected.capacity() == 0 {
            stream.collected = work.take_buffer();
        }
        loop {
            let mut inbox = locked(&self.inbox);
            let Some(chunk) = inbox.chunks.pop_front() else {
                inbox.is_scheduled = false;
                self.idle.notify_all();
                return;
            };
            drop(inbox);
            let bytes = (*chunk).as_ref();
            if !work.is_stopped() {
                work.attempt(|| stream.read(&self.request, bytes, work));
            }
            work.taken(bytes.len());
        }
    }
}

fn reader(request: &Request, asked: &[u32], max_bytes: u64) -> PayloadReader {
    PayloadReader::new(asked.iter().map(|&index| request.payload(index as usize).cid()).collect(), max_bytes)
}

impl Stream {
    fn read(&mut self, request: &Request, chunk: &[u8], work: &Writing) -> Result<(), RestoreFailure> {
        let batch = &request.batch;
        let Self { asked, reader, collected, last, completed, is_repeated, .. } = self;
        reader.feed(chunk, |part| {
            let payload = request.payload(asked[part.index] as usize);
            if part.is_last {
                *completed += part.size;
            }
            if payload.is_done.load(Ordering::Acquire) {
                return Ok(()); // it was in a file already
            }
            if part.start == 0 && *is_repeated {
                shorten(batch, payload, last, work)?;
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
        work.count_unknown(batch, payload, part.size)?;
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
pub fn missing(lane: &Lane) -> Vec<Cid> {
    let missing = lane.request.payloads().filter(|payload| !payload.is_done.load(Ordering::Acquire));
    missing.map(PlannedPayload::cid).collect()
}

/// Makes what needs no payload: folders, and the files that are in their CIDs.
pub fn begin(work: &Writing) -> Result<(), RestoreFailure> {
    let mut files = locked(&work.files);
    if files.open.is_none() { begin_batch(&mut files, work) } else { Ok(()) }
}

/// Makes the folders that were added, and a batch of the files that were added.
fn begin_batch(files: &mut Files, work: &Writing) -> Result<(), RestoreFailure> {
    work.top.make_folders(&mut work.plan_mut(), &|| work.is_stopped())?;
    if files.draft.count() > 0 {
        let batch = files.draft.take();
        write_identities(&batch, work)?;
        files.open = Some((Arc::new(batch), 0));
    }
    Ok(())
}

/// The next payloads to request: of about `bytes` together, at least one. None if all that were added have been.
pub fn next_request(work: &Writing, bytes: u64) -> Result<Option<Request>, RestoreFailure> {
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

/// Writes a part of a payload to all places where it belongs, unless the work is stopped. After the last part the payload
/// is verified.
pub fn write(
    batch: &Batch,
    payload: &PlannedPayload,
    (start, bytes, is_last): (u64, &[u8], bool),
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    for place in &payload.places {
        // A list that repeats an element has any number of them.
        if work.is_stopped() {
            return Ok(());
        }
        let file = &batch.files[place.file as usize];
        let opened = work.top.open_file(&work.plan(), file, last)?;
        opened
            .write_all_at(bytes, place.offset + start)
            .map_err(|error| RestoreFailure::os(&error, &work.plan().path(file.folder, &file.name)))?;
        work.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if is_last && file.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let state = work.top.finish_file(&work.plan(), file, opened, last)?;
            work.note(file, state, payload);
        } else {
            work.top.keep_open(file, opened);
        }
    }
    if is_last {
        payload.is_done.store(true, Ordering::Release);
        work.received.fetch_add(start + bytes.len() as u64, Ordering::Relaxed);
        work.payloads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Removes what an answer that was truncated may have left in files beyond a payload's true end, which is not known.
pub fn shorten(
    batch: &Batch,
    payload: &PlannedPayload,
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    for place in payload.places.iter().filter(|place| place.size.is_none()) {
        if work.is_stopped() {
            return Ok(());
        }
        let file = &batch.files[place.file as usize];
        if locked(&file.created).is_some() {
            let opened = work.top.open_file(&work.plan(), file, last)?;
            opened
                .set_len(place.offset)
                .map_err(|error| RestoreFailure::os(&error, &work.plan().path(file.folder, &file.name)))?;
        }
    }
    Ok(())
}

/// Checks that a payload is as long as its file says.
pub fn check_size(batch: &Batch, payload: &PlannedPayload, size: u64, work: &Writing) -> Result<(), RestoreFailure> {
    match payload.places.iter().find(|place| place.size.is_some_and(|expected| expected != size)) {
        None => Ok(()),
        Some(place) => {
            let file = &batch.files[place.file as usize];
            let (path, cid) = (work.plan().path(file.folder, &file.name), payload.cid());
            let (offset, expected) = (place.offset, place.size.unwrap_or(0));
            let what = format!("{path}: at byte {offset} are {expected} bytes, but the payload {cid} has {size}");
            Err(RestoreFailure::Core(Error::input(InputCode::KindMismatch, what.escape_debug().to_string())))
        }
    }
}

/// Writes the payloads that are in their CIDs.
pub fn write_identities(batch: &Batch, work: &Writing) -> Result<(), RestoreFailure> {
    let mut last = LastFolder::default();
    for payload in &batch.payloads {
        if let Some(bytes) = payload.cid().identity() {
            check_size(batch, payload, bytes.len() as u64, work)?;
            work.count_unknown(batch, payload, bytes.len() as u64)?;
            write(batch, payload, (0, bytes, true), &mut last, work)?;
        }
    }
    Ok(())
}
