//! Walks a folder on all cores.

use std::collections::VecDeque;
use std::ffi::{CStr, OsStr};
use std::io;
use std::mem;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::join::RESERVED_NAME;
use core::{Error, InputCode, Result};
use coregw_core as core;
use rustix::fs::{self, AtFlags, Dir, FileType};

use crate::beneath::{Beneath, shown, why};
use crate::entries::{EntryKind, FileState, FolderDraft, FolderItems, Inventory};
use crate::ignores::{Excludes, Ignores, Opened};
use crate::parallel::locked;
use crate::watch::Watch;

/// The maximum length of a path in a map, in bytes.
const MAX_PATH_BYTES: usize = core::key::MAX_TEXT;
/// Inventory of one folder between two looks for an interrupt.
const ENTRIES_BETWEEN_CHECKS: usize = 1024;
/// The longest time that a thread waits for work without a look for an interrupt.
const WAIT: Duration = Duration::from_millis(50);

/// What is left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// Where it is.
    pub file: PathBuf,
    /// The reason, for people.
    pub why: String,
}

/// What a walk found.
pub struct Walked {
    pub(crate) entries: Inventory,
    pub(crate) skips: Vec<Skip>,
    /// What patterns exclude, without what is below it.
    pub left_out: Vec<Skip>,
}

/// What becomes of that which no map has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmapped {
    /// A name that is not UTF-8 or a path that is too long is an error; special files and the reserved name are skipped.
    Refused,
    /// All of it is skipped.
    Skipped,
    /// The names and paths are skipped; special files and the reserved name are left out.
    LeftOut,
}

/// A folder that is to be listed.
struct WalkJob {
    number: u32,
    above: (u32, u32),
    /// Relative to the top.
    below: PathBuf,
    ignores: Option<Arc<Ignores>>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    /// The deepest folders are at the end, and listed first: so few folders wait.
    jobs: VecDeque<WalkJob>,
    /// Threads that list a folder, and may find more.
    busy: usize,
    folders: Vec<FolderItems>,
    skips: Vec<Skip>,
    left_out: Vec<Skip>,
    failures: Vec<(PathBuf, Error)>,
}

struct Walk<'a, W> {
    top: &'a Path,
    beneath: &'a Beneath,
    excludes: &'a Excludes,
    unmapped: Unmapped,
    watch: &'a W,
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// Lists everything below `top` that is not excluded. O(entries x depth).
///
/// Symbolic links are not followed, those included that are put in the place of a folder meanwhile: every folder is
/// opened below `top` without following links, and what is in it is reached by its descriptor.
///
/// # Errors
/// [`Error::Input`], naming the file, if a name is not UTF-8 or a path is too long, unless these are skipped, or if a file
/// of patterns cannot be read or parsed; the first one in the order of paths. An interrupt ends the walk early.
pub fn walk(
    (top, beneath): (&Path, &Beneath),
    excludes: &Excludes,
    unmapped: Unmapped,
    watch: &impl Watch,
) -> Result<Walked> {
    let walk = Walk { top, beneath, excludes, unmapped, watch, shared: Mutex::default(), changed: Condvar::new() };
    {
        let mut shared = walk.lock();
        shared.jobs.push_back(WalkJob { number: 0, above: (0, 0), below: PathBuf::new(), ignores: None });
        shared.folders.push(FolderItems::default());
    }
    let others = thread::available_parallelism().map_or(1, NonZero::get) - 1;
    thread::scope(|scope| {
        for _ in 0..others {
            // Where the system refuses another thread, those that exist do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, || walk.work());
        }
        walk.work();
    });
    let mut shared = walk.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, error)) = shared.failures.into_iter().min_by(|a, b| a.0.cmp(&b.0)) {
        return Err(error);
    }
    shared.skips.sort_unstable();
    shared.left_out.sort_unstable();
    Ok(Walked { entries: Inventory::new(shared.folders), skips: shared.skips, left_out: shared.left_out })
}

impl<W: Watch> Walk<'_, W> {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        locked(&self.shared)
    }

    /// Lists folders until none is left.
    fn work(&self) {
        while let Some(job) = self.next_job() {
            let _busy = Busy(self);
            self.list(&job);
        }
    }

    fn next_job(&self) -> Option<WalkJob> {
        loop {
            // Not with the lock, since it may wait for the caller.
            let is_interrupted = self.watch.is_interrupted();
            let mut shared = self.lock();
            if is_interrupted || !shared.failures.is_empty() {
                return None;
            }
            if let Some(job) = shared.jobs.pop_back() {
                shared.busy += 1;
                return Some(job);
            }
            if shared.busy == 0 {
                return None;
            }
            drop(self.changed.wait_timeout(shared, WAIT));
        }
    }

    fn skip(&self, file: PathBuf, why: impl Into<String>) {
        self.lock().skips.push(Skip { file, why: why.into() });
    }

    /// Notes something that is never added, whatever it is called.
    fn skip_unmapped(&self, file: PathBuf, why: &str) {
        let skip = Skip { file, why: why.to_owned() };
        let mut shared = self.lock();
        if self.unmapped == Unmapped::LeftOut { shared.left_out.push(skip) } else { shared.skips.push(skip) }
    }

    /// Where a folder is, for messages.
    fn location(&self, job: &WalkJob) -> PathBuf {
        if job.below.as_os_str().is_empty() { self.top.to_path_buf() } else { self.top.join(&job.below) }
    }

    fn list(&self, job: &WalkJob) {
        if let Err(error) = self.list_opened(job) {
            self.skip(self.location(job), why(&error));
        }
    }

    fn list_opened(&self, job: &WalkJob) -> io::Result<()> {
        let mut draft = FolderDraft::default();
        let folder = self.beneath.open_folder(&job.below)?;
        let path = self.location(job);
        let mut found = 0;
        for entry in Dir::read_from(&folder)? {
            if found == ENTRIES_BETWEEN_CHECKS {
                self.watch.progress(mem::take(&mut found) as u64);
                if self.watch.is_interrupted() {
                    return Ok(());
                }
            }
            let taken = match &entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => continue,
                Ok(entry) => {
                    found += 1;
                    let name = entry.file_name();
                    self.take((job, &path), &folder, name, &mut draft).map_err(|error| (path.join(text(name)), error))
                }
                Err(error) => Err((path.clone(), (*error).into())),
            };
            if let Err((file, error)) = taken {
                self.skip(file, why(&error));
            }
        }
        self.watch.progress(found as u64);
        if let Err((file, error)) = self.finish((job, &path), folder.as_fd(), draft) {
            self.lock().failures.push((file, error));
        }
        Ok(())
    }

    /// Reads the state of an entry.
    fn take(
        &self,
        (job, path): (&WalkJob, &Path),
        folder: &OwnedFd,
        name: &CStr,
        draft: &mut FolderDraft,
    ) -> io::Result<()> {
        let file = || path.join(text(name));
        if job.number == 0 && text(name) == RESERVED_NAME {
            self.skip_unmapped(file(), "the name is reserved");
            return Ok(());
        }
        let found = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => {
                self.skip_unmapped(file(), "not a regular file");
                return Ok(());
            }
        };
        let target = if kind == EntryKind::Link { fs::readlinkat(folder, name, Vec::new())? } else { c"".to_owned() };
        let (target, state) = (target.as_bytes(), FileState::of(&found));
        if !state.has_mtime_of(&found) {
            self.skip(file(), INEXACT_TIME);
        }
        if target.len() > crate::attributes::MAX_LINK_BYTES || !draft.push(kind, text(name), target, state) {
            self.skip(file(), "the name or the target is too long");
        }
        Ok(())
    }

    /// Leaves out what is excluded, checks the names of the rest, and queues the folders among it.
    fn finish(
        &self,
        (job, path): (&WalkJob, &Path),
        opened: BorrowedFd<'_>,
        draft: FolderDraft,
    ) -> Result<(), (PathBuf, Error)> {
        let at = Opened { path, below: &job.below, folder: opened };
        let ignores = self.excludes.enter(&at, draft.names(), job.ignores.clone());
        let ignores = ignores.map_err(|error| (path.to_path_buf(), error))?;
        let (mut left_out, mut skips, mut failure) = (Vec::new(), Vec::new(), None);
        let mut below = job.below.join("name");
        let folder = draft.finish(job.above, |name, kind| {
            let name = OsStr::from_bytes(name);
            below.set_file_name(name);
            if let Some(why) = self.excludes.reason(ignores.as_deref(), &below, name, kind == EntryKind::Folder) {
                left_out.push(Skip { file: path.join(name), why });
                return false;
            }
            let why = if name.to_str().is_none() {
                NOT_UTF8
            } else if below.as_os_str().len() > MAX_PATH_BYTES {
                TOO_LONG
            } else {
                return true;
            };
            if self.unmapped == Unmapped::Refused {
                // The system lists names in any order.
                let file = path.join(name);
                if failure.as_ref().is_none_or(|(first, _)| file < *first) {
                    failure = Some((file.clone(), refused(&file, why)));
                }
            } else {
                skips.push(Skip { file: path.join(name), why: why.to_owned() });
            }
            false
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mut shared = self.lock();
        shared.left_out.append(&mut left_out);
        shared.skips.append(&mut skips);
        drop(shared);
        self.queue(job, folder, ignores.as_ref());
        Ok(())
    }

    fn queue(&self, job: &WalkJob, mut folder: FolderItems, ignores: Option<&Arc<Ignores>>) {
        let mut found = Vec::new();
        for (at, item) in folder.items.iter().enumerate().rev().filter(|(_, item)| item.kind == EntryKind::Folder) {
            let below = job.below.join(folder.name(item));
            found.push(WalkJob { number: 0, above: (job.number, at as u32), below, ignores: ignores.cloned() });
        }
        let mut shared = self.lock();
        for mut below in found {
            below.number = shared.folders.len() as u32;
            shared.folders.push(FolderItems::default());
            folder.items[below.above.1 as usize].set_folder(below.number);
            shared.jobs.push_back(below);
        }
        shared.folders[job.number as usize] = folder;
        drop(shared);
        self.changed.notify_all();
    }
}

/// A thread that lists a folder; also if that panics, others must not wait for it.
struct Busy<'a, 'b, W: Watch>(&'a Walk<'b, W>);

impl<W: Watch> Drop for Busy<'_, '_, W> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

/// A name of a folder's listing.
fn text(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// What is lost of an entry with such a time.
pub const INEXACT_TIME: &str = "its time is not between 1677 and 2262: the nearest is recorded";
/// Why no path of a map has a name.
pub const NOT_UTF8: &str = "the name is not UTF-8";
/// Why no map has a path.
pub const TOO_LONG: &str = "the path is longer than 4096 bytes";

/// The refusal of a file that no map has.
pub fn refused(file: &Path, why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", shown(file)))
}
