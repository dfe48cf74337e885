//! Opens files and folders below a folder, without following a symbolic link on the way.
//!
//! Somebody may put a link where a folder was seen. A path would lead through it, to files outside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Does not block on a named pipe.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A folder that stays the same one when its name is given to another.
pub struct Beneath(OwnedFd);

impl Beneath {
    /// Opens the folder. Its own path may lead through links.
    pub fn new(top: &Path) -> io::Result<Self> {
        Ok(Self(fs::open(top, FOLDER, Mode::empty())?))
    }

    /// Opens a file or folder for reading; `below` is relative, and none of its names is `..`. ELOOP or ENOTDIR if a
    /// link is on the path.
    pub fn open(&self, below: &Path) -> io::Result<File> {
        self.open_as(below, FILE).map(File::from)
    }

    /// Opens a folder, as `open`. An empty path is the folder itself.
    pub fn open_folder(&self, below: &Path) -> io::Result<OwnedFd> {
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        self.open_as(below, FOLDER | OFlags::NOFOLLOW)
    }

    fn open_as(&self, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        match fs::openat2(&self.0, below, flags, Mode::empty(), fs::ResolveFlags::NO_SYMLINKS) {
            // Kernels before 5.6, containers that refuse what they do not know, and paths that are too long for one call.
            Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => {}
            opened => return Ok(opened?),
        }
        self.open_by_name(below, flags)
    }

    /// As `open_as`, name by name.
    fn open_by_name(&self, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let folder = open_folders_in(&self.0, below.parent().into_iter().flatten())?;
        let name = below.file_name().unwrap_or(".".as_ref());
        Ok(fs::openat(folder.as_ref().unwrap_or(&self.0), name, flags, Mode::empty())?)
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a folder by its name in another. ELOOP or ENOTDIR if that is a link.
pub(crate) fn open_folder_in(above: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    fs::openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// Opens a folder by the names of those it is in and its own, the outermost first. None if there are no names.
pub(crate) fn open_folders_in(
    above: impl AsFd,
    names: impl IntoIterator<Item = impl Arg>,
) -> Result<Option<OwnedFd>, Errno> {
    names.into_iter().try_fold(None, |folder: Option<OwnedFd>, name| {
        open_folder_in(folder.as_ref().map_or(above.as_fd(), AsFd::as_fd), name).map(Some)
    })
}

/// Why a file was skipped, in the words of the system.
pub fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) if number == Errno::LOOP.raw_os_error() => "a symbolic link".to_owned(),
        Some(number) => {
            let text = error.to_string();
            text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text).to_lowercase()
        }
        None => error.to_string().to_lowercase(),
    }
}

/// A file's name for messages: on one line, with escapes for what is not printable or not UTF-8.
pub fn shown(file: &Path) -> String {
    let mut text = String::new();
    for chunk in file.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\'' | '"' => text.push(c),
                c => text.extend(c.escape_debug()),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}
