//! Rights of this user to folders of the user's own, which a restore needs and their modes do not give.
//!
//! They are given when they are needed, to the owner alone, and taken back in the end.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{self, Access, AtFlags, Mode};
use rustix::io::Errno;

use crate::beneath::Beneath;
use crate::parallel::locked;

/// What an owner needs to list a folder and to enter it.
pub(crate) const ENTER: Mode = Mode::RUSR.union(Mode::XUSR);
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// The modes that folders had before rights to them were given, by their numbers.
#[derive(Default)]
pub(crate) struct Rights(Mutex<BTreeMap<u32, Mode>>);

impl Rights {
    /// Notes that a folder had this mode.
    pub fn note(&self, number: u32, mode: Mode) {
        locked(&self.0).entry(number).or_insert(mode);
    }

    /// Gives all rights to an open folder if some of `wanted` are missing.
    pub fn give(&self, number: u32, folder: BorrowedFd<'_>, wanted: Mode) -> Result<(), Errno> {
        if let Some(mode) = give(folder, wanted)? {
            self.note(number, mode);
        }
        Ok(())
    }

    /// Takes nothing back from a folder whose mode was set to another.
    pub fn leave(&self, number: u32) {
        locked(&self.0).remove(&number);
    }

    /// All that were given, which are forgotten.
    pub fn take(&self) -> BTreeMap<u32, Mode> {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// All rights to one folder, which it has until they are taken back.
pub struct FolderRights {
    folder: Beneath,
    had: Mode,
}

impl FolderRights {
    /// Gives them to a folder of the user's own. None if the user lacks none, or there is no folder.
    ///
    /// # Errors
    /// The folder can't be opened, or the system refuses it.
    pub fn give(folder: &Path) -> io::Result<Option<Self>> {
        let folder = match Beneath::new(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        Ok(give(folder.as_fd(), Mode::RWXU)?.map(|had| Self { folder, had }))
    }

    /// Gives the folder the mode that it had. What others may no longer do stays so.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn take_back(self) -> io::Result<()> {
        Ok(take_back(self.folder.as_fd(), self.had)?)
    }
}

fn mode_of(folder: BorrowedFd<'_>) -> Result<(Mode, bool), Errno> {
    let found = fs::fstat(folder)?;
    Ok((Mode::from_raw_mode(found.st_mode), found.st_uid == rustix::process::geteuid().as_raw()))
}

/// Gives the user all rights to an open folder of the user's own that lacks some of `wanted`, and returns the mode that it
/// had. A superuser may lack nothing.
pub(crate) fn give(folder: BorrowedFd<'_>, wanted: Mode) -> Result<Option<Mode>, Errno> {
    let (mode, is_own) = mode_of(folder)?;
    let access = Access::from_bits_truncate(wanted.bits() >> 6);
    if !is_own || mode.contains(wanted) || fs::accessat(folder, c".", access, AtFlags::EACCESS).is_ok() {
        return Ok(None);
    }
    fs::fchmod(folder, mode | Mode::RWXU)?;
    Ok(Some(mode))
}

/// Gives the user all rights to a folder in another that cannot be opened, and returns the mode that it had. None if it is
/// another user's, or cannot be changed without permission to read it, as on some systems.
#[cfg(target_os = "linux")]
pub(crate) fn allow(above: BorrowedFd<'_>, name: &CStr) -> Option<Mode> {
    use rustix::fs::OFlags;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(above, name, flags, Mode::empty()).ok()?;
    let (mode, is_own) = mode_of(folder.as_fd()).ok()?;
    let path = crate::metadata::proc_path(folder.as_fd());
    (is_own && fs::chmodat(fs::CWD, path, mode | Mode::RWXU, AtFlags::empty()).is_ok()).then_some(mode)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allow(_: BorrowedFd<'_>, _: &CStr) -> Option<Mode> {
    None
}

/// Gives a folder the mode that it had. What others may no longer do stays so, and a sticky bit too.
pub(crate) fn take_back(folder: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let (now, _) = mode_of(folder.as_fd())?;
    fs::fchmod(folder, mode.difference(OTHERS.difference(now)) | (now & Mode::SVTX))
}
