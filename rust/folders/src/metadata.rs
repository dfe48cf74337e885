//! The attributes of files and folders that a restore sets: mode and time of modification.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, RawMode, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Result;

/// The bits of a file's mode that are set: permissions, without set-uid, set-gid and sticky.
const PERMISSIONS: Mode = Mode::from_bits_retain(0o777);
/// The bits of a folder's mode that are set: in a folder that is shared, the sticky bit protects files from others.
const FOLDER_BITS: Mode = PERMISSIONS.union(Mode::SVTX);

/// The permissions of a recorded mode, for a system whose type of modes may be smaller.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as RawMode) & PERMISSIONS
}

/// What is known of a file, folder or link, beside its content. What is not known stays as the system made it.
#[derive(Clone, Copy, Default)]
pub struct Metadata {
    /// Permissions.
    pub mode: Option<u32>,
    /// Time of modification, in nanoseconds since 1970.
    pub mtime: Option<i64>,
    /// Whether a new file without a mode is executable, as far as the umask lets new files be.
    pub is_executable: bool,
}

impl Metadata {
    /// The mode to create a file with: no more permissions than it has in the end.
    pub fn creation_mode(self) -> Mode {
        let new = if self.is_executable { 0o777 } else { 0o666 };
        permissions(self.mode.map_or(new, |mode| mode | 0o600))
    }

    /// The mode to make a folder with: no more permissions for others than it has in the end, and all for its owner.
    pub fn folder_creation_mode(self) -> Mode {
        permissions(self.mode.unwrap_or(0o777)) | Mode::RWXU
    }

    /// Takes the permissions of others that a folder which exists has now, and does not have in the end: what is made in
    /// it meanwhile may rely on that.
    pub fn protect_folder(self, folder: impl AsFd) -> Result<()> {
        let Some(mode) = self.mode else { return Ok(()) };
        let found = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode);
        let sticky = Mode::from_raw_mode(mode as RawMode) & Mode::SVTX;
        let protected = found.difference((Mode::RWXG | Mode::RWXO).difference(permissions(mode))) | sticky;
        if protected == found { Ok(()) } else { fs::fchmod(folder, protected) }
    }

    /// Sets what is known of a folder. Its set-uid and set-gid bits stay.
    pub fn set_folder(self, folder: impl AsFd) -> Result<()> {
        if let Some(mode) = self.mode {
            let found = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode);
            let mode = (Mode::from_raw_mode(mode as RawMode) & FOLDER_BITS) | found.difference(FOLDER_BITS);
            if mode != found {
                fs::fchmod(&folder, mode)?;
            }
        }
        match self.times() {
            Some(times) => fs::futimens(folder, &times),
            None => Ok(()),
        }
    }

    /// Sets what is known of a new file, and returns the state that it has then.
    ///
    /// Most files are created with their permissions, and `fchmod` costs as much as creating a file.
    pub fn finish(self, file: impl AsFd) -> Result<FileStat> {
        if let Some(times) = self.times() {
            fs::futimens(&file, &times)?;
        }
        let found = fs::fstat(&file)?;
        match self.mode.map(permissions).filter(|mode| *mode != Mode::from_raw_mode(found.st_mode) & PERMISSIONS) {
            None => Ok(FileStat::from(found)),
            Some(mode) => {
                fs::fchmod(&file, mode)?;
                FileStat::of(file)
            }
        }
    }

    /// Sets what differs of the file `name`, which needs no permission to read or write it. Sets nothing, and returns
    /// false, if that is not a regular file, or not the one that is `expected`.
    pub fn update(self, folder: impl AsFd, name: &CStr, expected: Option<FileIdentity>) -> Result<bool> {
        let file = NamedFile::open(folder.as_fd(), name)?;
        let found = file.stat()?;
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_regular || expected.is_some_and(|expected| expected != FileIdentity::from(&found)) {
            return Ok(false);
        }
        let is_same = |mode: u32| permissions(mode) == Mode::from_raw_mode(found.st_mode) & PERMISSIONS;
        let found_mtime = FileStat::from(found).mtime;
        if let Some(mode) = self.mode.filter(|&mode| !is_same(mode)) {
            file.set_mode(permissions(mode))?;
        }
        if self.mtime.is_some_and(|mtime| i128::from(mtime) != found_mtime)
            && let Some(times) = self.times()
        {
            file.set_times(&times)?;
        }
        Ok(true)
    }

    /// Sets the time of a symbolic link, if it differs. Sets nothing, and returns false, if that is something else.
    pub fn update_link(self, folder: impl AsFd, name: &CStr) -> Result<bool> {
        let link = NamedFile::open(folder.as_fd(), name)?;
        let found = link.stat()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(false);
        }
        if let Some(times) = self.times().filter(|_| self.mtime.map(i128::from) != Some(FileStat::from(found).mtime)) {
            link.set_times(&times)?;
        }
        Ok(true)
    }

    /// Whether there is nothing to set.
    pub fn is_empty(self) -> bool {
        self.mode.is_none() && self.mtime.is_none()
    }

    /// The times to set: that of access stays.
    pub fn times(self) -> Option<Timestamps> {
        const SECOND: i64 = 1_000_000_000;
        self.mtime.map(|mtime| Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.div_euclid(SECOND), tv_nsec: mtime.rem_euclid(SECOND) },
        })
    }
}

/// A file whose attributes are read and set without permission to read or write it.
///
/// In Linux, a descriptor that only names it; `fchmod` refuses that, its path in `/proc` is taken. Elsewhere its name.
struct NamedFile<'a> {
    #[cfg(target_os = "linux")]
    file: (std::os::fd::OwnedFd, std::marker::PhantomData<&'a ()>),
    #[cfg(not(target_os = "linux"))]
    file: (BorrowedFd<'a>, &'a CStr),
}

#[cfg(target_os = "linux")]
impl<'a> NamedFile<'a> {
    fn open(folder: BorrowedFd<'a>, name: &'a CStr) -> Result<Self> {
        let flags = fs::OFlags::PATH | fs::OFlags::NOFOLLOW | fs::OFlags::CLOEXEC;
        Ok(Self { file: (fs::openat(folder, name, flags, Mode::empty())?, std::marker::PhantomData) })
    }

    fn stat(&self) -> Result<Stat> {
        fs::fstat(&self.file.0)
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file.0))
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        fs::chmodat(fs::CWD, self.path(), mode, AtFlags::empty())
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        fs::utimensat(fs::CWD, self.path(), times, AtFlags::empty())
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> NamedFile<'a> {
    fn open(folder: BorrowedFd<'a>, name: &'a CStr) -> Result<Self> {
        Ok(Self { file: (folder, name) })
    }

    fn stat(&self) -> Result<Stat> {
        fs::statat(self.file.0, self.file.1, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        fs::chmodat(self.file.0, self.file.1, mode, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        fs::utimensat(self.file.0, self.file.1, times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Which file something is, whatever its name is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The number of the device.
    pub device: u64,
    /// The number of the inode.
    pub inode: u64,
}

impl From<&Stat> for FileIdentity {
    #[allow(clippy::unnecessary_cast)] // the types differ between systems
    fn from(found: &Stat) -> Self {
        Self { device: found.st_dev as u64, inode: found.st_ino as u64 }
    }
}

/// What tells whether a file has changed: times in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Its owner, the number of its names, and whether it is a regular file. A new file may get the inode of one that was
    /// removed.
    names: (u32, u64, bool),
    pub(crate) size: i64,
    pub(crate) mtime: i128,
    pub(crate) ctime: i128,
}

impl FileStat {
    pub(crate) fn of(file: impl AsFd) -> Result<Self> {
        fs::fstat(file).map(Self::from)
    }

    /// Whether it is the same file, with as many names.
    pub fn is_same_file(self, other: Self) -> bool {
        (self.device, self.inode, self.names) == (other.device, other.inode, other.names)
    }

    /// Whether the file has the same content, although it may have been renamed.
    pub fn is_renamed(self, other: Self) -> bool {
        Self { ctime: other.ctime, ..self } == other
    }
}

impl From<Stat> for FileStat {
    fn from(found: Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: i128| i128::from(seconds) * 1_000_000_000 + rest;
        let FileIdentity { device, inode } = (&found).into();
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        #[allow(clippy::unnecessary_cast)] // the type differs between systems
        let names = (found.st_uid, found.st_nlink as u64, is_regular);
        Self {
            device,
            inode,
            names,
            size: found.st_size,
            mtime: nanoseconds(found.st_mtime, found.st_mtime_nsec.into()),
            ctime: nanoseconds(found.st_ctime, found.st_ctime_nsec.into()),
        }
    }
}
