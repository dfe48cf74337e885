//! The files of a survey as they were read: their targets, and the records and roots of the folder's maps.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;

use core::{Cid, Error, Key, Result, Suite};
use coregw_core as core;
use coregw_folders::attributes::{self, EXECUTABLE, MAX_LINK_BYTES, MAX_RECORD_BYTES, MAX_XATTR_BYTES};
use coregw_folders::{Attributes, Entry, FolderRoots};
use xattr::FileExt as _;

use super::beneath;
use super::contents::{Chunk, Contents};
use super::entries::{EntryKind, FileState};
use super::signals::Signals;
use super::survey::State;
use super::targets::FileTargets;
use super::walk::Skip;

/// Entries between two looks for an interrupt.
const ENTRIES_BETWEEN_CHECKS: usize = 4096;
/// What a record takes for an extended attribute, beside its name and value, at most.
const XATTR_HEAD_BYTES: usize = 3 + 5;
/// What a record takes beside its extended attributes, at most.
const OTHER_RECORD_BYTES: usize = MAX_LINK_BYTES + 256;
/// The executable bit of a file's owner.
const OWNER_EXECUTES: u16 = 0o100;

/// How much is recorded (protocol section 7, *writers*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    All,
    NoTimes,
    Exec,
    None,
}

/// Which attributes are recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    level: Level,
    owner: bool,
}

impl Recorded {
    /// The level of this name, and whether owners are recorded.
    ///
    /// # Errors
    /// [`Error::Input`] if no level has this name.
    pub(super) fn new(level: &str, owner: bool) -> Result<Self> {
        let level = match level {
            "all" => Level::All,
            "no-times" => Level::NoTimes,
            "exec" => Level::Exec,
            "none" => Level::None,
            other => {
                let shown: String = other.chars().take(80).collect();
                return Err(Error::request(format!("attributes: {shown:?} is not all, no-times, exec or none")));
            }
        };
        Ok(Self { level, owner })
    }

    /// Whether no attributes are recorded.
    pub(super) fn is_nothing(self) -> bool {
        self.level == Level::None
    }
}

/// The numbers of what was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    /// Files that have targets.
    pub(super) files: u64,
    /// Those of them that are lists.
    pub(super) lists: u64,
    /// The sum of their sizes.
    pub(super) bytes: u64,
}

/// What is known of the entries of a survey since its files were read. Some 35 bytes for each entry.
#[derive(Clone)]
pub(super) struct Hashed {
    pub(super) state: Arc<State>,
    pub(super) suite: Suite,
    pub(super) targets: FileTargets,
    xattrs: BTreeMap<usize, BTreeMap<String, Vec<u8>>>,
    /// The states of files that were not read in the state in which they were found.
    changed: BTreeMap<usize, FileState>,
    pub(super) skips: Vec<Skip>,
}

impl Hashed {
    /// Nothing is known yet.
    pub(super) fn new(state: Arc<State>, suite: Suite) -> Self {
        let targets = FileTargets::new(suite, state.entries.len());
        let (xattrs, changed, skips) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { state, suite, targets, xattrs, changed, skips }
    }

    /// Notes that a file has this target, and the state in which it has it.
    pub(super) fn take(&mut self, index: usize, target: &Cid, state: FileState) {
        self.targets.set(index, target);
        if state == self.state.entries.state(index) {
            self.changed.remove(&index);
        } else {
            self.changed.insert(index, state);
        }
    }

    /// Notes the contents of a file, and returns its chunks if it is a list.
    pub(super) fn take_contents(&mut self, index: usize, read: Contents) -> Option<Vec<Chunk>> {
        self.take(index, &read.target, read.state);
        (read.chunks.len() > 1).then_some(read.chunks)
    }

    /// Notes that an entry is left out, wholly or in part.
    pub(super) fn skip(&mut self, index: usize, why: String) {
        self.skips.push(Skip { file: self.state.location(index), why });
    }

    /// Notes the extended attributes of an entry.
    pub(super) fn take_xattrs(&mut self, index: usize, Xattrs { found, skips }: Xattrs) {
        if !found.is_empty() {
            self.xattrs.insert(index, found);
        }
        for why in skips {
            self.skip(index, why);
        }
    }

    /// What an entry was when it was read.
    pub(super) fn now(&self, index: usize) -> FileState {
        self.changed.get(&index).copied().unwrap_or_else(|| self.state.entries.state(index))
    }

    /// What was skipped, by the survey or since, in the order of locations.
    pub(super) fn all_skips(&self) -> Vec<Skip> {
        let mut skips = self.state.skips().to_vec();
        skips.extend_from_slice(&self.skips);
        skips.sort_unstable();
        skips
    }

    /// O(entries).
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for index in (0..self.state.entries.len()).filter(|&index| self.targets.is_known(index)) {
            totals.files += 1;
            totals.lists += u64::from(self.targets.is_list(index));
            totals.bytes = totals.bytes.saturating_add(self.now(index).size);
        }
        totals
    }

    /// The record of an entry, unless it has none.
    pub(super) fn record(&self, index: usize, recorded: Recorded) -> Result<Option<attributes::Record>> {
        let attributes = self.attributes(index, recorded);
        attributes.filter(|attributes| !attributes.is_empty()).map(|attributes| attributes.record()).transpose()
    }

    fn attributes(&self, index: usize, Recorded { level, owner }: Recorded) -> Option<Attributes> {
        let entries = &self.state.entries;
        let kind = entries.kind(index);
        if level == Level::None || kind == EntryKind::File && !self.targets.is_known(index) {
            return None;
        }
        let now = self.now(index);
        let entry = match kind {
            EntryKind::File => Entry::File,
            EntryKind::Link => Entry::Link(entries.link(index).to_vec()),
            EntryKind::Folder => Entry::Folder,
        };
        if level == Level::Exec {
            let is_executable = kind == EntryKind::File && now.mode & OWNER_EXECUTES != 0;
            let mode = is_executable.then_some(EXECUTABLE);
            return (kind != EntryKind::Folder).then(|| Attributes { entry, mode, ..Attributes::default() });
        }
        Some(Attributes {
            entry,
            size: (kind == EntryKind::File).then_some(now.size),
            mode: (kind != EntryKind::Link).then_some(if owner { now.mode } else { now.mode & restored_bits(kind) }),
            mtime: (level == Level::All).then_some(now.mtime_ns),
            owner: owner.then_some(now.owner),
            xattrs: self.xattrs.get(&index).cloned().unwrap_or_default(),
        })
    }

    /// The roots of both maps. O(entries) hashing, in memory for some pages.
    ///
    /// # Errors
    /// [`Error::Input`] if a record is too long, or at an interrupt.
    pub(super) fn roots(&self, recorded: Recorded, signals: &Signals) -> Result<FolderRoots> {
        let check = |index: usize| {
            let is_interrupted = index.is_multiple_of(ENTRIES_BETWEEN_CHECKS) && signals.is_interrupted();
            if is_interrupted { Err(Error::request("interrupted")) } else { Ok(()) }
        };
        let entries = || 0..self.state.entries.len();
        let arc = |index: usize, target: Result<Option<Cid>>| -> Option<Result<(Key, Cid)>> {
            let target = target.transpose()?;
            Some(target.and_then(|target| Ok((self.state.key(index)?, target))))
        };
        let records = entries().filter_map(|index| {
            let record = check(index).and_then(|()| self.record(index, recorded));
            arc(index, record.map(|record| record.map(|record| record.target)))
        });
        let files = entries().filter_map(|index| arc(index, check(index).map(|()| self.targets.get(index))));
        coregw_folders::build(self.suite, records, files, drop)
    }
}

/// The bits of a mode that a restore without owners sets, so that what it has restored has the same root.
fn restored_bits(kind: EntryKind) -> u16 {
    if kind == EntryKind::Folder { 0o1777 } else { 0o777 }
}

/// Extended attributes. Those that vanish meanwhile are left out.
#[derive(Default)]
pub(super) struct Xattrs {
    found: BTreeMap<String, Vec<u8>>,
    /// Why there is no record of others.
    skips: Vec<String>,
}

/// The extended attributes of an entry; none if it has gone, or may not be read. O(depth).
pub(super) fn read_xattrs(state: &State, index: usize) -> Xattrs {
    if state.entries.kind(index) == EntryKind::Link {
        // No call reads those of a link by a descriptor. Linux lets users set none there.
        let link = state.location(index);
        return collect_xattrs(xattr::list(&link), |name| xattr::get(&link, name));
    }
    match state.open(index) {
        Ok(file) => collect_xattrs(file.list_xattr(), |name| file.get_xattr(name)),
        // As when too many files are open.
        Err(error) if !is_absent(&error) => skipped(format!("its extended attributes can't be read: {error}")),
        Err(_) => Xattrs::default(),
    }
}

/// Whether nothing is there that may be read: another entry, such as a link, may have its place.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let is_link = error.raw_os_error() == Some(libc::ELOOP);
    is_link || matches!(error.kind(), NotFound | PermissionDenied | NotADirectory)
}

fn skipped(why: String) -> Xattrs {
    Xattrs { found: BTreeMap::new(), skips: vec![why] }
}

fn collect_xattrs(
    names: io::Result<impl Iterator<Item = OsString>>,
    get: impl Fn(&OsStr) -> io::Result<Option<Vec<u8>>>,
) -> Xattrs {
    let names = match names {
        Ok(names) => names,
        Err(error) if is_absent(&error) || error.raw_os_error() == Some(libc::ENOTSUP) => return Xattrs::default(),
        Err(error) => return skipped(format!("its extended attributes can't be listed: {error}")),
    };
    let mut xattrs = Xattrs::default();
    let mut bytes = 0;
    for name in names {
        let shown = beneath::shown(name.as_ref());
        let why = match (name.to_str(), get(&name)) {
            (_, Ok(None)) => continue,
            (_, Err(error)) => format!("can't be read: {}", beneath::why(&error)),
            (None, _) => "has a name that is not UTF-8".to_owned(),
            (_, Ok(Some(value))) if value.len() > MAX_XATTR_BYTES => "is too long".to_owned(),
            (Some(text), Ok(Some(value))) => {
                bytes += text.len() + value.len() + XATTR_HEAD_BYTES;
                if bytes <= MAX_RECORD_BYTES - OTHER_RECORD_BYTES {
                    xattrs.found.insert(text.to_owned(), value);
                    continue;
                }
                "is too long, together with the others".to_owned()
            }
        };
        xattrs.skips.push(format!("its extended attribute {shown} {why}"));
    }
    xattrs
}
