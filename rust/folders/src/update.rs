//! A destination that has content: what is there of a tree, which of it is right, and what becomes of the rest.
//!
//! ```text
//! plan: folders, held items ──survey──► found ──recall, compare──► right ──decide──► removed, made, kept ──apply──► plan
//! ```
//!
//! Nothing is changed before all names of the tree are known and it is decided what becomes of everything.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use coregw_core::{Error, InputCode};
use rustix::fs::{self, AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::beneath::open_folders_in;
use crate::compare::{ComparedFile, files_match};
use crate::join::shown;
use crate::listing::INCOMPLETE;
use crate::metadata::{FileIdentity, FileStat};
use crate::plan::{Content, Files, FoundFile, HeldItem, Occupant, Placement, Plan, TOP};
use crate::removal;
use crate::rights::ENTER;
use crate::stat_file::{Stat, StatFile};
use crate::symlinks::{Named, Names, leads_outside};
use crate::top::{LastFolder, RestoreFailure, Top, failure, of_folder};
use crate::watch::Watch;
use crate::writer::Writing;

/// Bytes of existing files that are compared in one call,
const COMPARED_BYTES: u64 = 256 << 20;
/// or their number.
const COMPARED_FILES: usize = 1_000;

/// What is known of a destination that has content.
#[derive(Default)]
pub struct Update {
    /// What the tree has not: the number of its folder, and its path below that.
    surplus: Vec<(u32, Vec<CString>)>,
    /// Whether what the tree has not is deleted, and what is in the way of what it has.
    deletes: bool,
    /// The next item to compare.
    compared: usize,
    /// What was removed because it was in the way.
    removed: u64,
    replaced: u64,
    /// The paths of links that lead out of the tree.
    pub(crate) links_left_out: Vec<String>,
}

/// Paths that an update would change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// Files, links and empty folders that are not there.
    pub created: Vec<Vec<Vec<u8>>>,
    /// Files and links in whose place others come.
    pub replaced: Vec<Vec<Vec<u8>>>,
    /// What is deleted, without what is in it.
    pub deleted: Vec<Vec<Vec<u8>>>,
    /// The number of files that are right.
    pub kept: u64,
}

/// The numbers of what an update has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Files that were written.
    pub files: u64,
    /// Files that were right.
    pub kept: u64,
    /// What was deleted, without what was in it.
    pub deleted: u64,
    /// Files in whose place others were written.
    pub replaced: u64,
}

impl Update {
    /// Notes what is in the folders of a tree, but for incomplete files, and returns the bytes of files at paths of files.
    /// O(entries).
    ///
    /// Folders that the tree does not have are not entered. Symbolic links are not followed, also if one takes the place of
    /// a folder meanwhile: that is an error.
    pub(crate) fn survey(
        &mut self,
        top: &Top,
        plan: &mut Plan,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<u64, RestoreFailure> {
        let (mut pending, mut last, mut bytes) = (vec![TOP], LastFolder::default(), 0u64);
        while let Some(number) = pending.pop().filter(|_| !is_stopped()) {
            let folder = top.folder_with(plan, number, ENTER, &mut last)?;
            let names = removal::names(folder).map_err(|error| of_folder(plan, number, error))?;
            for (name, kind) in names {
                if number == TOP && name.as_bytes() == INCOMPLETE.as_bytes() {
                    continue;
                }
                if let Some(below) = plan.folder_in(number, name.as_bytes()) {
                    let below_is = &mut plan.folders[below as usize];
                    if kind == FileType::Directory {
                        below_is.exists = true;
                        pending.push(below);
                    } else {
                        below_is.is_blocked = true;
                    }
                } else if let Some(item) = plan.item_in(number, name.as_bytes()) {
                    let found =
                        found(folder.as_fd(), &name, kind).map_err(|error| failure(plan, number, &name, error))?;
                    if let Occupant::File(file) = &found {
                        bytes = bytes.saturating_add(file.stat.size);
                    }
                    let item = &mut plan.items[item as usize];
                    item.is_right =
                        matches!((&found, &item.content), (Occupant::Link(is), Content::Link(to)) if is == to);
                    item.found = found;
                } else {
                    self.surplus.push((number, vec![name]));
                }
            }
        }
        Ok(bytes)
    }

    /// Takes what a cache knows, and returns the bytes of files that are right. O(entries of the cache).
    pub(crate) fn recall(&mut self, plan: &mut Plan, known: &StatFile) -> u64 {
        let (mut bytes, mut last) = (0u64, (Vec::new(), Some(TOP)));
        // A cache that cannot be read to its end is right so far.
        let _ = known.each_final(|path, stat, target| {
            let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], path),
            };
            if last.0 != above {
                let mut names = above.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
                last = (above.to_vec(), names.try_fold(TOP, |folder, name| plan.folder_in(folder, name)));
            }
            let Some(number) = last.1.and_then(|folder| plan.item_in(folder, name)) else { return };
            let item = &mut plan.items[number as usize];
            let is_same = matches!(&item.found, Occupant::File(found) if found.stat == stat);
            if is_same && item.target() == Some(target) {
                item.is_right = true;
                bytes = bytes.saturating_add(stat.size);
            }
        });
        bytes
    }

    /// Compares the next files, and returns the bytes of those that are right; none if there are no more.
    pub(crate) fn compare(&mut self, work: &Writing, plan: &mut Plan) -> Result<Option<u64>, RestoreFailure> {
        let (mut numbers, mut files, mut bytes) = (Vec::new(), Vec::new(), 0u64);
        while self.compared < plan.items.len() && bytes < COMPARED_BYTES && files.len() < COMPARED_FILES {
            let item = &plan.items[self.compared];
            if let (false, Content::File(parts, _), Occupant::File(found)) = (item.is_right, &item.content, &item.found)
            {
                let path = PathBuf::from(plan.path(item.folder, &item.name));
                files.push(ComparedFile::new(path, parts.clone())?);
                numbers.push((self.compared, found.stat.size));
                bytes = bytes.saturating_add(found.stat.size);
            }
            self.compared += 1;
        }
        if files.is_empty() {
            return Ok(None);
        }
        let matches = files_match(&work.top.top, &files, &Stopped(work));
        let mut right_bytes = 0u64;
        for ((number, size), _) in numbers.into_iter().zip(matches).filter(|(_, is_match)| *is_match) {
            plan.items[number].is_right = true;
            right_bytes = right_bytes.saturating_add(size);
        }
        Ok(Some(right_bytes))
    }

    /// Leaves out the links that lead out of the tree, through what is there as well. What has their names is something that
    /// the tree does not have.
    pub(crate) fn leave_out_links(&mut self, top: &Top, plan: &mut Plan) {
        let mut names = DestinationNames { top, plan, others: Vec::new(), numbers: HashMap::new() };
        let leads_out = |item: &HeldItem, names: &mut DestinationNames<'_>| match &item.content {
            Content::Link(target) => leads_outside(item.folder, target.as_bytes(), names),
            Content::File(..) => false,
        };
        let mut left_out: Vec<usize> = Vec::new();
        for (number, item) in names.plan.items.iter().enumerate() {
            if leads_out(item, &mut names) {
                left_out.push(number);
            }
        }
        for number in left_out {
            self.links_left_out.push(plan.path(plan.items[number].folder, &plan.items[number].name));
            let item = &mut plan.items[number];
            item.is_left_out = true;
            if !matches!(std::mem::replace(&mut item.found, Occupant::Nothing), Occupant::Nothing) {
                self.surplus.push((item.folder, vec![item.name.clone()]));
            }
        }
    }

    /// The same of a new destination, which has nothing that the tree does not have.
    pub(crate) fn leave_out_planned_links(&mut self, plan: &mut Plan) {
        let links = std::mem::take(&mut plan.links);
        let targets = links.iter().map(|link| ((link.folder, link.name.as_bytes()), link.target.as_bytes())).collect();
        let mut names = PlannedNames { plan, targets };
        let is_outside: Vec<_> =
            links.iter().map(|link| leads_outside(link.folder, link.target.as_bytes(), &mut names)).collect();
        for (link, is_outside) in links.into_iter().zip(is_outside) {
            if is_outside {
                self.links_left_out.push(plan.path(link.folder, &link.name));
            } else {
                plan.links.push(link);
            }
        }
    }

    /// Decides what is deleted, and checks that what is there may be changed as the tree has it. `delete` are paths of what
    /// stays, without what is below them; none deletes nothing.
    pub(crate) fn decide(
        &mut self,
        work: &Writing,
        plan: &Plan,
        delete: Option<&[PathBuf]>,
        (destination, allow_git): (&Path, bool),
    ) -> Result<(), RestoreFailure> {
        let spared = Spared::new(delete.unwrap_or_default());
        self.deletes = delete.is_some();
        let refused = |folder: u32, name: &CString, why: &str| {
            let path = destination.join(plan.path(folder, name));
            let path = shown(&[path.to_string_lossy().into_owned()]);
            RestoreFailure::Core(Error::input(InputCode::InvalidPath, format!("{path}: {why}")))
        };
        for (folder, name, is_folder) in in_the_way(plan) {
            let is_spared = spared.holds(&names_of(plan, folder, from_ref(name)));
            if is_spared || !self.deletes {
                let (found, wanted) = if is_folder { ("a folder", "a file") } else { ("not a folder", "a folder") };
                let step = match is_spared {
                    true => "it is excluded, and --delete-excluded replaces it",
                    false => "--delete replaces it",
                };
                return Err(refused(folder, name, &format!("is {found}, but the tree has {wanted}; {step}")));
            }
        }
        if !allow_git && let Some((folder, name)) = changed_git(plan) {
            let why = "is part of a .git that was there, and git runs programs that it names; --allow-git changes it";
            return Err(refused(folder, name, why));
        }
        if self.deletes {
            self.expand_spared(&work.top, plan, &spared)?;
        }
        Ok(())
    }

    /// Leaves what is spared of what is deleted: a folder stays as long as something in it does.
    fn expand_spared(&mut self, top: &Top, plan: &Plan, spared: &Spared) -> Result<(), RestoreFailure> {
        if spared.paths.is_empty() {
            return Ok(());
        }
        let (mut pending, mut last) = (std::mem::take(&mut self.surplus), LastFolder::default());
        while let Some((number, below)) = pending.pop() {
            let path = names_of(plan, number, &below);
            if spared.above.contains(&path) {
                let at_number = |error| of_folder(plan, number, error);
                let above = top.folder(plan, number, &mut last)?;
                let folder = open_folders_in(above, &below).map_err(at_number)?;
                let folder = folder.as_ref().map_or(above, AsFd::as_fd);
                for (name, _) in removal::names(folder).map_err(at_number)? {
                    pending.push((number, [&below[..], &[name]].concat()));
                }
            } else if !spared.holds(&path) {
                self.surplus.push((number, below));
            }
        }
        Ok(())
    }

    /// Plans what is to be made, gives the rights that this needs, and removes what is in the way.
    pub(crate) fn apply(
        &mut self,
        work: &Writing,
        plan: &mut Plan,
        files: &mut Files,
        free_bytes: u64,
    ) -> Result<(), RestoreFailure> {
        let is_made = |item: &&HeldItem| !item.is_right && !item.is_left_out;
        let replaced = |item: &&HeldItem| is_made(item) && item.is_file() && item.is_replaced();
        let freed = plan.items.iter().filter(replaced).map(|item| match &item.found {
            Occupant::File(found) => found.stat.size,
            _ => 0,
        });
        work.set_max_bytes(freed.fold(free_bytes, u64::saturating_add));
        self.replaced = plan.items.iter().filter(replaced).count() as u64;
        let mut items = std::mem::take(&mut plan.items);
        let mut changed: HashSet<u32> =
            self.surplus.iter().filter(|_| self.deletes).map(|(folder, _)| *folder).collect();
        let mut blocked = Vec::new();
        for item in items.iter_mut().filter(|item| is_made(&&**item)) {
            let placement = if item.is_replaced() { Placement::Replacing } else { Placement::New };
            let place = (item.folder, item.name.clone());
            let attributes = std::mem::take(&mut item.attributes);
            changed.insert(item.folder);
            if matches!(item.found, Occupant::Folder) {
                blocked.push((item.folder, vec![item.name.clone()]));
            }
            match &mut item.content {
                Content::File(parts, list) => {
                    let parts = std::mem::take(parts);
                    work.plan_file((plan, files), place, (&parts, list.as_deref()), attributes, placement)?;
                }
                Content::Link(target) => plan.plan_link(place, target.clone(), attributes, placement),
            }
        }
        plan.items = items;
        for folder in plan.folders.iter().skip(1).filter(|folder| !folder.exists) {
            changed.insert(folder.parent);
            if folder.is_blocked {
                blocked.push((folder.parent, vec![folder.name.clone()]));
            }
        }
        let mut changed: Vec<_> = changed.into_iter().filter(|&number| plan.folders[number as usize].exists).collect();
        changed.sort_unstable();
        let mut last = LastFolder::default();
        for number in changed.into_iter().take_while(|_| !work.is_stopped()) {
            work.top.folder_with(plan, number, Mode::RWXU, &mut last)?;
        }
        self.removed = blocked.len() as u64;
        remove(&work.top, plan, &blocked, &|| work.is_stopped())
    }

    /// Removes what the tree does not have, if that is deleted.
    pub(crate) fn remove_surplus(
        &mut self,
        top: &Top,
        plan: &Plan,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), RestoreFailure> {
        if !self.deletes {
            self.surplus.clear();
        }
        let surplus = std::mem::take(&mut self.surplus);
        self.removed += surplus.len() as u64;
        remove(top, plan, &surplus, is_stopped)
    }

    pub(crate) fn done(&self, plan: &Plan, files: u32) -> Done {
        let kept = plan.items.iter().filter(|item| item.is_file() && item.is_right).count() as u64;
        Done { files: files.into(), kept, deleted: self.removed, replaced: self.replaced }
    }

    pub(crate) fn preview(&self, plan: &Plan) -> Preview {
        let mut preview = Preview::default();
        let mut has_made = vec![false; plan.folders.len()];
        for item in plan.items.iter().filter(|item| !item.is_left_out) {
            if item.is_right {
                preview.kept += u64::from(item.is_file());
                continue;
            }
            has_made[item.folder as usize] = true;
            let path = names_of(plan, item.folder, from_ref(&item.name));
            if item.is_replaced() { &mut preview.replaced } else { &mut preview.created }.push(path);
        }
        for (number, folder) in plan.folders.iter().enumerate().skip(1).rev().filter(|(_, folder)| !folder.exists) {
            if !has_made[number] {
                let path = names_of(plan, folder.parent, from_ref(&folder.name));
                if folder.is_blocked { &mut preview.replaced } else { &mut preview.created }.push(path);
            }
            has_made[folder.parent as usize] = true;
        }
        if self.deletes {
            let in_the_way = in_the_way(plan).map(|(folder, name, _)| names_of(plan, folder, from_ref(name)));
            preview.deleted = in_the_way.collect();
            preview.deleted.extend(self.surplus.iter().map(|(folder, below)| names_of(plan, *folder, below)));
        }
        for paths in [&mut preview.created, &mut preview.replaced, &mut preview.deleted] {
            paths.sort_unstable();
        }
        preview
    }
}

/// What has a name in an open folder.
fn found(folder: impl AsFd, name: &CStr, kind: FileType) -> Result<Occupant, Errno> {
    match kind {
        FileType::Directory => Ok(Occupant::Folder),
        FileType::Symlink => Ok(Occupant::Link(fs::readlinkat(folder, name, Vec::new())?)),
        FileType::RegularFile => {
            let status = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                return Ok(Occupant::Other);
            }
            let (identity, mode) = (FileIdentity::from(&status), Mode::from_raw_mode(status.st_mode).bits());
            let stat = Stat::from(FileStat::from(status));
            #[allow(clippy::useless_conversion)] // the type differs between systems
            Ok(Occupant::File(FoundFile { identity, stat, mode: mode.into() }))
        }
        _ => Ok(Occupant::Other),
    }
}

/// What is where the tree has something else, and whether that is a folder.
fn in_the_way(plan: &Plan) -> impl Iterator<Item = (u32, &CString, bool)> {
    let folders = plan.folders.iter().filter(|folder| folder.is_blocked);
    let items = plan.items.iter().filter(|item| !item.is_left_out && matches!(item.found, Occupant::Folder));
    let folders = folders.map(|folder| (folder.parent, &folder.name, false));
    folders.chain(items.map(|item| (item.folder, &item.name, true)))
}

/// What is changed of a repository of git that was there.
fn changed_git(plan: &Plan) -> Option<(u32, &CString)> {
    // As well where cases do not count.
    let is_git = |name: &CString| name.as_bytes().eq_ignore_ascii_case(b".git");
    let mut is_inside = vec![false; plan.folders.len()];
    for (number, folder) in plan.folders.iter().enumerate().skip(1) {
        let is_there = folder.exists || folder.is_blocked;
        is_inside[number] = is_inside[folder.parent as usize] || is_there && is_git(&folder.name);
        if is_inside[number] && !folder.exists {
            return Some((folder.parent, &folder.name));
        }
    }
    let is_changed = |item: &&HeldItem| {
        let is_there = !matches!(item.found, Occupant::Nothing);
        !item.is_right && !item.is_left_out && (is_inside[item.folder as usize] || is_there && is_git(&item.name))
    };
    plan.items.iter().find(is_changed).map(|item| (item.folder, &item.name))
}

/// The names of a path below a folder, from the top folder.
fn names_of(plan: &Plan, mut folder: u32, below: &[CString]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = below.iter().rev().map(|name| name.as_bytes().to_vec()).collect();
    while folder != TOP {
        names.push(plan.folders[folder as usize].name.as_bytes().to_vec());
        folder = plan.folders[folder as usize].parent;
    }
    names.reverse();
    names
}

/// Removes files, links and whole folders, by the number of a folder, and the path of each below that.
fn remove(
    top: &Top,
    plan: &Plan,
    items: &[(u32, Vec<CString>)],
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), RestoreFailure> {
    let mut last = LastFolder::default();
    for (number, below) in items.iter().take_while(|_| !is_stopped()) {
        let Some((name, folders)) = below.split_last() else { continue };
        let above = top.folder(plan, *number, &mut last)?;
        let removed = open_folders_in(above, folders)
            .and_then(|folder| removal::remove(folder.as_ref().map_or(above, AsFd::as_fd), name, is_stopped));
        removed.map_err(|error| {
            let path = names_of(plan, *number, below);
            RestoreFailure::io(error, String::from_utf8_lossy(&path.join(&b'/')))
        })?;
    }
    Ok(())
}

/// Paths of which nothing is deleted.
struct Spared {
    paths: HashSet<Vec<Vec<u8>>>,
    /// The folders that these are in.
    above: HashSet<Vec<Vec<u8>>>,
}

impl Spared {
    fn new(paths: &[PathBuf]) -> Self {
        let names = |path: &PathBuf| path.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        let paths: HashSet<_> = paths.iter().map(names).collect();
        let above = paths.iter().flat_map(|path| (1..path.len()).map(|count| path[..count].to_vec())).collect();
        Self { paths, above }
    }

    /// Whether a path is spared, below one that is, or above one.
    fn holds(&self, path: &[Vec<u8>]) -> bool {
        !self.paths.is_empty()
            && (self.above.contains(path) || (1..=path.len()).any(|count| self.paths.contains(&path[..count])))
    }
}

/// What the folders of a new destination have: what the tree has.
struct PlannedNames<'a> {
    plan: &'a Plan,
    targets: HashMap<(u32, &'a [u8]), &'a [u8]>,
}

impl Names for PlannedNames<'_> {
    fn find(&mut self, folder: u32, name: &[u8]) -> Named {
        match self.targets.get(&(folder, name)) {
            Some(target) => Named::Link(target.to_vec()),
            None => self.plan.folder_in(folder, name).map_or(Named::Other, Named::Folder),
        }
    }

    fn above(&self, folder: u32) -> Option<u32> {
        (folder != TOP).then(|| self.plan.folders[folder as usize].parent)
    }
}

/// What the folders of a destination have when a tree is restored: what the tree has, and beside it what is there. Folders
/// that the tree lacks get numbers after those of the tree.
struct DestinationNames<'a> {
    top: &'a Top,
    plan: &'a Plan,
    others: Vec<(u32, CString)>,
    numbers: HashMap<(u32, CString), u32>,
}

impl DestinationNames<'_> {
    fn open(&self, folder: u32) -> Option<OwnedFd> {
        let mut below = Vec::new();
        let mut at = folder;
        while let Some((above, name)) = (at as usize).checked_sub(self.plan.folders.len()).map(|at| &self.others[at]) {
            below.push(name);
            at = *above;
        }
        let mut last = LastFolder::default();
        let above = self.top.folder(self.plan, at, &mut last).ok()?;
        let opened = open_folders_in(above, below.into_iter().rev()).ok()?;
        opened.map_or_else(|| above.try_clone_to_owned().ok(), Some)
    }

    /// What is there.
    fn find_there(&mut self, folder: u32, name: CString) -> Option<Named> {
        let opened = self.open(folder)?;
        let status = fs::statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => Some(Named::Link(fs::readlinkat(&opened, &name, Vec::new()).ok()?.into_bytes())),
            FileType::Directory => {
                let next = u32::try_from(self.plan.folders.len() + self.others.len()).ok()?;
                let number = *self.numbers.entry((folder, name.clone())).or_insert(next);
                if number == next {
                    self.others.push((folder, name));
                }
                Some(Named::Folder(number))
            }
            _ => None,
        }
    }
}

impl Names for DestinationNames<'_> {
    fn find(&mut self, folder: u32, name: &[u8]) -> Named {
        if let Some(number) = self.plan.folder_in(folder, name) {
            return Named::Folder(number);
        }
        if let Some(item) = self.plan.item_in(folder, name) {
            return match &self.plan.items[item as usize].content {
                Content::Link(target) => Named::Link(target.as_bytes().to_vec()),
                Content::File(..) => Named::Other,
            };
        }
        CString::new(name).ok().and_then(|name| self.find_there(folder, name)).unwrap_or(Named::Other)
    }

    fn above(&self, folder: u32) -> Option<u32> {
        match (folder as usize).checked_sub(self.plan.folders.len()) {
            Some(other) => Some(self.others[other].0),
            None => (folder != TOP).then(|| self.plan.folders[folder as usize].parent),
        }
    }
}

/// Ends a comparison with the work.
struct Stopped<'a>(&'a Writing);

impl Watch for Stopped<'_> {
    fn is_interrupted(&self) -> bool {
        self.0.is_stopped()
    }

    fn progress(&self, _: u64) {}
}
