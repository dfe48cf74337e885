//! What an upload sends: payloads in batches, as the frames of a CAR, and the arcs of a folder's maps as lines.

use coregw_core::{Cid, Key, Result, varint};
use coregw_ops::{car, json};

use crate::hashed::{Hashed, Recorded};
use crate::join::{ATTRIBUTES_PATH, RESERVED_NAME};

/// A batch is full with so many bytes,
const BATCH_BYTES: usize = 4 << 20;
/// or with so many payloads: as many as a gateway takes in one question, and imports from memory.
pub const BATCH_PAYLOADS: usize = 16_384;
/// The length of a CID of a payload with a hash of 32 bytes, and a codec of one byte.
const CID_BYTES: usize = 36;

/// Payloads that are collected.
#[derive(Default)]
pub struct Draft {
    /// Their CIDs, one after the other.
    cids: Vec<u8>,
    /// The frame of each: length, CID, bytes.
    frames: Vec<u8>,
    /// Where each frame starts.
    starts: Vec<u32>,
}

impl Draft {
    pub(crate) fn push(&mut self, cid: &Cid, bytes: &[u8]) {
        if self.frames.capacity() == 0 {
            self.frames.reserve(BATCH_BYTES + BATCH_BYTES / 8);
        }
        self.cids.extend_from_slice(cid.as_bytes());
        self.starts.push(self.frames.len() as u32);
        self.frames.extend_from_slice(&car::block_head(cid, bytes.len() as u64));
        self.frames.extend_from_slice(bytes);
    }

    /// Whether there are no payloads.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= BATCH_BYTES || self.starts.len() >= BATCH_PAYLOADS
    }

    /// The number of payloads.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The binary CIDs of the payloads, one after the other.
    pub fn cids(&self) -> &[u8] {
        &self.cids
    }

    /// The digests of the payloads.
    pub fn digests(&self) -> impl Iterator<Item = [u8; 32]> {
        self.cids.chunks_exact(CID_BYTES).filter_map(|cid| cid.last_chunk().copied())
    }

    /// The frame of each payload.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).map(|&start| start as usize).chain([self.frames.len()]);
        self.starts.iter().zip(ends).map(|(&start, end)| &self.frames[start as usize..end])
    }

    /// The length of the payload in a frame.
    pub fn payload_len(frame: &[u8]) -> u64 {
        varint::read(frame).map_or(0, |(len, _)| len - CID_BYTES as u64)
    }

    /// Frees the memory of the frames; the CIDs stay.
    pub fn free_frames(&mut self) {
        (self.frames, self.starts) = (Vec::new(), Vec::new());
    }
}

/// Entries between two looks at how much was written.
const ENTRIES_AT_ONCE: usize = 64;

/// Which map's arcs are written.
pub enum LinesOf {
    /// The folder's map, and the root of its map of attributes.
    Files(Option<Cid>),
    /// The map of attributes.
    Records(Recorded),
}

/// The arcs of a folder's map in chunks of lines, the body of `POST /v1/roots`.
pub struct MapLines {
    which: LinesOf,
    has_begun: bool,
    next: usize,
    size: usize,
}

impl MapLines {
    /// All lines, in chunks of about `size` bytes.
    pub fn new(which: LinesOf, size: usize) -> Self {
        Self { which, has_begun: false, next: 0, size }
    }

    /// The next chunk; empty at the end. O(bytes).
    ///
    /// # Errors
    /// [`coregw_core::Error::Input`] if a record is too long.
    pub fn next(&mut self, hashed: &Hashed) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.size + (16 << 10));
        if !std::mem::replace(&mut self.has_begun, true) {
            let (path, target) = match self.which {
                LinesOf::Files(attributes) => (ATTRIBUTES_PATH, attributes),
                LinesOf::Records(recorded) => (RESERVED_NAME, hashed.top_record(recorded)?.map(|record| record.target)),
            };
            if let Some(target) = target {
                json::write_line(Key::from_text(path)?.as_bytes(), target.as_bytes(), &mut out)?;
            }
        }
        let count = hashed.survey.entries.count();
        while self.next < count && out.len() < self.size {
            for index in self.next..count.min(self.next + ENTRIES_AT_ONCE) {
                let target = match self.which {
                    LinesOf::Files(_) => hashed.targets.get(index),
                    LinesOf::Records(recorded) => hashed.record(index, recorded)?.map(|record| record.target),
                };
                if let Some(target) = target {
                    json::write_line(hashed.survey.key(index)?.as_bytes(), target.as_bytes(), &mut out)?;
                }
            }
            self.next += ENTRIES_AT_ONCE;
        }
        Ok(out)
    }
}
