//! Push parser for the frames of a CAR, in chunks of any size: lengths, the CIDs of blocks, and the hashes of payloads.
//!
//! ```text
//!   ┌──────────────────────────────────────────────────┐
//!   ▼   ┌──► Bytes: a header, a node ──► Frames::bytes ─┤
//! Length                 ▲                              │
//!       └──► Head: the CID ──► Payload ──► Frames::part ┘
//! ```
//!
//! What the frames may be, its [`Frames`] decides. The parser keeps no bytes of payloads, and of the rest only what a
//! chunk has cut.

use coregw_core::cid::{self, Cid};
use coregw_core::payload::Check;
use coregw_core::{Error, Result, varint};

use super::format::split_cid;

/// What is read next.
pub(super) enum Next {
    /// The length of a frame.
    Length,
    /// This many bytes, for [`Frames::bytes`].
    Bytes(usize),
    /// This many bytes, which mean nothing.
    Skipped(u64),
    /// The CID of a block of this length.
    Head(u64),
    /// The bytes of a payload.
    Payload(Payload),
}

/// A payload that is being read.
pub(super) struct Payload {
    check: Box<Check>,
    size: u64,
    done: u64,
}

impl Payload {
    /// A payload of which nothing was read.
    pub(super) fn new(cid: &Cid, size: u64) -> Self {
        Self { check: Box::new(Check::new(cid)), size, done: 0 }
    }
}

/// A part of a payload.
pub(super) struct Part<'a> {
    /// The size of the whole payload.
    pub size: u64,
    /// Where the part starts.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the payload ends with it, and has the hash of its CID.
    pub is_last: bool,
}

/// A position in a CAR.
#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    /// Where the length of the current frame starts.
    pub start: u64,
    /// Where the frame starts, after its length.
    pub body: u64,
    /// Bytes read so far.
    pub at: u64,
}

/// The frames that are expected, and what is done with them.
pub(super) trait Frames<E: From<Error>> {
    /// A frame of this length begins, which is not 0.
    fn frame(&mut self, len: u64, place: Position) -> Result<Next, E>;
    /// The bytes of [`Next::Bytes`].
    fn bytes(&mut self, bytes: &[u8], place: Position) -> Result<Next, E>;
    /// A block begins, with `size` bytes after its CID.
    fn block(&mut self, cid: &Cid, size: u64, place: Position) -> Result<Next, E>;
    /// A part of [`Next::Payload`]. The result applies after the last one.
    fn part(&mut self, part: Part<'_>, place: Position) -> Result<Next, E>;
    /// The error for malformed bytes.
    fn refuse(&self, why: &str, place: Position) -> Error;
}

/// The state between chunks.
pub(super) struct FrameParser {
    next: Next,
    /// The beginning of what is read next, where chunks have cut it.
    buffer: Vec<u8>,
    place: Position,
}

impl FrameParser {
    /// A parser at the start of a CAR.
    pub(super) fn new() -> Self {
        Self { next: Next::Length, buffer: Vec::new(), place: Position::default() }
    }

    /// The position after the bytes so far.
    pub(super) fn place(&self) -> Position {
        self.place
    }

    /// Whether the bytes so far end where a frame may begin.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.next, Next::Length) && self.buffer.is_empty()
    }

    /// The payload of which the bytes so far have a part, but not the end: its CID, and the length of the part.
    pub(super) fn unfinished(&self) -> Option<(&Cid, u64)> {
        match &self.next {
            Next::Payload(payload) => Some((payload.check.cid(), payload.done)),
            _ => None,
        }
    }

    /// Forgets the part of the [unfinished](Self::unfinished) payload: its first byte is read next.
    pub(super) fn restart_unfinished(&mut self) {
        if let Next::Payload(payload) = &mut self.next {
            self.place.at -= payload.done;
            *payload = Payload::new(payload.check.cid(), payload.size);
        }
    }

    /// Forgets all that follows a position: the length of a frame is read next.
    pub(super) fn rewind(&mut self, at: u64) {
        self.next = Next::Length;
        self.buffer.clear();
        self.place.at = at;
    }

    /// Reads the next bytes. O(bytes) hashing. It must not be used after an error, unless it is [rewound](Self::rewind).
    pub(super) fn feed<E: From<Error>>(&mut self, mut bytes: &[u8], frames: &mut impl Frames<E>) -> Result<(), E> {
        while !bytes.is_empty() {
            let used = self.take(bytes, frames)?;
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Reads some of `bytes`, and returns how many: at least one, unless what is read next has none.
    fn take<E: From<Error>>(&mut self, bytes: &[u8], frames: &mut impl Frames<E>) -> Result<usize, E> {
        match &mut self.next {
            Next::Length => self.length(bytes, frames),
            Next::Bytes(len) => {
                let len = *len;
                self.bytes(bytes, len, frames)
            }
            Next::Skipped(left) => {
                let used = up_to(bytes, *left).len();
                *left -= used as u64;
                self.place.at += used as u64;
                if *left == 0 {
                    self.next = Next::Length;
                }
                Ok(used)
            }
            Next::Head(len) => {
                let len = *len;
                self.head(bytes, len, frames)
            }
            Next::Payload(_) => self.payload(bytes, frames),
        }
    }

    fn length<E: From<Error>>(&mut self, bytes: &[u8], frames: &mut impl Frames<E>) -> Result<usize, E> {
        if self.buffer.is_empty() {
            self.place.start = self.place.at;
        }
        self.buffer.push(bytes[0]);
        self.place.at += 1;
        if bytes[0] < 0x80 || self.buffer.len() == varint::MAX_LEN {
            let (len, _) =
                varint::read(&self.buffer).map_err(|why| self.refuse(frames, &format!("its length: {why}")))?;
            self.buffer.clear();
            self.place.body = self.place.at;
            if len == 0 {
                return Err(self.refuse(frames, "it has no bytes").into());
            }
            self.next = frames.frame(len, self.place)?;
        }
        Ok(1)
    }

    fn bytes<E: From<Error>>(&mut self, bytes: &[u8], len: usize, frames: &mut impl Frames<E>) -> Result<usize, E> {
        let bytes = &bytes[..bytes.len().min(len - self.buffer.len())];
        self.place.at += bytes.len() as u64;
        if bytes.len() == len {
            self.next = frames.bytes(bytes, self.place)?;
            return Ok(len);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() == len {
            self.next = frames.bytes(&self.buffer, self.place)?;
            self.buffer.clear();
        }
        Ok(bytes.len())
    }

    fn head<E: From<Error>>(&mut self, bytes: &[u8], len: u64, frames: &mut impl Frames<E>) -> Result<usize, E> {
        let all = len.min(cid::MAX_LEN as u64) as usize;
        let bytes = &bytes[..bytes.len().min(all - self.buffer.len())];
        if self.buffer.is_empty()
            && let Ok((cid, named)) = split_cid(bytes)
        {
            self.begin(&cid, named, len, frames)?;
            return Ok(named);
        }
        self.buffer.extend_from_slice(bytes);
        self.place.at += bytes.len() as u64;
        if self.buffer.len() == all {
            let head = std::mem::take(&mut self.buffer);
            let (cid, named) = split_cid(&head).map_err(|why| self.refuse(frames, &format!("its CID: {why}")))?;
            self.place.at = self.place.body;
            self.begin(&cid, named, len, frames)?;
            self.feed(&head[named..], frames)?;
        }
        Ok(bytes.len())
    }

    /// Begins a block of which the CID was read, with so many bytes.
    fn begin<E: From<Error>>(
        &mut self,
        cid: &Cid,
        named: usize,
        len: u64,
        frames: &mut impl Frames<E>,
    ) -> Result<(), E> {
        self.place.at += named as u64;
        let size = len - named as u64;
        self.next = frames.block(cid, size, self.place)?;
        if size == 0 {
            self.take(&[], frames)?;
        }
        Ok(())
    }

    fn payload<E: From<Error>>(&mut self, bytes: &[u8], frames: &mut impl Frames<E>) -> Result<usize, E> {
        let Next::Payload(Payload { mut check, size, done: start }) = std::mem::replace(&mut self.next, Next::Length)
        else {
            return Ok(0);
        };
        let bytes = up_to(bytes, size - start);
        let done = start + bytes.len() as u64;
        let is_last = done == size;
        self.place.at += bytes.len() as u64;
        check.update(bytes);
        if is_last {
            let cid = *check.cid();
            if !check.is_match() {
                return Err(self.refuse(frames, &format!("{cid}: its bytes have another hash")).into());
            }
        } else {
            self.next = Next::Payload(Payload { check, size, done });
        }
        let next = frames.part(Part { size, start, bytes, is_last }, self.place)?;
        if is_last {
            self.next = next;
        }
        Ok(bytes.len())
    }

    fn refuse<E: From<Error>>(&self, frames: &impl Frames<E>, why: &str) -> Error {
        frames.refuse(why, self.place)
    }
}

/// The first bytes, as far as there are so many.
fn up_to(bytes: &[u8], len: u64) -> &[u8] {
    &bytes[..bytes.len().min(usize::try_from(len).unwrap_or(usize::MAX))]
}
