//! Files to write, and the payloads that they consist of. What is added before any of it is requested makes one batch.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use core::{Cid, Error, InputCode, Result};
use coregw_core as core;

use super::attributes::{Attributes, FileStat};
use super::plan::{Placement, count};

/// The most payloads that one request may name.
const MAX_PAYLOADS: usize = 4096;

/// The longest file: offsets in it are signed.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// A file, and how far it is.
pub(super) struct File {
    /// Unique among all files of a writer.
    pub number: u32,
    pub folder: u32,
    pub name: CString,
    pub attributes: Attributes,
    pub placement: Placement,
    /// The root of a list; none for a file that is one payload.
    pub list: Option<Box<[u8]>>,
    /// Payloads that are not written yet.
    pub parts_left: AtomicU32,
    pub created: Mutex<Option<Created>>,
}

/// The file that was created, and its descriptor if that stays open.
pub(super) struct Created {
    pub stat: FileStat,
    pub opened: Option<fs::File>,
}

/// A payload, and where its bytes go.
pub(super) struct PlannedPayload {
    cid: Box<[u8]>,
    pub places: Vec<Place>,
    /// Whether its size counts where it was not known before it came.
    pub is_counted: AtomicBool,
    pub is_done: AtomicBool,
}

/// Where a payload is in a file.
pub(super) struct Place {
    pub file: u32,
    pub offset: u64,
    /// The payload's size, if it is known already.
    pub size: Option<u64>,
}

impl PlannedPayload {
    pub fn cid(&self) -> Cid {
        Cid::trusted(&self.cid)
    }

    pub fn size(&self) -> Option<u64> {
        self.places.iter().find_map(|place| place.size)
    }
}

/// Files whose payloads are requested. Each payload occurs once.
#[derive(Default)]
pub(super) struct Batch {
    pub files: Vec<File>,
    pub payloads: Vec<PlannedPayload>,
}

impl Batch {
    /// Payloads from `next` on that are not done: of about `bytes` together, at least one if there is one. `next` goes
    /// past them. One of unknown size counts `guess` bytes.
    pub fn next_payloads(&self, next: &mut usize, bytes: u64, guess: u64) -> Vec<u32> {
        let (mut requested, mut total) = (Vec::new(), 0u64);
        while let Some(payload) = self.payloads.get(*next) {
            if !payload.is_done.load(Ordering::Acquire) {
                total = total.saturating_add(payload.size().unwrap_or(guess));
                if requested.len() == MAX_PAYLOADS || total > bytes && !requested.is_empty() {
                    break;
                }
                requested.push(*next as u32);
            }
            *next += 1;
        }
        requested
    }
}

/// Payloads that are requested together.
pub(super) struct Request {
    pub batch: Arc<Batch>,
    /// Which of the batch's payloads they are.
    pub indices: Vec<u32>,
}

impl Request {
    pub fn new(batch: Arc<Batch>, indices: Vec<u32>) -> Self {
        Self { batch, indices }
    }

    pub fn payloads(&self) -> impl Iterator<Item = &PlannedPayload> {
        self.indices.iter().map(|&index| &self.batch.payloads[index as usize])
    }

    /// The payload at this place of the request.
    pub fn payload(&self, index: usize) -> &PlannedPayload {
        &self.batch.payloads[self.indices[index] as usize]
    }
}

/// Files that are not requested yet.
#[derive(Default)]
pub(super) struct Files {
    /// Files that were added.
    pub count: u32,
    /// The sum of their sizes, as far as these are known.
    pub bytes: u64,
    pub has_unknown_sizes: bool,
    pub draft: BatchDraft,
    /// The batch that is being requested, and its payload to request next.
    pub open: Option<(Arc<Batch>, usize)>,
}

/// A file to add.
pub(super) struct NewFile<'a> {
    pub number: u32,
    pub place: (u32, CString),
    /// The payloads in order, at least one. The size of each but the last is known.
    pub parts: &'a [(Cid, Option<u64>)],
    pub list: Option<&'a Cid>,
    pub attributes: Attributes,
    pub placement: Placement,
}

/// The sum of the sizes that are known of a file's payloads, in order.
///
/// # Errors
/// [`Error::Input`] if no file can be that long.
pub(super) fn known_size(parts: &[(Cid, Option<u64>)]) -> Result<u64> {
    let sum = parts.iter().try_fold(0u64, |sum, (_, size)| sum.checked_add(size.unwrap_or(0)));
    sum.filter(|&sum| sum <= MAX_FILE_BYTES).ok_or_else(|| {
        Error::input(InputCode::TooLarge, "the sizes of its payloads sum to 2^63 or more, which no file can have")
    })
}

/// A batch that files are added to.
#[derive(Default)]
pub(super) struct BatchDraft {
    batch: Batch,
    /// Where payloads are in the batch, by CID.
    indices: HashMap<Box<[u8]>, u32>,
}

impl BatchDraft {
    /// Adds a file. O(parts).
    pub fn add(&mut self, new: NewFile<'_>) -> Result<()> {
        let file = count(self.batch.files.len())?;
        let mut offset = 0;
        for (cid, size) in new.parts {
            let index = match self.indices.get(cid.as_bytes()) {
                Some(&index) => index,
                None => {
                    let index = count(self.batch.payloads.len())?;
                    let cid: Box<[u8]> = cid.as_bytes().into();
                    self.indices.insert(Box::clone(&cid), index);
                    self.batch.payloads.push(PlannedPayload {
                        cid,
                        places: Vec::new(),
                        is_counted: AtomicBool::new(false),
                        is_done: AtomicBool::new(false),
                    });
                    index
                }
            };
            self.batch.payloads[index as usize].places.push(Place { file, offset, size: *size });
            offset += size.unwrap_or(0);
        }
        let (folder, name) = new.place;
        self.batch.files.push(File {
            number: new.number,
            folder,
            name,
            attributes: new.attributes,
            placement: new.placement,
            list: new.list.map(|cid| cid.as_bytes().into()),
            parts_left: AtomicU32::new(count(new.parts.len())?),
            created: Mutex::new(None),
        });
        Ok(())
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.batch.files.len()
    }

    /// The batch; the next file begins another one.
    pub fn take(&mut self) -> Batch {
        self.indices.clear();
        std::mem::take(&mut self.batch)
    }
}
