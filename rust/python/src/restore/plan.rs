//! The folders, symbolic links and kept files of a `FolderWriter`, which all files are below or beside.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;

use core::{Error, InputCode, Result};
use coregw_core as core;
use coregw_ops::folder::join::shown;

use super::attributes::Attributes;

/// The number of the folder that everything is below.
pub(super) const TOP: u32 = 0;

/// A folder. Its parent has a lower number.
pub(super) struct Folder {
    pub parent: u32,
    pub name: CString,
    pub exists: bool,
    pub attributes: Attributes,
}

/// A file or link that stays as it is, but for its attributes.
pub(super) struct Kept {
    pub folder: u32,
    pub name: CString,
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
    /// The folder that was added to last: paths mostly follow each other in one folder.
    last: (Vec<String>, u32),
}

impl Plan {
    pub fn new() -> Self {
        let top = Folder { parent: TOP, name: CString::default(), exists: true, attributes: Attributes::default() };
        Self {
            folders: vec![top],
            kept: Vec::new(),
            links: Vec::new(),
            made: 1,
            numbers: HashMap::new(),
            last: (Vec::new(), TOP),
        }
    }

    /// The number of a folder; it and those above it are added if they are new. No segments are the top.
    pub fn folder(&mut self, segments: &[String]) -> Result<u32> {
        if self.last.0 == segments {
            return Ok(self.last.1);
        }
        let mut at = TOP;
        for segment in segments {
            let key = (at, name(segment, segments)?);
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
        self.last = (segments.to_vec(), at);
        Ok(at)
    }

    pub fn keep(&mut self, path: &[String], attributes: Attributes, is_link: bool) -> Result<()> {
        let (folder, name) = self.place(path)?;
        self.kept.push(Kept { folder, name, attributes, is_link });
        Ok(())
    }

    pub fn add_link(&mut self, path: &[String], target: Vec<u8>, attributes: Attributes, at: Placement) -> Result<()> {
        let (folder, name) = self.place(path)?;
        let target = CString::new(target).map_err(|_| refused(path, "the link's target contains a NUL"))?;
        self.links.push(Link { folder, name, target, attributes, placement: at });
        Ok(())
    }

    /// The folder and the name of an item.
    pub fn place(&mut self, path: &[String]) -> Result<(u32, CString)> {
        let (last, above) = path.split_last().ok_or_else(|| refused(path, "a file needs a name"))?;
        let name = name(last, path)?;
        check(above, path)?;
        Ok((self.folder(above)?, name))
    }

    /// The path of an item in this folder.
    pub fn path(&self, mut folder: u32, name: &CString) -> String {
        let mut names = vec![text(name)];
        while folder != TOP {
            names.push(text(&self.folders[folder as usize].name));
            folder = self.folders[folder as usize].parent;
        }
        names.reverse();
        names.join("/")
    }
}

fn text(name: &CString) -> String {
    OsStr::from_bytes(name.as_bytes()).to_string_lossy().into_owned()
}

/// Checks the folders above an item, so that an error names the whole path.
fn check(above: &[String], path: &[String]) -> Result<()> {
    above.iter().try_for_each(|segment| if is_name(segment) { Ok(()) } else { Err(no_name(segment, path)) })
}

/// A segment of a path as the name of a file.
fn name(segment: &str, path: &[String]) -> Result<CString> {
    let name = CString::new(segment).ok().filter(|_| is_name(segment));
    name.ok_or_else(|| no_name(segment, path))
}

fn is_name(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains(['/', '\0'])
}

fn no_name(segment: &str, path: &[String]) -> Error {
    refused(path, &format!("'{}' can't be a file name", shown(&[segment.to_owned()])))
}

/// A number of files, folders or payloads.
pub(super) fn count(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::input(InputCode::TooLarge, "more than 2^32 files, folders or payloads"))
}

pub(super) fn refused(path: &[String], why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", shown(path)))
}
