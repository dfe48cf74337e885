//! Removal of folders with all that they have, whatever their depth and their modes, without following links.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::{Beneath, open_folder_in};
use crate::metadata::FileIdentity;
use crate::rights;

/// A folder that was entered: its name, and its mode if that was changed.
struct Entered {
    name: CString,
    mode: Option<Mode>,
}

/// An open folder, from which those in it and the one above it are opened.
///
/// One descriptor is open, whatever the depth: `..` is opened to go up, and has to be the folder that was there.
struct Cursor {
    folder: OwnedFd,
    above: Vec<FileIdentity>,
}

impl Cursor {
    fn down(&mut self, name: &CStr) -> Result<(), Errno> {
        let below = open_folder_in(&self.folder, name)?;
        self.above.push(FileIdentity::from(&fs::fstat(&self.folder)?));
        self.folder = below;
        Ok(())
    }

    fn up(&mut self) -> Result<(), Errno> {
        let above = open_folder_in(&self.folder, c"..")?;
        if self.above.pop() != Some(FileIdentity::from(&fs::fstat(&above)?)) {
            return Err(Errno::STALE); // it was moved meanwhile
        }
        self.folder = above;
        Ok(())
    }
}

/// Removes what has a name in a folder; a folder with all that is in it. O(entries).
///
/// # Errors
/// The first reason why something could not be removed; all else is.
pub fn remove(folder: BorrowedFd<'_>, name: &CStr, is_stopped: &dyn Fn() -> bool) -> Result<(), Errno> {
    let found = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        remove_tree(folder, name, is_stopped)
    } else {
        fs::unlinkat(folder, name, AtFlags::empty())
    }
}

/// Removes a folder by its path, which may lead through links, as far as that is possible. O(entries).
pub fn remove_folder(path: &Path, is_stopped: &dyn Fn() -> bool) {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    if let (Ok(above), Ok(name)) = (Beneath::new(above), CString::new(name.as_bytes())) {
        // What it is told, its caller cannot change.
        let _ = remove(above.as_fd(), &name, is_stopped);
    }
}

/// Removes a folder in another one. Folders of this user get the rights that this needs; one that is not removed has its
/// mode again.
fn remove_tree(folder: BorrowedFd<'_>, name: &CStr, is_stopped: &dyn Fn() -> bool) -> Result<(), Errno> {
    let own = fs::openat(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut cursor = Cursor { folder: own, above: Vec::new() };
    let (mut entered, mut failure) = (Vec::new(), None);
    let mut pending = vec![vec![name.to_owned()]];
    let mut note = |result: Result<(), Errno>| {
        if let Err(error) = result {
            failure.get_or_insert(error);
        }
    };
    while let Some(names) = pending.last_mut() {
        if is_stopped() {
            break;
        }
        if let Some(name) = names.pop() {
            match enter(&mut cursor, &name) {
                Ok(mode) => {
                    entered.push(Entered { name, mode });
                    pending.push(remove_files(&cursor, &mut note, is_stopped));
                }
                Err(error) => note(Err(error)),
            }
            continue;
        }
        pending.pop();
        if let Some(last) = entered.pop() {
            let left = leave(&mut cursor, last, true);
            note(left);
            if left == Err(Errno::STALE) {
                return left; // nothing is where it was
            }
        }
    }
    while let Some(last) = entered.pop() {
        note(leave(&mut cursor, last, false));
    }
    failure.map_or(Ok(()), Err)
}

/// Goes to a folder, with all rights to it, and returns the mode that it had, if that is another one.
fn enter(cursor: &mut Cursor, name: &CStr) -> Result<Option<Mode>, Errno> {
    let mut mode = None;
    if let Err(error) = cursor.down(name) {
        mode = (error == Errno::ACCESS).then(|| rights::allow(cursor.folder.as_fd(), name)).flatten();
        if mode.is_none() {
            return Err(error);
        }
        cursor.down(name)?;
    }
    let had = rights::give(cursor.folder.as_fd(), Mode::RWXU)?;
    Ok(mode.or(had))
}

/// Goes up from a folder, and removes it. One that is not removed has its mode again.
fn leave(cursor: &mut Cursor, Entered { name, mode }: Entered, is_removed: bool) -> Result<(), Errno> {
    let folder = cursor.folder.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let left = cursor.up().and_then(|()| match is_removed {
        true => fs::unlinkat(&cursor.folder, &name, AtFlags::REMOVEDIR),
        false => Ok(()),
    });
    match mode.filter(|_| !is_removed || left.is_err()) {
        Some(mode) => left.and(fs::fchmod(folder, mode)),
        None => left,
    }
}

/// Removes all but folders from a folder, and returns the names of these.
fn remove_files(
    cursor: &Cursor,
    note: &mut impl FnMut(Result<(), Errno>),
    is_stopped: &dyn Fn() -> bool,
) -> Vec<CString> {
    let mut folders = Vec::new();
    let entries = match names(cursor.folder.as_fd()) {
        Ok(entries) => entries,
        Err(error) => {
            note(Err(error));
            Vec::new()
        }
    };
    for (name, kind) in entries {
        match kind {
            _ if is_stopped() => break,
            FileType::Directory => folders.push(name),
            _ => note(fs::unlinkat(&cursor.folder, &name, AtFlags::empty())),
        }
    }
    folders
}

/// The names in an open folder, and what each is.
pub(crate) fn names(folder: BorrowedFd<'_>) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => FileType::from_raw_mode(status.st_mode),
                Err(Errno::NOENT) => continue, // removed meanwhile
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}
