//! The attributes of files and folders that a restore sets: mode and time of modification, and what else is chosen.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, RawMode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::{Errno, Result};

use crate::attributes::Attributes;

/// The bits of a file's mode that are set: permissions, without set-uid, set-gid and sticky.
const PERMISSIONS: Mode = Mode::from_bits_retain(0o777);
/// The bits of a folder's mode that are set: in a folder that is shared, the sticky bit protects files from others.
const FOLDER_BITS: Mode = PERMISSIONS.union(Mode::SVTX);
/// The bits of a mode that are set with an owner.
const ALL_BITS: Mode = Mode::from_bits_retain(0o7777);

/// The permissions of a recorded mode, for a system whose type of modes may be smaller.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as RawMode) & PERMISSIONS
}

/// What is restored besides content, permissions, times and links.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// The owning user and group, and with them the set-uid and set-gid bits.
    pub owners: bool,
    /// Extended attributes of files and folders: to root, those of users only (`user.`), since others may give programs
    /// rights. Those of users that the tree does not have are removed.
    pub xattrs: bool,
    /// Extended attributes that are restored in any case.
    pub xattr_names: Vec<String>,
    /// Whether the user is root.
    pub is_root: bool,
}

impl Extras {
    /// What this user restores.
    pub fn new(owners: bool, xattrs: bool, xattr_names: Vec<String>) -> Self {
        Self { owners, xattrs, xattr_names, is_root: rustix::process::geteuid().is_root() }
    }

    /// Whether any extended attributes are restored.
    pub fn has_xattrs(&self) -> bool {
        self.xattrs || !self.xattr_names.is_empty()
    }

    /// Whether an extended attribute is restored.
    pub fn restores(&self, name: &str) -> bool {
        self.xattrs && (!self.is_root || name.starts_with(USERS)) || self.xattr_names.iter().any(|each| each == name)
    }

    /// What is set of recorded attributes.
    pub fn metadata(&self, known: &Arc<Attributes>) -> Metadata {
        let is_executable = known.is_exec_bit();
        Metadata {
            mode: known.mode.filter(|_| !is_executable).map(u32::from),
            mtime: known.mtime,
            is_executable,
            owner: known.owner.filter(|_| self.owners),
            xattrs: (self.has_xattrs() && !known.xattrs.is_empty()).then(|| Arc::clone(known)),
        }
    }
}

/// What users name their own extended attributes.
const USERS: &str = "user.";

/// What is known of a file, folder or link, beside its content. What is not known stays as the system made it.
#[derive(Clone, Default)]
pub struct Metadata {
    /// Permissions; with an owner, the set-uid and set-gid bits as well.
    pub mode: Option<u32>,
    /// Time of modification, in nanoseconds since 1970.
    pub mtime: Option<i64>,
    /// Whether a new file without a mode is executable, as far as the umask lets new files be.
    pub is_executable: bool,
    /// The owning user and group.
    pub owner: Option<(u32, u32)>,
    /// Attributes with extended ones, if any of these may be restored.
    pub xattrs: Option<Arc<Attributes>>,
}

impl Metadata {
    /// The mode to create a file with: no more permissions than it has in the end.
    pub fn creation_mode(&self) -> Mode {
        let new = if self.is_executable { 0o777 } else { 0o666 };
        self.until_owned(permissions(self.mode.map_or(new, |mode| mode | 0o600)))
    }

    /// The mode to make a folder with: no more permissions for others than it has in the end, and all for its owner.
    pub fn folder_creation_mode(&self) -> Mode {
        self.until_owned(permissions(self.mode.unwrap_or(0o777))) | Mode::RWXU
    }

    /// A mode for as long as something may not have its owner: its group is another one than the mode is meant for.
    fn until_owned(&self, mode: Mode) -> Mode {
        if self.owner.is_some() && self.mode.is_some() { mode & Mode::RWXU } else { mode }
    }

    /// The bits of a mode that are set.
    fn bits(&self, bits: Mode) -> Mode {
        if self.owner.is_some() { ALL_BITS } else { bits }
    }

    /// Takes the permissions of others that a folder which exists has now, and does not have in the end: what is made in
    /// it meanwhile may rely on that.
    pub fn protect_folder(&self, folder: impl AsFd) -> Result<()> {
        let Some(mode) = self.mode else { return Ok(()) };
        let status = fs::fstat(&folder)?;
        let found = Mode::from_raw_mode(status.st_mode);
        let is_owned = self.owner.is_none_or(|owner| owner == (status.st_uid, status.st_gid));
        let wanted = if is_owned { permissions(mode) } else { self.until_owned(permissions(mode)) };
        let sticky = Mode::from_raw_mode(mode as RawMode) & Mode::SVTX;
        let protected = found.difference((Mode::RWXG | Mode::RWXO).difference(wanted)) | sticky;
        if protected == found { Ok(()) } else { fs::fchmod(folder, protected) }
    }

    /// Gives a folder, before it gets its content, a mode no looser than it has in the end, and all rights for its owner.
    pub fn prepare_folder(&self, folder: impl AsFd) -> Result<()> {
        self.protect_folder(&folder)?;
        let Some(mode) = self.mode else { return Ok(()) };
        let found = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode);
        let wanted = self.until_owned(Mode::from_raw_mode(mode as RawMode) & FOLDER_BITS) | Mode::RWXU;
        let wanted = wanted | found.difference(FOLDER_BITS);
        if wanted == found { Ok(()) } else { fs::fchmod(folder, wanted) }
    }

    /// What is set of a file that has this mode and stays. Whether it is executable is set only if the tree records that
    /// of each file, and nothing else: like other new permissions, for those who may read it.
    pub(crate) fn of_kept(&self, found: u32, records_exec_bits: bool) -> Self {
        let mode = match self.mode {
            None if self.is_executable => (found & 0o100 == 0).then_some(found & 0o7777 | 0o100 | (found & 0o444) >> 2),
            None if records_exec_bits && found & 0o111 != 0 => Some(found & 0o666),
            mode => mode,
        };
        Self { mode, ..self.clone() }
    }

    /// Sets what is known of a folder. Without an owner, its set-uid and set-gid bits stay.
    pub fn set_folder(&self, folder: BorrowedFd<'_>, extras: &Extras) -> Result<()> {
        self.settle(&OpenFile(folder), &fs::fstat(folder)?, FOLDER_BITS, extras)?;
        match self.times() {
            Some(times) => fs::futimens(folder, &times),
            None => Ok(()),
        }
    }

    /// Sets what is known of a new file, and returns the state that it has then.
    ///
    /// Most files are created with their permissions, and `fchmod` costs as much as creating a file.
    pub fn finish(&self, file: BorrowedFd<'_>, extras: &Extras) -> Result<FileStat> {
        if self.owner.is_some() || self.xattrs.is_some() {
            self.settle(&OpenFile(file), &fs::fstat(file)?, PERMISSIONS, extras)?;
        }
        if let Some(times) = self.times() {
            fs::futimens(file, &times)?;
        }
        let found = fs::fstat(file)?;
        let bits = self.bits(PERMISSIONS);
        let mode = self.mode.map(|mode| Mode::from_raw_mode(mode as RawMode) & bits);
        match mode.filter(|mode| *mode != Mode::from_raw_mode(found.st_mode) & bits) {
            None => Ok(FileStat::from(found)),
            Some(mode) => {
                fs::fchmod(file, mode)?;
                FileStat::of(file)
            }
        }
    }

    /// Sets what differs of the file `name`, which needs no permission to read or write it, and returns the states before
    /// and after. Sets nothing, and returns none, if that is not a regular file, or not the one that is `expected`.
    pub fn update(
        &self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        expected: FileIdentity,
        extras: &Extras,
    ) -> Result<Option<[FileStat; 2]>> {
        let file = NamedFile::open(folder, name)?;
        let found = file.stat()?;
        let is_regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_regular || expected != FileIdentity::from(&found) {
            return Ok(None);
        }
        self.settle(&file, &found, PERMISSIONS, extras)?;
        let before = FileStat::from(found);
        if self.mtime.is_some_and(|mtime| i128::from(mtime) != before.mtime)
            && let Some(times) = self.times()
        {
            file.set_times(&times)?;
        }
        Ok(Some([before, FileStat::from(file.stat()?)]))
    }

    /// Sets the owner and the time of a symbolic link, if they differ. Sets nothing, and returns false, if that is something
    /// else.
    pub fn update_link(&self, folder: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
        let link = NamedFile::open(folder, name)?;
        let found = link.stat()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok(false);
        }
        if let Some(owner) = self.owner.filter(|&owner| owner != (found.st_uid, found.st_gid)) {
            link.set_owner(owner)?;
        }
        if let Some(times) = self.times().filter(|_| self.mtime.map(i128::from) != Some(FileStat::from(found).mtime)) {
            link.set_times(&times)?;
        }
        Ok(true)
    }

    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        self.mode.is_none() && self.mtime.is_none() && self.owner.is_none() && self.xattrs.is_none()
    }

    /// Whether there is nothing to set, and nothing to remove, of what exists.
    pub fn changes_nothing(&self, extras: &Extras) -> bool {
        self.is_empty() && !extras.xattrs
    }

    /// The times to set: that of access stays.
    pub fn times(&self) -> Option<Timestamps> {
        const SECOND: i64 = 1_000_000_000;
        self.mtime.map(|mtime| Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.div_euclid(SECOND), tv_nsec: mtime.rem_euclid(SECOND) },
        })
    }

    /// Sets the owner, the extended attributes and the mode of a file or folder, where they differ from what was `found`.
    ///
    /// The owner comes first, since a change of owner clears the special bits. Meanwhile neither the old group nor the new
    /// one has the permissions that are meant for the other.
    fn settle(&self, file: &impl Settable, found: &Stat, bits: Mode, extras: &Extras) -> Result<()> {
        let had = Mode::from_raw_mode(found.st_mode);
        let (mut now, mut wanted) = (had, had);
        if let Some(owner) = self.owner.filter(|&owner| owner != (found.st_uid, found.st_gid)) {
            if had != had & Mode::RWXU {
                file.set_mode(had & Mode::RWXU)?;
            }
            file.set_owner(owner)?;
            (now, wanted) = (had & Mode::RWXU, had & PERMISSIONS);
        }
        if let Some(mode) = self.mode {
            let bits = self.bits(bits);
            let set = Mode::from_raw_mode(mode as RawMode) & bits;
            let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            if set != wanted & bits {
                wanted = if is_folder { set | wanted.difference(bits) } else { set };
            }
        }
        let set = if extras.has_xattrs() { self.set_xattrs(file, &mut now, extras) } else { Ok(()) };
        if wanted != now {
            file.set_mode(wanted)?;
        }
        set
    }

    fn set_xattrs(&self, file: &impl Settable, now: &mut Mode, extras: &Extras) -> Result<()> {
        let none = BTreeMap::new();
        let known = self.xattrs.as_ref().map_or(&none, |known| &known.xattrs);
        let found = if extras.xattrs { file.xattr_names()? } else { Vec::new() };
        let is_known = |name: &OsStr| name.to_str().is_some_and(|name| known.contains_key(name));
        let is_stale = |name: &&OsString| name.as_bytes().starts_with(USERS.as_bytes()) && !is_known(name);
        let stale: Vec<_> = found.iter().filter(is_stale).collect();
        let is_missing = |(name, value): &(&String, &Vec<u8>)| {
            extras.restores(name) && file.xattr(name.as_ref()).ok().flatten().as_ref() != Some(value)
        };
        let missing: Vec<_> = known.iter().filter(is_missing).collect();
        if stale.is_empty() && missing.is_empty() {
            return Ok(());
        }
        // An owner without permission to write to a file cannot change its extended attributes.
        if !now.contains(WRITE) && file.stat()?.st_uid == rustix::process::geteuid().as_raw() {
            file.set_mode(*now | WRITE)?;
            *now |= WRITE;
        }
        stale.into_iter().try_for_each(|name| file.remove_xattr(name))?;
        missing.into_iter().try_for_each(|(name, value)| file.set_xattr(name.as_ref(), value))
    }
}

/// What the owner of a file needs to change its extended attributes.
const WRITE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A file or folder whose attributes are set, whatever name it has.
trait Settable {
    fn stat(&self) -> Result<Stat>;
    fn set_mode(&self, mode: Mode) -> Result<()>;
    fn set_owner(&self, owner: (u32, u32)) -> Result<()>;
    fn xattr_names(&self) -> Result<Vec<OsString>>;
    fn xattr(&self, name: &OsStr) -> Result<Option<Vec<u8>>>;
    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()>;
    fn remove_xattr(&self, name: &OsStr) -> Result<()>;
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The names that there are; none where the file system has no extended attributes.
fn listed(names: io::Result<impl Iterator<Item = OsString>>) -> Result<Vec<OsString>> {
    match names.map_err(errno) {
        Ok(names) => Ok(names.collect()),
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// An open file or folder.
struct OpenFile<'a>(BorrowedFd<'a>);

impl AsRawFd for OpenFile<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl xattr::FileExt for OpenFile<'_> {}

impl Settable for OpenFile<'_> {
    fn stat(&self) -> Result<Stat> {
        fs::fstat(self.0)
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        fs::fchmod(self.0, mode)
    }

    fn set_owner(&self, (user, group): (u32, u32)) -> Result<()> {
        fs::fchown(self.0, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
    }

    fn xattr_names(&self) -> Result<Vec<OsString>> {
        listed(xattr::FileExt::list_xattr(self))
    }

    fn xattr(&self, name: &OsStr) -> Result<Option<Vec<u8>>> {
        xattr::FileExt::get_xattr(self, name).map_err(errno)
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        xattr::FileExt::set_xattr(self, name, value).map_err(errno)
    }

    fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        xattr::FileExt::remove_xattr(self, name).map_err(errno)
    }
}

/// The path of an open file in `/proc`, by which that is changed which a descriptor that only names it is refused.
#[cfg(target_os = "linux")]
pub(crate) fn proc_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
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

    fn path(&self) -> String {
        proc_path(self.file.0.as_fd())
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        fs::utimensat(fs::CWD, self.path(), times, AtFlags::empty())
    }
}

#[cfg(target_os = "linux")]
impl Settable for NamedFile<'_> {
    fn stat(&self) -> Result<Stat> {
        fs::fstat(&self.file.0)
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        fs::chmodat(fs::CWD, self.path(), mode, AtFlags::empty())
    }

    fn set_owner(&self, (user, group): (u32, u32)) -> Result<()> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        fs::chownat(&self.file.0, c"", user, group, AtFlags::EMPTY_PATH)
    }

    fn xattr_names(&self) -> Result<Vec<OsString>> {
        listed(xattr::list_deref(self.path()))
    }

    fn xattr(&self, name: &OsStr) -> Result<Option<Vec<u8>>> {
        xattr::get_deref(self.path(), name).map_err(errno)
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        xattr::set_deref(self.path(), name, value).map_err(errno)
    }

    fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        xattr::remove_deref(self.path(), name).map_err(errno)
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> NamedFile<'a> {
    fn open(folder: BorrowedFd<'a>, name: &'a CStr) -> Result<Self> {
        Ok(Self { file: (folder, name) })
    }

    /// The file, for what needs a descriptor.
    fn opened(&self) -> Result<std::os::fd::OwnedFd> {
        let flags = fs::OFlags::RDONLY | fs::OFlags::NONBLOCK | fs::OFlags::NOFOLLOW | fs::OFlags::CLOEXEC;
        fs::openat(self.file.0, self.file.1, flags, Mode::empty())
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        fs::utimensat(self.file.0, self.file.1, times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

#[cfg(not(target_os = "linux"))]
impl Settable for NamedFile<'_> {
    fn stat(&self) -> Result<Stat> {
        fs::statat(self.file.0, self.file.1, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_mode(&self, mode: Mode) -> Result<()> {
        fs::chmodat(self.file.0, self.file.1, mode, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_owner(&self, (user, group): (u32, u32)) -> Result<()> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        fs::chownat(self.file.0, self.file.1, user, group, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn xattr_names(&self) -> Result<Vec<OsString>> {
        OpenFile(self.opened()?.as_fd()).xattr_names()
    }

    fn xattr(&self, name: &OsStr) -> Result<Option<Vec<u8>>> {
        OpenFile(self.opened()?.as_fd()).xattr(name)
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        OpenFile(self.opened()?.as_fd()).set_xattr(name, value)
    }

    fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        OpenFile(self.opened()?.as_fd()).remove_xattr(name)
    }
}

/// Which file something is, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
