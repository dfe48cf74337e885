//! Opens files below a folder, without following a symbolic link on the way.
//!
//! A survey saw folders where somebody may have put links since. A path would lead through them, to files outside.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Does not block on a named pipe.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A folder that stays the same one when its name is given to another.
pub(super) struct Beneath(OwnedFd);

impl Beneath {
    /// Opens the folder. Its own path may lead through links.
    pub(super) fn new(top: &Path) -> io::Result<Self> {
        Ok(Self(fs::open(top, FOLDER, Mode::empty())?))
    }

    /// Opens a file for reading; `below` is relative, and none of its names is `..`. ELOOP or ENOTDIR if a link is on
    /// the way.
    pub(super) fn open(&self, below: &Path) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        match fs::openat2(&self.0, below, FILE, Mode::empty(), fs::ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6, and containers that refuse what they do not know.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            opened => return Ok(opened?.into()),
        }
        self.open_by_name(below)
    }

    /// As `open`, name by name.
    fn open_by_name(&self, below: &Path) -> io::Result<File> {
        let mut folder: Option<OwnedFd> = None;
        for name in below.parent().into_iter().flatten() {
            let above = folder.as_ref().unwrap_or(&self.0);
            folder = Some(fs::openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?);
        }
        let name = below.file_name().unwrap_or_default();
        Ok(fs::openat(folder.as_ref().unwrap_or(&self.0), name, FILE, Mode::empty())?.into())
    }
}
