//! What a folder, or a single file, has: its files, symbolic links and folders, in key order, and what is left out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use coregw_core::{Cid, Error, Key, Result, key};
use rustix::fs::{FileType, Stat};

use crate::beneath::{self, Beneath};
use crate::contents;
use crate::entries::{Counts, EntryKind, FileState, FolderDraft, FolderItems, Inventory};
use crate::ignores::{Excludes, Rules};
use crate::walk::{self, Skip, Unmapped, Walked};
use crate::watch::Watch;

/// What was found: a folder's entries, or a single file. It stays open, so that its files can be read.
pub struct Survey {
    /// The folder; of a single file, the file.
    top: PathBuf,
    /// The folder, opened, and what it was then; none of a single file.
    beneath: Option<Beneath>,
    state: Option<Stat>,
    /// Its entries, in key order.
    pub entries: Inventory,
    /// What the walk skipped, in the order of locations.
    pub skips: Vec<Skip>,
    /// What patterns exclude, without what is below it, in order.
    pub left_out: Vec<Skip>,
    /// How many entries of each kind there are.
    pub counts: Counts,
}

/// What a survey is for: which files of patterns count, and what becomes of that which no map has.
pub struct Purpose {
    rules: Rules,
    unmapped: Unmapped,
}

impl Purpose {
    /// The purpose of this name: `add`, `keep`, `strict` or `as-added`. `named` are the targets of the files of a root that
    /// the folder is compared with, by their paths: only the files of patterns among these count.
    ///
    /// # Errors
    /// [`Error::Input`] if no purpose has this name, or `named` goes with another one than `as-added`.
    pub fn new(name: &str, named: Option<BTreeMap<PathBuf, Cid>>) -> Result<Self> {
        let (rules, unmapped) = match (name, named) {
            ("add", None) => (Rules::Own, Unmapped::Refused),
            ("keep", None) => (Rules::Own, Unmapped::Skipped),
            ("strict", None) => (Rules::None, Unmapped::Skipped),
            ("as-added", None) => (Rules::Included, Unmapped::LeftOut),
            ("as-added", Some(named)) => (Rules::Named(named), Unmapped::LeftOut),
            ("add" | "keep" | "strict", Some(_)) => {
                return Err(Error::request("named: only with the purpose as-added"));
            }
            _ => return Err(Error::request("purpose: expected add, keep, strict or as-added")),
        };
        Ok(Self { rules, unmapped })
    }
}

/// A folder, or a single file, that is opened to be surveyed.
pub struct SurveyTop {
    top: PathBuf,
    found: Stat,
    beneath: Option<Beneath>,
}

impl SurveyTop {
    /// Opens a folder, or finds a file. The path may lead through links.
    pub fn open(top: PathBuf) -> io::Result<Self> {
        let found = rustix::fs::stat(&top)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let beneath = is_folder.then(|| Beneath::new(&top)).transpose()?;
        let found = beneath.as_ref().map_or(Ok(found), rustix::fs::fstat)?;
        Ok(Self { top, found, beneath })
    }

    /// Walks the folder on all cores. O(entries). An interrupt ends the walk early.
    ///
    /// # Errors
    /// [`Error::Input`] if a name is not UTF-8 or a path is too long, unless the purpose has these skipped; if a file of
    /// patterns cannot be read, or a pattern is malformed; or if it is neither a folder nor a regular file.
    pub fn survey(self, exclude: &[OsString], gitignore: bool, purpose: Purpose, watch: &impl Watch) -> Result<Survey> {
        let Self { top, found, beneath } = self;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            return single_file(&top, &found);
        }
        let Some(beneath) = beneath else {
            return Err(Error::request(format!("{}: neither a folder nor a regular file", beneath::shown(&top))));
        };
        let excludes = Excludes::new(exclude, gitignore, purpose.rules)?;
        let walked = walk::walk((&top, &beneath), &excludes, purpose.unmapped, watch)?;
        Ok(Survey::new(top, Some((beneath, found)), walked))
    }
}

/// The survey of one file, whose path is its name.
fn single_file(top: &Path, found: &Stat) -> Result<Survey> {
    let state = FileState::of(found);
    let name = top.file_name().unwrap_or(top.as_os_str());
    if name.to_str().is_none() {
        return Err(walk::refused(top, walk::NOT_UTF8));
    }
    if name.as_bytes().len() > key::MAX_TEXT {
        return Err(walk::refused(top, walk::TOO_LONG));
    }
    let mut draft = FolderDraft::default();
    draft.push(EntryKind::File, name, &[], state);
    let folder: FolderItems = draft.finish((0, 0), |_, _| true);
    // Resolved, because files are opened without following symbolic links.
    let file = fs::canonicalize(top)
        .map_err(|error| Error::request(format!("{}: {}", beneath::shown(top), beneath::why(&error))))?;
    let skip = (!state.has_mtime_of(found)).then(|| Skip { file: file.clone(), why: walk::INEXACT_TIME.to_owned() });
    let found =
        Walked { entries: Inventory::new(vec![folder]), skips: skip.into_iter().collect(), left_out: Vec::new() };
    Ok(Survey::new(file, None, found))
}

impl Survey {
    fn new(top: PathBuf, folder: Option<(Beneath, Stat)>, found: Walked) -> Self {
        let (beneath, state) = folder.unzip();
        let Walked { entries, skips, left_out } = found;
        let counts = entries.counts();
        Self { top, beneath, state, entries, skips, left_out, counts }
    }

    /// Opens a file or folder for reading. No symbolic link below the folder is followed. O(depth).
    pub fn open(&self, index: usize) -> io::Result<File> {
        match &self.beneath {
            None => contents::open(&self.top),
            Some(beneath) => beneath.open(&self.entries.path(index)),
        }
    }

    /// The folder; of a single file, the file.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// What the folder itself was when it was opened; none of a single file.
    pub fn top_state(&self) -> Option<FileState> {
        self.state.as_ref().map(FileState::of)
    }

    /// What is lost of the folder's own time if it is recorded.
    pub fn top_skip(&self) -> Option<Skip> {
        let is_inexact = |found: &&Stat| !FileState::of(found).has_mtime_of(found);
        let inexact = || Skip { file: self.top.clone(), why: walk::INEXACT_TIME.to_owned() };
        self.state.as_ref().filter(is_inexact).map(|_| inexact())
    }

    /// Opens the folder itself for reading; none of a single file.
    pub fn open_top(&self) -> Option<io::Result<File>> {
        Some(self.beneath.as_ref()?.open_folder(Path::new("")).map(File::from))
    }

    /// Where an entry is on the disk. O(depth).
    pub fn location(&self, index: usize) -> PathBuf {
        if self.beneath.is_none() { self.top.clone() } else { self.top.join(self.entries.path(index)) }
    }

    /// The key of an entry's path. O(depth).
    ///
    /// # Errors
    /// None: the walk has checked all paths.
    pub fn key(&self, index: usize) -> Result<Key> {
        Key::from_text(&self.entries.path(index).to_string_lossy())
    }
}
