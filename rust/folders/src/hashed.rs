//! The files of a survey as they were read: their targets, and the records and roots of the folder's maps.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::payload::Function;
use coregw_core::{Cid, Digest, Error, Key, Kind, Result, RootCid, Suite};
use rustix::io::Errno;
use xattr::FileExt as _;

use crate::attributes::{self, Attributes, EXECUTABLE, Entry, MAX_LINK_BYTES, MAX_RECORD_BYTES, MAX_XATTR_BYTES};
use crate::beneath;
use crate::contents::{Chunk, Contents};
use crate::entries::{EntryKind, FileState};
use crate::roots::{self, FolderRoots};
use crate::survey::Survey;
use crate::walk::Skip;
use crate::watch::Watch;

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
pub struct Recorded {
    level: Level,
    owner: bool,
    /// Whether the top folder has a record as well.
    top: bool,
}

impl Recorded {
    /// The level of this name, and whether owners are recorded.
    ///
    /// # Errors
    /// [`Error::Input`] if no level has this name.
    pub fn new(level: &str, owner: bool) -> Result<Self> {
        let top = level == "whole";
        let level = match level {
            "whole" | "all" => Level::All,
            "no-times" => Level::NoTimes,
            "exec" => Level::Exec,
            "none" => Level::None,
            other => {
                let shown: String = other.chars().take(80).collect();
                return Err(Error::request(format!("attributes: {shown:?} is not whole, all, no-times, exec or none")));
            }
        };
        Ok(Self { level, owner, top })
    }

    /// Whether no attributes are recorded.
    pub fn is_nothing(self) -> bool {
        self.level == Level::None
    }

    /// What is recorded of an entry at the levels that record modes.
    fn attributes(self, entry: Entry, now: FileState, xattrs: BTreeMap<String, Vec<u8>>) -> Attributes {
        // A restore without owners sets these bits, so that what it has restored has the same root.
        let bits = match &entry {
            _ if self.owner => attributes::MODE_BITS,
            Entry::Folder => 0o1777,
            _ => 0o777,
        };
        Attributes {
            size: (entry == Entry::File).then_some(now.size),
            mode: (!matches!(entry, Entry::Link(_))).then_some(now.mode & bits),
            mtime: (self.level == Level::All).then_some(now.mtime_ns),
            owner: self.owner.then_some(now.owner),
            xattrs,
            entry,
        }
    }
}

/// The numbers of what was read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Files that have targets.
    pub files: u64,
    /// Those of them that are lists.
    pub lists: u64,
    /// The sum of their sizes.
    pub bytes: u64,
}

/// What is known of the entries of a survey since its files were read. Some 35 bytes for each entry.
#[derive(Clone)]
pub struct Hashed {
    /// What the folder has.
    pub survey: Arc<Survey>,
    pub(crate) suite: Suite,
    /// The targets of the files that are known.
    pub targets: FileTargets,
    xattrs: BTreeMap<usize, BTreeMap<String, Vec<u8>>>,
    /// The extended attributes of the top folder.
    top_xattrs: BTreeMap<String, Vec<u8>>,
    /// Why something of the top folder has no record.
    top_skips: Vec<Skip>,
    /// The states of files that were not read in the state in which they were found.
    changed: BTreeMap<usize, FileState>,
    pub(crate) skips: Vec<Skip>,
}

impl Hashed {
    /// Nothing is known yet.
    pub fn new(survey: Arc<Survey>, suite: Suite) -> Self {
        let targets = FileTargets::new(suite, survey.entries.count());
        let (xattrs, changed, skips) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let top_skips = survey.top_skip().into_iter().collect();
        Self { survey, suite, targets, xattrs, top_xattrs: BTreeMap::new(), top_skips, changed, skips }
    }

    /// Notes that a file has this target, and the state in which it has it.
    pub fn take(&mut self, index: usize, target: &Cid, state: FileState) {
        self.targets.set(index, target);
        if state == self.survey.entries.state(index) {
            self.changed.remove(&index);
        } else {
            self.changed.insert(index, state);
        }
    }

    /// Notes the contents of a file, and returns its chunks if it is a list.
    pub fn take_contents(&mut self, index: usize, read: Contents) -> Option<Vec<Chunk>> {
        self.take(index, &read.target, read.state);
        (read.chunks.len() > 1).then_some(read.chunks)
    }

    /// Notes that an entry is left out, wholly or in part.
    pub fn skip(&mut self, index: usize, why: String) {
        self.skips.push(Skip { file: self.survey.location(index), why });
    }

    /// Notes the extended attributes of an entry.
    pub fn take_xattrs(&mut self, index: usize, Xattrs { found, skips }: Xattrs) {
        if !found.is_empty() {
            self.xattrs.insert(index, found);
        }
        for why in skips {
            self.skip(index, why);
        }
    }

    /// Notes the extended attributes of the top folder.
    pub fn take_top_xattrs(&mut self, Xattrs { found, skips }: Xattrs) {
        self.top_xattrs = found;
        self.top_skips.extend(skips.into_iter().map(|why| Skip { file: self.survey.top().to_path_buf(), why }));
    }

    /// What of the top folder itself is left out if it has a record.
    pub fn top_skips(&self) -> &[Skip] {
        &self.top_skips
    }

    /// What an entry was when it was read.
    pub fn now(&self, index: usize) -> FileState {
        self.changed.get(&index).copied().unwrap_or_else(|| self.survey.entries.state(index))
    }

    /// What was skipped, by the survey or since, in the order of locations.
    pub fn all_skips(&self) -> Vec<Skip> {
        let mut skips = self.survey.skips.to_vec();
        skips.extend_from_slice(&self.skips);
        skips.sort_unstable();
        skips
    }

    /// O(entries).
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for index in (0..self.survey.entries.count()).filter(|&index| self.targets.is_known(index)) {
            totals.files += 1;
            totals.lists += u64::from(self.targets.is_list(index));
            totals.bytes = totals.bytes.saturating_add(self.now(index).size);
        }
        totals
    }

    /// The record of an entry, unless it has none.
    pub fn record(&self, index: usize, recorded: Recorded) -> Result<Option<attributes::Record>> {
        let attributes = self.attributes(index, recorded);
        attributes.filter(|attributes| !attributes.is_empty()).map(|attributes| attributes.record()).transpose()
    }

    /// The record of the top folder itself; none of a single file, and if it is not to be recorded.
    pub fn top_record(&self, recorded: Recorded) -> Result<Option<attributes::Record>> {
        let state = self.survey.top_state().filter(|_| recorded.top);
        let known = state.map(|now| recorded.attributes(Entry::Folder, now, self.top_xattrs.clone()));
        known.map(|known| known.record()).transpose()
    }

    fn attributes(&self, index: usize, recorded: Recorded) -> Option<Attributes> {
        let (entries, level) = (&self.survey.entries, recorded.level);
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
        Some(recorded.attributes(entry, now, self.xattrs.get(&index).cloned().unwrap_or_default()))
    }

    /// The roots of both maps. O(entries) hashing, in memory for some pages.
    ///
    /// # Errors
    /// [`Error::Input`] if a record is too long, or at an interrupt.
    pub fn roots(&self, recorded: Recorded, watch: &impl Watch) -> Result<FolderRoots> {
        let check = |index: usize| {
            let is_interrupted = index.is_multiple_of(ENTRIES_BETWEEN_CHECKS) && watch.is_interrupted();
            if is_interrupted { Err(Error::request("interrupted")) } else { Ok(()) }
        };
        let entries = || 0..self.survey.entries.count();
        let arc = |index: usize, target: Result<Option<Cid>>| -> Option<Result<(Key, Cid)>> {
            let target = target.transpose()?;
            Some(target.and_then(|target| Ok((self.survey.key(index)?, target))))
        };
        let records = entries().filter_map(|index| {
            let record = check(index).and_then(|()| self.record(index, recorded));
            arc(index, record.map(|record| record.map(|record| record.target)))
        });
        let files = entries().filter_map(|index| arc(index, check(index).map(|()| self.targets.get(index))));
        let top = self.top_record(recorded)?.map(|record| record.target);
        roots::build(self.suite, top, records, files, drop)
    }
}

/// Extended attributes. Those that vanish meanwhile are left out.
#[derive(Default)]
pub struct Xattrs {
    found: BTreeMap<String, Vec<u8>>,
    /// Why there is no record of others.
    skips: Vec<String>,
}

/// The extended attributes of an entry; none if it has gone, or may not be read. O(depth).
pub fn read_xattrs(survey: &Survey, index: usize) -> Xattrs {
    if survey.entries.kind(index) == EntryKind::Link {
        // No call reads those of a link by a descriptor. Linux lets users set none there.
        let link = survey.location(index);
        return collect_xattrs(xattr::list(&link), |name| xattr::get(&link, name));
    }
    xattrs_of(survey.open(index))
}

/// The extended attributes of the top folder; none of a single file.
pub fn read_top_xattrs(survey: &Survey) -> Xattrs {
    survey.open_top().map_or_else(Xattrs::default, xattrs_of)
}

fn xattrs_of(opened: io::Result<File>) -> Xattrs {
    match opened {
        Ok(file) => collect_xattrs(file.list_xattr(), |name| file.get_xattr(name)),
        // As when too many files are open.
        Err(error) if !is_absent(&error) => skipped(format!("its extended attributes can't be read: {error}")),
        Err(_) => Xattrs::default(),
    }
}

/// Whether nothing is there that may be read: another entry, such as a link, may have its place.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
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
        Err(error) if is_absent(&error) || error.raw_os_error() == Some(Errno::NOTSUP.raw_os_error()) => {
            return Xattrs::default();
        }
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

/// Which CIDs a folder's files have: payloads with sha2-256, or lists of the folder's suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    #[default]
    Absent,
    Payload,
    List,
}

/// For each entry of a survey, the target of its file, if it is known.
#[derive(Debug, Clone)]
pub struct FileTargets {
    suite: Suite,
    forms: Vec<Form>,
    digests: Vec<[u8; 32]>,
}

impl FileTargets {
    /// `count` entries without targets.
    pub fn new(suite: Suite, count: usize) -> Self {
        Self { suite, forms: vec![Form::Absent; count], digests: vec![[0; 32]; count] }
    }

    /// Sets a target. False if no file of a folder has it.
    pub fn set(&mut self, index: usize, target: &Cid) -> bool {
        let form = match target.root() {
            Some(root) if root.kind == Kind::List && root.suite == self.suite => Form::List,
            None if target.codec() == Codec::RAW.number() && target.hash_function() == Function::Sha2_256 => {
                Form::Payload
            }
            _ => return false,
        };
        let Ok(digest) = target.digest().try_into() else { return false };
        (self.forms[index], self.digests[index]) = (form, digest);
        true
    }

    /// Forgets a target.
    pub fn clear(&mut self, index: usize) {
        self.forms[index] = Form::Absent;
    }

    /// Whether an entry has a target.
    pub fn is_known(&self, index: usize) -> bool {
        self.forms[index] != Form::Absent
    }

    /// Whether it is a list.
    pub fn is_list(&self, index: usize) -> bool {
        self.forms[index] == Form::List
    }

    /// The target of an entry, if it is known.
    pub fn get(&self, index: usize) -> Option<Cid> {
        let digest = Digest(self.digests[index]);
        match self.forms[index] {
            Form::Absent => None,
            Form::Payload => Some(Cid::of_payload(Codec::RAW.number(), Function::Sha2_256, &digest.0)),
            Form::List => Some(RootCid { kind: Kind::List, suite: self.suite, digest }.cid()),
        }
    }
}
