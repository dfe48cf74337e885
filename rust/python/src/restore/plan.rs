//! What a `FolderWriter` is to write: folders, files with the payloads that they consist of, and symbolic links.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, OnceLock};

use core::{Cid, Error, InputCode, Result};
use coregw_core as core;

use super::attributes::{Attributes, FileStat};

/// The number of the folder that everything is below.
pub(super) const TOP: u32 = 0;

/// A folder. Its parent has a lower number.
pub(super) struct Folder {
    pub parent: u32,
    pub name: CString,
    pub exists: bool,
    pub attributes: Attributes,
}

/// A file, and how far it is.
pub(super) struct File {
    pub folder: u32,
    pub name: CString,
    pub attributes: Attributes,
    pub placement: Placement,
    /// Payloads that are not written yet.
    pub parts_left: AtomicU32,
    pub is_created: Mutex<bool>,
    /// Its state when it was complete and had its name.
    pub state: OnceLock<FileStat>,
}

/// A file that stays as it is, but for its attributes.
pub(super) struct Kept {
    pub folder: u32,
    pub name: CString,
    pub attributes: Attributes,
}

/// A symbolic link.
pub(super) struct Link {
    pub folder: u32,
    pub name: CString,
    pub target: CString,
    pub attributes: Attributes,
    pub placement: Placement,
}

/// Where a file or link is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// In its folder, which nobody else looks into yet.
    Direct,
    /// In the folder for incomplete files; it gets its name when it is complete, if nothing has that name.
    New,
    /// The same, replacing what has that name.
    Replacing,
}

/// A payload, and where its bytes go.
pub(super) struct PlannedPayload {
    cid: Box<[u8]>,
    pub places: Vec<Place>,
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

/// All of it.
pub(super) struct Plan {
    pub folders: Vec<Folder>,
    pub files: Vec<File>,
    pub kept: Vec<Kept>,
    pub links: Vec<Link>,
    pub payloads: Vec<PlannedPayload>,
    /// Where folders are in `folders`, by parent and name.
    numbers: HashMap<(u32, CString), u32>,
    /// Where payloads are in `payloads`, by CID.
    indices: HashMap<Box<[u8]>, u32>,
}

impl Plan {
    pub fn new() -> Self {
        let top = Folder { parent: TOP, name: CString::default(), exists: true, attributes: Attributes::default() };
        Self {
            folders: vec![top],
            files: Vec::new(),
            kept: Vec::new(),
            links: Vec::new(),
            payloads: Vec::new(),
            numbers: HashMap::new(),
            indices: HashMap::new(),
        }
    }

    /// The number of a folder; it and those above it are added if they are new. No segments are the top.
    pub fn folder(&mut self, segments: &[String]) -> Result<u32> {
        let mut at = TOP;
        for segment in segments {
            let key = (at, name(segment)?);
            at = match self.numbers.get(&key) {
                Some(&number) => number,
                None => {
                    let number = count(self.folders.len())?;
                    let attributes = Attributes::default();
                    self.folders.push(Folder { parent: at, name: key.1.clone(), exists: false, attributes });
                    self.numbers.insert(key, number);
                    number
                }
            };
        }
        Ok(at)
    }

    /// Adds a file that consists of these payloads, at least one, in order. The size of each but the last is known.
    pub fn add_file(
        &mut self,
        path: &[String],
        parts: &[(Cid, Option<u64>)],
        attributes: Attributes,
        placement: Placement,
    ) -> Result<()> {
        let (folder, name) = self.place(path)?;
        let file = count(self.files.len())?;
        let mut offset = 0;
        for (cid, size) in parts {
            let index = match self.indices.get(cid.as_bytes()) {
                Some(&index) => index,
                None => {
                    let index = count(self.payloads.len())?;
                    let (cid, is_done) = (cid.as_bytes().into(), AtomicBool::new(false));
                    self.indices.insert(Box::clone(&cid), index);
                    self.payloads.push(PlannedPayload { cid, places: Vec::new(), is_done });
                    index
                }
            };
            self.payloads[index as usize].places.push(Place { file, offset, size: *size });
            offset += size.unwrap_or(0);
        }
        let (parts_left, is_created) = (AtomicU32::new(count(parts.len())?), Mutex::new(false));
        let state = OnceLock::new();
        self.files.push(File { folder, name, attributes, placement, parts_left, is_created, state });
        Ok(())
    }

    pub fn keep_file(&mut self, path: &[String], attributes: Attributes) -> Result<()> {
        let (folder, name) = self.place(path)?;
        self.kept.push(Kept { folder, name, attributes });
        Ok(())
    }

    pub fn add_link(&mut self, path: &[String], target: Vec<u8>, attributes: Attributes, at: Placement) -> Result<()> {
        let (folder, name) = self.place(path)?;
        let target = CString::new(target).map_err(|_| refused(path, "the link's target contains a NUL"))?;
        self.links.push(Link { folder, name, target, attributes, placement: at });
        Ok(())
    }

    fn place(&mut self, path: &[String]) -> Result<(u32, CString)> {
        let (last, above) = path.split_last().ok_or_else(|| refused(path, "a file needs a name"))?;
        Ok((self.folder(above)?, name(last)?))
    }

    /// The path of an item in this folder, for messages.
    pub fn path(&self, mut folder: u32, name: &CString) -> String {
        let mut names = vec![shown(name)];
        while folder != TOP {
            names.push(shown(&self.folders[folder as usize].name));
            folder = self.folders[folder as usize].parent;
        }
        names.reverse();
        names.join("/")
    }
}

fn shown(name: &CString) -> String {
    OsStr::from_bytes(name.as_bytes()).to_string_lossy().into_owned()
}

/// A segment as the name of a file.
fn name(segment: &String) -> Result<CString> {
    if segment.is_empty() || segment == "." || segment == ".." || segment.contains('/') {
        return Err(refused(std::slice::from_ref(segment), "can't be a file name"));
    }
    CString::new(segment.as_str()).map_err(|_| refused(std::slice::from_ref(segment), "can't be a file name"))
}

fn count(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::input(InputCode::TooLarge, "more than 2^32 files, folders or payloads"))
}

fn refused(path: &[String], why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", path.join("/").escape_debug()))
}
