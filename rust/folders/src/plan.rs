//! The folders, symbolic links and kept files of a `FolderWriter`, which all files are below or beside.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;

use core::{Error, InputCode, Result};
use coregw_core as core;
use coregw_folders::join::shown;

use super::attributes::{Attributes, FileIdentity};

/// The number of the folder that everything is below.
pub(super) const TOP: u32 = 0;

/// A folder. Its parent has a lower number.
pub(super) struct Folder {
    pub parent: u32,
    /// The number of folders above it.
    pub depth: u32,
    pub name: CString,
    pub exists: bool,
    pub attributes: Attributes,
}

/// A file or link that stays as it is, but for its attributes.
pub(super) struct Kept {
    pub folder: u32,
    pub name: CString,
    /// Which file it is; none if any will do.
    pub identity: Option<FileIdentity>,
    pub attributes: Attributes,
    pub is_link: bool,
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

/// All of it.
pub(super) struct Plan {
    pub folders: Vec<Folder>,
    pub kept: Vec<Kept>,
    pub links: Vec<Link>,
    /// Folders that have been made; those after them have not.
    pub made: usize,
    /// Where folders are in `folders`, by parent and name.
    numbers: HashMap<(u32, CString), u32>,
    /// The folder that was added to last, by a folder above it and its path below that: paths mostly follow each other
    /// in one folder.
    last: (u32, Vec<String>, u32),
}

impl Plan {
    pub fn new() -> Self {
        let top =
            Folder { parent: TOP, depth: 0, name: CString::default(), exists: true, attributes: Attributes::default() };
        Self {
            folders: vec![top],
            kept: Vec::new(),
            links: Vec::new(),
            made: 1,
            numbers: HashMap::new(),
            last: (TOP, Vec::new(), TOP),
        }
    }

    /// The number of the folder with this path below another; it and those above it are added if they are new. No
    /// segments are the other folder.
    pub fn folder(&mut self, below: u32, segments: &[String]) -> Result<u32> {
        if self.last.0 == below && self.last.1 == segments {
            return Ok(self.last.2);
        }
        let mut at = self.known(below)?;
        for segment in segments {
            let key = (at, self.name(segment, below, segments)?);
            at = match self.numbers.get(&key) {
                Some(&number) => number,
                None => {
                    let number = count(self.folders.len())?;
                    let depth = self.folders[at as usize].depth + 1;
                    let attributes = Attributes::default();
                    self.folders.push(Folder { parent: at, depth, name: key.1.clone(), exists: false, attributes });
                    self.numbers.insert(key, number);
                    number
                }
            };
        }
        self.last = (below, segments.to_vec(), at);
        Ok(at)
    }

    /// The number of a folder in another, if it was added.
    pub fn folder_in(&self, folder: u32, name: &str) -> Option<u32> {
        self.numbers.get(&(folder, CString::new(name).ok()?)).copied()
    }

    /// Checks that a number is that of a folder.
    pub fn known(&self, folder: u32) -> Result<u32> {
        let what = || Error::request(format!("{folder} is not the number of a folder of the writer"));
        self.folders.get(folder as usize).map(|_| folder).ok_or_else(what)
    }

    /// Adds what stays. `file` is none for a link, and otherwise which file it has to be.
    pub fn keep(
        &mut self,
        (below, path): (u32, &[String]),
        attributes: Attributes,
        file: Option<Option<FileIdentity>>,
    ) -> Result<()> {
        let (folder, name) = self.place(below, path)?;
        self.kept.push(Kept { folder, name, identity: file.flatten(), attributes, is_link: file.is_none() });
        Ok(())
    }

    pub fn add_link(
        &mut self,
        (below, path): (u32, &[String]),
        target: Vec<u8>,
        attributes: Attributes,
        at: Placement,
    ) -> Result<()> {
        let (folder, name) = self.place(below, path)?;
        let target = CString::new(target).map_err(|_| self.refused(below, path, "the link's target contains a NUL"))?;
        self.links.push(Link { folder, name, target, attributes, placement: at });
        Ok(())
    }

    /// The folder and the name of an item with this path below a folder.
    pub fn place(&mut self, below: u32, path: &[String]) -> Result<(u32, CString)> {
        let (last, above) = path.split_last().ok_or_else(|| refused(path, "a file needs a name"))?;
        self.known(below)?;
        let name = self.name(last, below, path)?;
        if let Some(segment) = above.iter().find(|segment| !is_name(segment)) {
            return Err(self.no_name(segment, below, path)); // an error names the whole path
        }
        Ok((self.folder(below, above)?, name))
    }

    /// A segment of a path as the name of a file.
    fn name(&self, segment: &str, below: u32, path: &[String]) -> Result<CString> {
        let name = CString::new(segment).ok().filter(|_| is_name(segment));
        name.ok_or_else(|| self.no_name(segment, below, path))
    }

    fn no_name(&self, segment: &str, below: u32, path: &[String]) -> Error {
        self.refused(below, path, &format!("'{}' can't be a file name", shown(&[segment.to_owned()])))
    }

    /// The error of a path below a folder.
    pub fn refused(&self, below: u32, path: &[String], why: &str) -> Error {
        let mut whole = self.names(below);
        whole.extend_from_slice(path);
        refused(&whole, why)
    }

    fn names(&self, mut folder: u32) -> Vec<String> {
        let mut names = Vec::new();
        while folder != TOP {
            let Folder { parent, name, .. } = &self.folders[folder as usize];
            names.push(text(name));
            folder = *parent;
        }
        names.reverse();
        names
    }

    /// The path of an item in this folder.
    pub fn path(&self, folder: u32, name: &CString) -> String {
        let mut names = self.names(folder);
        names.push(text(name));
        names.join("/")
    }
}

fn text(name: &CString) -> String {
    OsStr::from_bytes(name.as_bytes()).to_string_lossy().into_owned()
}

fn is_name(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains(['/', '\0'])
}

/// A number of files, folders or payloads.
pub(super) fn count(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::input(InputCode::TooLarge, "more than 2^32 files, folders or payloads"))
}

fn refused(path: &[String], why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", shown(path)))
}
