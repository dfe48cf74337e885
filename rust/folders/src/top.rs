//! Access to the folders below one folder, and to nothing else: no symbolic link is followed.
//!
//! Every folder is opened from the top, name by name, with `O_NOFOLLOW`; names have no separators and are never `..`. So a
//! link that somebody puts in the place of a folder leads to an error, and nothing is written where it points.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use crate::beneath::{Beneath, open_folder_in};
use crate::metadata::{Extras, FileStat};
use crate::parallel::locked;
use crate::plan::{Content, Created, Folder, HeldItem, Occupant, Placement, Plan, PlannedFile, TOP};
use crate::rights::{self, Rights};
use crate::stat_file::Stat;

/// Does not block on a named pipe.
const OPEN_FILE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The folder that everything is below, and the one for incomplete files.
pub struct Top {
    pub(crate) top: Beneath,
    incomplete: Option<Beneath>,
    /// What is set besides modes and times.
    pub(crate) extras: Extras,
    /// Rights that were given to folders that exist, if any may be.
    rights: Option<Rights>,
    /// Files that stay open until they are complete.
    open_files: AtomicUsize,
}

/// Incomplete files that stay open, at most. The others are opened by name again, and have to be the same.
const MAX_OPEN_FILES: usize = 64;

/// So many folders above the last one stay open, whatever their depth.
const ALL_OPEN_FOLDERS: usize = 16;
/// Those deeper than that keep so many of the nearest folders open, and two of 8 to 15 levels above, of 16 to 31, ….
const NEAR_FOLDERS: u32 = 8;

/// The folder that was opened last, and some of those above it, the outermost first: files of one folder mostly follow
/// each other, and the next folder mostly has some of the same folders above it.
///
/// A tree may be deeper than a process may have files open. Folders visited in the order of their paths, in either
/// direction, are opened O(log depth) times each, with O(log depth) descriptors.
#[derive(Default)]
pub struct LastFolder(Vec<OpenFolder>);

struct OpenFolder {
    number: u32,
    depth: u32,
    folder: OwnedFd,
}

impl LastFolder {
    fn push(&mut self, opened: OpenFolder) {
        let depth = opened.depth;
        self.0.push(opened);
        if self.0.len() <= ALL_OPEN_FOLDERS {
            return;
        }
        let span = |above: &OpenFolder| match depth - above.depth {
            distance @ 0..NEAR_FOLDERS => distance,
            distance => NEAR_FOLDERS + distance.ilog2(),
        };
        let middle = self.0.windows(3).position(|three| {
            let [first, second, third] = [0, 1, 2].map(|place| span(&three[place]));
            first == second && second == third
        });
        if let Some(place) = middle {
            self.0.remove(place + 1);
        }
    }
}

impl Top {
    /// Opens both. The paths themselves are the caller's own, and may lead through links.
    ///
    /// # Errors
    /// One can't be opened.
    pub fn open(
        top: &Path,
        incomplete: Option<&Path>,
        extras: Extras,
        gives_rights: bool,
    ) -> Result<Self, RestoreFailure> {
        let (top, incomplete) = (open(top)?, incomplete.map(open).transpose()?);
        let rights = gives_rights.then(Rights::default);
        Ok(Self { top, incomplete, extras, rights, open_files: AtomicUsize::new(0) })
    }

    /// The folder `number` of a plan. One that this user may not enter gets the rights for that.
    pub(crate) fn folder<'a>(
        &'a self,
        plan: &Plan,
        number: u32,
        last: &'a mut LastFolder,
    ) -> Result<BorrowedFd<'a>, RestoreFailure> {
        self.open_folder(plan, number, last, self.rights.as_ref())
    }

    fn open_folder<'a>(
        &'a self,
        plan: &Plan,
        number: u32,
        last: &'a mut LastFolder,
        rights: Option<&Rights>,
    ) -> Result<BorrowedFd<'a>, RestoreFailure> {
        let mut below = Vec::new();
        let mut at = number;
        let open = loop {
            if at == TOP {
                break 0;
            }
            if let Some(place) = last.0.iter().rposition(|opened| opened.number == at) {
                break place + 1;
            }
            below.push(at);
            at = plan.folders[at as usize].parent;
        };
        last.0.truncate(open);
        for &number in below.iter().rev() {
            let Folder { parent, depth, name, .. } = &plan.folders[number as usize];
            let above = last.0.last().map_or(self.top.as_fd(), |opened| opened.folder.as_fd());
            let mut opened = open_folder_in(above, name);
            if let (Err(Errno::ACCESS), Some(rights)) = (&opened, rights)
                && let Some(mode) = rights::allow(above, name)
            {
                rights.note(number, mode);
                opened = open_folder_in(above, name);
            }
            let folder = opened.map_err(|error| failure(plan, *parent, name, error))?;
            last.push(OpenFolder { number, depth: *depth, folder });
        }
        Ok(last.0.last().map_or(self.top.as_fd(), |opened| opened.folder.as_fd()))
    }

    /// The folder `number` of a plan, which exists, with these rights of its owner.
    pub(crate) fn folder_with<'a>(
        &'a self,
        plan: &Plan,
        number: u32,
        wanted: Mode,
        last: &'a mut LastFolder,
    ) -> Result<BorrowedFd<'a>, RestoreFailure> {
        let folder = self.folder(plan, number, last)?;
        if let Some(rights) = &self.rights {
            rights.give(number, folder, wanted).map_err(|error| of_folder(plan, number, error))?;
        }
        Ok(folder)
    }

    /// Takes the rights back that were given. Idempotent. A folder that is not there any more is left out.
    pub fn take_back_rights(&self, plan: &Plan) {
        let Some(rights) = &self.rights else { return };
        let mut last = LastFolder::default();
        // Those below others first: nobody can enter them afterwards.
        for (number, mode) in rights.take().into_iter().rev() {
            if let Ok(folder) = self.open_folder(plan, number, &mut last, None) {
                let _ = rights::take_back(folder, mode);
            }
        }
    }

    /// Makes the folders of a plan that do not exist and have not been made, and protects those that do, until the work
    /// is stopped.
    pub fn make_folders(&self, plan: &mut Plan, is_stopped: &dyn Fn() -> bool) -> Result<(), RestoreFailure> {
        let mut last = LastFolder::default();
        for number in plan.made..plan.folders.len() {
            if is_stopped() {
                break;
            }
            let Folder { parent, name, exists, attributes, .. } = &plan.folders[number];
            let refused = |error| failure(plan, *parent, name, error);
            if *exists {
                let folder = self.folder(plan, number as u32, &mut last)?;
                attributes.protect_folder(folder).map_err(refused)?;
            } else {
                let folder = self.folder(plan, *parent, &mut last)?;
                fs::mkdirat(folder, name, attributes.folder_creation_mode()).map_err(refused)?;
            }
            plan.made = number + 1;
        }
        Ok(())
    }

    /// Sets the attributes of folders: those below others first, since a change inside a folder changes its time. Those at
    /// the top that are still moved keep the mode that they were made with: nobody may move a folder without the
    /// permission to write to it. Those of the top folder itself come last: see [`Top::finish_top`].
    pub fn finish_folders(
        &self,
        plan: &Plan,
        is_moved: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), RestoreFailure> {
        let mut last = LastFolder::default();
        for (number, folder) in plan.folders.iter().enumerate().rev().take_while(|_| !is_stopped()) {
            let is_last = number == TOP as usize || is_moved && folder.parent == TOP;
            if !is_last && folder.is_changed(&self.extras) {
                let opened = self.folder(plan, number as u32, &mut last)?;
                folder
                    .attributes
                    .set_folder(opened, &self.extras)
                    .map_err(|error| failure(plan, folder.parent, &folder.name, error))?;
                if let Some(rights) = self.rights.as_ref().filter(|_| folder.attributes.mode.is_some()) {
                    rights.leave(number as u32);
                }
            }
        }
        Ok(())
    }

    /// Sets the attributes of the folders in a folder that what is at the top was moved to.
    ///
    /// # Errors
    /// One is not there any more, or the system refuses something.
    pub fn finish_moved(&self, plan: &Plan, to: &Path) -> Result<(), RestoreFailure> {
        let to = open(to)?;
        let at_top = |folder: &&Folder| folder.parent == TOP && folder.is_changed(&self.extras);
        for folder in plan.folders.iter().skip(1).filter(at_top) {
            open_folder_in(&to, &folder.name)
                .and_then(|opened| folder.attributes.set_folder(opened.as_fd(), &self.extras))
                .map_err(|error| failure(plan, TOP, &folder.name, error))?;
        }
        Ok(())
    }

    /// Gives a folder, before all content gets there at once, the mode that it has meanwhile: no looser than in the end.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn prepare_top(&self, plan: &Plan, top: &Path) -> Result<(), RestoreFailure> {
        plan.folders[TOP as usize].attributes.prepare_folder(&open(top)?).map_err(|error| of_folder(plan, TOP, error))
    }

    /// Sets what is recorded of the top folder itself: nothing in it changes after that.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn finish_top(&self, plan: &Plan, top: &Path) -> Result<(), RestoreFailure> {
        let attributes = &plan.folders[TOP as usize].attributes;
        if !plan.folders[TOP as usize].is_changed(&self.extras) {
            return Ok(());
        }
        attributes.set_folder(open(top)?.as_fd(), &self.extras).map_err(|error| of_folder(plan, TOP, error))
    }

    /// Opens a file for writing; the first call creates it, and the others open no other file.
    pub fn open_file(&self, plan: &Plan, file: &PlannedFile, last: &mut LastFolder) -> Result<File, RestoreFailure> {
        let place = (file.folder, &file.name);
        let mut created = locked(&file.created);
        if let Some(opened) = created.as_ref().and_then(|created| created.opened.as_ref()) {
            return opened.try_clone().map_err(|error| RestoreFailure::os(&error, &plan.path(file.folder, &file.name)));
        }
        let (folder, name) = self.writing_place(plan, file.placement, place, file.number, last)?;
        let flags = if created.is_some() { OPEN_FILE } else { OPEN_FILE | OFlags::CREATE | OFlags::EXCL };
        let opened = fs::openat(folder, &name, flags, file.attributes.creation_mode())
            .and_then(|opened| Ok((FileStat::of(&opened)?, opened)));
        match (opened, &*created) {
            (Ok((stat, opened)), None) => {
                *created = Some(Created { stat, opened: None });
                Ok(opened.into())
            }
            (Ok((found, opened)), Some(created)) if created.stat.is_same_file(found) => Ok(opened.into()),
            // A named pipe has no reader, a link is not followed, and so on.
            (Ok(_) | Err(Errno::NOENT | Errno::NXIO | Errno::LOOP | Errno::ISDIR | Errno::NODEV), Some(_)) => {
                Err(replaced(plan, file.folder, &file.name))
            }
            (Err(error), _) => Err(failure(plan, file.folder, &file.name, error)),
        }
    }

    /// Keeps the descriptor of a file that is not complete, if not too many are open.
    pub fn keep_open(&self, file: &PlannedFile, opened: File) {
        let mut created = locked(&file.created);
        let Some(created) = created.as_mut().filter(|created| created.opened.is_none()) else { return };
        if self.open_files.fetch_add(1, Ordering::Relaxed) < MAX_OPEN_FILES {
            created.opened = Some(opened);
        } else {
            self.open_files.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the writing of a complete file: sets its attributes, and gives it its name. Returns the state that it has
    /// then; none if somebody else has changed it.
    pub fn finish_file(
        &self,
        plan: &Plan,
        file: &PlannedFile,
        opened: File,
        last: &mut LastFolder,
    ) -> Result<Option<FileStat>, RestoreFailure> {
        let PlannedFile { number, folder, name, attributes, placement, .. } = file;
        let refused = |error| failure(plan, *folder, name, error);
        let created = locked(&file.created).take();
        if created.as_ref().is_some_and(|created| created.opened.is_some()) {
            self.open_files.fetch_sub(1, Ordering::Relaxed);
        }
        // It has no name if something else has it, and one more if somebody has given it another.
        let check = |found: FileStat| match &created {
            Some(created) if created.stat.is_same_file(found) => Ok(()),
            _ => Err(replaced(plan, *folder, name)),
        };
        if attributes.owner.is_some() {
            check(FileStat::of(&opened).map_err(refused)?)?; // it is another's afterwards
        }
        let found = attributes.finish(opened.as_fd(), &self.extras).map_err(refused)?;
        if attributes.owner.is_none() {
            check(found)?;
        }
        if *placement == Placement::Direct {
            return Ok(Some(found));
        }
        self.publish(plan, *placement, (*folder, name), *number, last)?;
        let renamed = FileStat::of(&opened).map_err(refused)?;
        Ok(found.is_renamed(renamed).then_some(renamed))
    }

    /// Sets the attributes of files and links that stay, where they are others, and notes the state of each file: none if
    /// somebody else has changed it.
    pub(crate) fn finish_kept(
        &self,
        plan: &Plan,
        records_exec_bits: bool,
        note: &mut dyn FnMut(&HeldItem, Stat),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), RestoreFailure> {
        let mut last = LastFolder::default();
        let kept = plan.items.iter().filter(|item| item.is_right && !item.is_left_out);
        for item in kept.take_while(|_| !is_stopped()) {
            let HeldItem { folder, name, attributes, content, found, .. } = item;
            let (Content::File(..), Occupant::File(there)) = (content, found) else {
                if !attributes.is_empty() {
                    let parent = self.folder(plan, *folder, &mut last)?;
                    match attributes.update_link(parent, name) {
                        Ok(true) => (),
                        Ok(false) | Err(Errno::NOENT) => return Err(replaced(plan, *folder, name)),
                        Err(error) => return Err(failure(plan, *folder, name, error)),
                    }
                }
                continue;
            };
            let attributes = attributes.of_kept(there.mode, records_exec_bits);
            if attributes.changes_nothing(&self.extras) {
                note(item, there.stat);
                continue;
            }
            let parent = self.folder(plan, *folder, &mut last)?;
            match attributes.update(parent, name, there.identity, &self.extras) {
                Ok(Some([before, after])) => {
                    if Stat::from(before) == there.stat {
                        note(item, after.into());
                    }
                }
                Ok(None) | Err(Errno::NOENT) => return Err(replaced(plan, *folder, name)),
                Err(error) => return Err(failure(plan, *folder, name, error)),
            }
        }
        Ok(())
    }

    /// Makes the symbolic links of a plan.
    pub fn make_links(&self, plan: &Plan, is_stopped: &dyn Fn() -> bool) -> Result<(), RestoreFailure> {
        let mut last = LastFolder::default();
        for (index, link) in plan.links.iter().enumerate().take_while(|_| !is_stopped()) {
            let (index, at) = (u32::MAX - index as u32, (link.folder, &link.name)); // files count from 0
            let (folder, name) = self.writing_place(plan, link.placement, at, index, &mut last)?;
            let made = fs::symlinkat(&link.target, folder, &name).and_then(|()| {
                if let Some((user, group)) = link.attributes.owner {
                    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
                    fs::chownat(folder, &name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
                }
                match link.attributes.times() {
                    Some(times) => fs::utimensat(folder, &name, &times, AtFlags::SYMLINK_NOFOLLOW),
                    None => Ok(()),
                }
            });
            made.map_err(|error| failure(plan, link.folder, &link.name, error))?;
            self.publish(plan, link.placement, at, index, &mut last)?;
        }
        Ok(())
    }

    /// The folder and the name under which an item is written.
    fn writing_place<'a>(
        &'a self,
        plan: &Plan,
        placement: Placement,
        (folder, name): (u32, &CString),
        index: u32,
        last: &'a mut LastFolder,
    ) -> Result<(BorrowedFd<'a>, CString), RestoreFailure> {
        match &self.incomplete {
            Some(incomplete) if placement != Placement::Direct => Ok((incomplete.as_fd(), temporary_name(index))),
            _ => Ok((self.folder(plan, folder, last)?, name.clone())),
        }
    }

    /// Gives a complete item its name, if it was written under another.
    fn publish(
        &self,
        plan: &Plan,
        placement: Placement,
        (folder, name): (u32, &CString),
        index: u32,
        last: &mut LastFolder,
    ) -> Result<(), RestoreFailure> {
        let Some(incomplete) = self.incomplete.as_ref().filter(|_| placement != Placement::Direct) else {
            return Ok(());
        };
        let (from, to) = (temporary_name(index), self.folder(plan, folder, last)?);
        let renamed = match placement {
            Placement::Replacing => fs::renameat(incomplete, &from, to, name),
            _ => rename_new(incomplete.as_fd(), &from, to, name),
        };
        renamed.map_err(|error| failure(plan, folder, name, error))
    }
}

/// Renames without replacing anything.
fn rename_new(from: BorrowedFd<'_>, old: &CString, to: BorrowedFd<'_>, new: &CString) -> Result<(), Errno> {
    match fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::linkat(from, old, to, new, AtFlags::empty())?;
            fs::unlinkat(from, old, AtFlags::empty())
        }
        renamed => renamed,
    }
}

fn temporary_name(index: u32) -> CString {
    CString::new(index.to_string()).unwrap_or_default()
}

/// The failure of a file that is not the one that was written, or that was found to be right.
fn replaced(plan: &Plan, folder: u32, name: &CString) -> RestoreFailure {
    RestoreFailure::Path(plan.path(folder, name), "was replaced by something else while it was written")
}

fn open(path: &Path) -> Result<Beneath, RestoreFailure> {
    Beneath::new(path).map_err(|error| RestoreFailure::os(&error, &path.to_string_lossy()))
}

/// The failure of an operation on a folder of a plan.
pub(crate) fn of_folder(plan: &Plan, number: u32, error: Errno) -> RestoreFailure {
    let Folder { parent, name, .. } = &plan.folders[number as usize];
    failure(plan, *parent, name, error)
}

/// The failure of an operation on an item of a plan.
pub(crate) fn failure(plan: &Plan, folder: u32, name: &CString, error: Errno) -> RestoreFailure {
    let path = plan.path(folder, name);
    match error {
        Errno::EXIST => RestoreFailure::Path(path, "something of this name exists, perhaps another path of the tree"),
        Errno::NAMETOOLONG => RestoreFailure::Path(path, "file name too long"),
        Errno::INVAL | Errno::ILSEQ => RestoreFailure::Path(path, "not a valid file name here"),
        Errno::LOOP | Errno::NOTDIR => RestoreFailure::Path(path, "is not a folder"),
        _ => RestoreFailure::io(error, path.into()),
    }
}

/// Why a restore failed.
pub enum RestoreFailure {
    /// Something is not as it has to be.
    Core(coregw_core::Error),
    /// A path that can't be written, and why.
    Path(String, &'static str),
    /// The operating system's error number, and the path.
    Io(i32, String),
    /// A bug.
    Panic(Box<dyn Any + Send>),
}

impl From<coregw_core::Error> for RestoreFailure {
    fn from(error: coregw_core::Error) -> Self {
        Self::Core(error)
    }
}

impl RestoreFailure {
    pub(crate) fn io(error: Errno, path: Cow<'_, str>) -> Self {
        Self::Io(error.raw_os_error(), path.into_owned())
    }

    pub(crate) fn os(error: &io::Error, path: &str) -> Self {
        Self::Io(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()), path.to_owned())
    }
}
