//! The attributes of files and folders that a `FolderWriter` sets: mode and time of modification.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, Mode, RawMode, Stat, Timespec, Timestamps, UTIME_OMIT};
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
pub(super) struct Attributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Time of modification, in nanoseconds since 1970.
    pub mtime: Option<i64>,
}

impl Attributes {
    /// The mode to create a file with: no more permissions than it has in the end.
    pub fn creation_mode(self) -> Mode {
        permissions(self.mode.map_or(0o666, |mode| mode | 0o600))
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

    /// Sets what is known.
    pub fn set(self, file: impl AsFd) -> Result<()> {
        if let Some(mode) = self.mode {
            fs::fchmod(&file, permissions(mode))?;
        }
        if let Some(times) = self.times() {
            fs::futimens(&file, &times)?;
        }
        Ok(())
    }

    /// Sets what differs.
    pub fn update(self, file: impl AsFd) -> Result<()> {
        let found = fs::fstat(&file)?;
        let is_same = |mode: u32| permissions(mode) == Mode::from_raw_mode(found.st_mode) & PERMISSIONS;
        let found_mtime = FileStat::from(found).mtime;
        let mode = self.mode.filter(|&mode| !is_same(mode));
        let mtime = self.mtime.filter(|&mtime| i128::from(mtime) != found_mtime);
        Self { mode, mtime }.set(file)
    }

    /// Sets the time of a symbolic link, if it differs.
    pub fn update_link(self, folder: impl AsFd, name: &CStr) -> Result<()> {
        let found = FileStat::from(fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?);
        match self.times().filter(|_| self.mtime.map(i128::from) != Some(found.mtime)) {
            Some(times) => fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW),
            None => Ok(()),
        }
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

/// What tells whether a file has changed: times in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStat {
    pub inode: u64,
    pub size: i64,
    pub mtime: i128,
    pub ctime: i128,
}

impl FileStat {
    pub fn of(file: impl AsFd) -> Result<Self> {
        fs::fstat(file).map(Self::from)
    }

    /// Whether the file has the same content, although it may have been renamed.
    pub fn is_renamed(self, other: Self) -> bool {
        Self { ctime: other.ctime, ..self } == other
    }
}

impl From<Stat> for FileStat {
    fn from(found: Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: i128| i128::from(seconds) * 1_000_000_000 + rest;
        Self {
            inode: found.st_ino,
            size: found.st_size,
            mtime: nanoseconds(found.st_mtime, found.st_mtime_nsec.into()),
            ctime: nanoseconds(found.st_ctime, found.st_ctime_nsec.into()),
        }
    }
}
