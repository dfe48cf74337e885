//! Restoring a folder: payloads to files below it, verified and written by threads of its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coregw_core::{Error, Result};

use crate::lane::{self, Lane};
use crate::metadata::Extras;
use crate::parallel::locked;
use crate::plan::{Content, HeldItem, ListFile, Placement, Plan, TOP};
use crate::stat_file::StatFile;
use crate::top::{RestoreFailure, Top};
use crate::update::{Done, Preview, Update};
use crate::writer::{Parts, Writing};

/// Writes files below one folder from payloads, which its threads verify and write.
///
/// What is to be made is added to its [`Writing`], before and after [`Restore::start`]. Nothing outside of the folder is
/// touched: paths are opened name by name, and symbolic links are not followed. Nothing that exists is written to. The first
/// failure stops all work, and is kept: see [`Writing::take_failure`].
pub struct Restore {
    work: Arc<Writing>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_direct: bool,
    destination: PathBuf,
    choices: Choices,
    update: Mutex<Update>,
}

/// What its caller has chosen.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Whether links that lead out of the tree are made as well.
    pub all_links: bool,
    /// Whether what is in a `.git` that was there may be changed: git runs programs that it names.
    pub allow_git: bool,
    /// What is set besides modes and times.
    pub extras: Extras,
}

/// Where a restore writes.
#[derive(Debug, Clone, Default)]
pub struct Destination {
    /// The folder, which exists.
    pub folder: PathBuf,
    /// An empty folder on the same file system, for files until they are complete; without it, they are created at their
    /// paths.
    pub incomplete: Option<PathBuf>,
    /// Whether what is in the folder itself is moved elsewhere in the end: then the attributes of folders there are not set.
    pub is_moved: bool,
    /// Whether something may be in the folder: files and links are held until it is known what.
    pub has_content: bool,
    /// Whether folders of this user get rights that they lack, as long as the restore lasts.
    pub gives_rights: bool,
    /// What messages name as the folder.
    pub destination: PathBuf,
    /// Where the stat cache is, if there is one.
    pub cached_in: Option<PathBuf>,
}

impl Restore {
    /// Opens the folders. All files together may have `max_bytes`.
    ///
    /// # Errors
    /// A folder can't be opened.
    pub fn open(place: Destination, choices: Choices, max_bytes: u64) -> Result<Self, RestoreFailure> {
        let Destination { folder, incomplete, is_moved, has_content, gives_rights, destination, cached_in } = place;
        let top = Top::open(&folder, incomplete.as_deref(), choices.extras.clone(), gives_rights)?;
        let work = Arc::new(Writing::new(top, is_moved, max_bytes, has_content, cached_in));
        let (is_direct, threads) = (incomplete.is_none(), Mutex::default());
        Ok(Self { work, threads, is_direct, destination, choices, update: Mutex::default() })
    }

    /// The folder as messages name it.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// What is to be made, and how far it is.
    pub fn work(&self) -> &Arc<Writing> {
        &self.work
    }

    /// Where files and links are made that replace nothing.
    pub fn placement(&self) -> Placement {
        if self.is_direct { Placement::Direct } else { Placement::New }
    }

    /// Makes the folders that were added, writes the payloads that are in their CIDs, and starts the threads.
    ///
    /// # Errors
    /// [`Error::Input`] if that was done before.
    pub fn start(&self) -> Result<()> {
        let work = &self.work;
        if !locked(&self.threads).is_empty() {
            return Err(Error::request("the writer has been started"));
        }
        work.attempt(|| lane::begin(work));
        if !work.is_stopped() {
            match work.start() {
                Ok(threads) => *locked(&self.threads) = threads,
                Err(error) => work.attempt(|| Err(RestoreFailure::os(&error, ""))),
            }
        }
        Ok(())
    }

    /// The next payloads to request: of about `max_bytes` together, unless it is a single one; each has at most
    /// `max_payload_bytes`. None if all that were added have been requested, or after a failure.
    pub fn request(&self, max_bytes: u64, max_payload_bytes: u64) -> Option<Arc<Lane>> {
        let mut request = None;
        self.work.attempt(|| {
            request = lane::next_request(&self.work, max_bytes)?;
            Ok(())
        });
        request.map(|request| Arc::new(Lane::new(request, max_payload_bytes)))
    }

    /// Supplies the payloads of a file that is a list, at least one.
    ///
    /// # Errors
    /// [`Error::Input`] if there is no such list, or as [`Writing::add_file`].
    pub fn supply_list(&self, number: u32, parts: Parts<'_>) -> Result<()> {
        let (mut files, mut plan) = self.work.planned();
        let unknown = || Error::request(format!("{number} is not the number of a list"));
        let ListFile { place, target, attributes, item } = files.lists.remove(&number).ok_or_else(unknown)?;
        if let Some(item) = item {
            plan.items[item as usize].content = Content::File(parts.to_vec(), Some(Box::new(target)));
            return Ok(());
        }
        let (parts, list) = (parts, Some(&target));
        self.work.add_file((&mut plan, &mut files), place, (parts, list), attributes, self.placement())
    }

    /// Finds what is there of what was added, and returns the bytes of files at paths of files. O(entries).
    pub fn survey(&self) -> u64 {
        let mut bytes = 0;
        self.updated(|update, plan| {
            bytes = update.survey(&self.work.top, plan, &|| self.work.is_stopped())?;
            Ok(())
        });
        bytes
    }

    /// Takes files for right that have not changed since they had the right bytes, as a cache says, and returns their bytes.
    /// O(entries of the cache).
    pub fn recall(&self, known: &StatFile) -> u64 {
        let mut bytes = 0;
        self.updated(|update, plan| {
            bytes = update.recall(plan, known);
            Ok(())
        });
        bytes
    }

    /// Compares the next files that may be right, up to some 256 MiB or 1,000 files, and returns the bytes of those that
    /// are; none if there are no more. O(bytes), on all cores.
    pub fn compare(&self) -> Option<u64> {
        let mut right_bytes = None;
        self.updated(|update, plan| {
            right_bytes = update.compare(&self.work, plan)?;
            Ok(())
        });
        right_bytes
    }

    /// Decides what becomes of what is there. `delete` are paths of what stays of what the tree has not; none deletes
    /// nothing.
    pub fn decide(&self, delete: Option<&[PathBuf]>) {
        self.updated(|update, plan| {
            if !self.choices.all_links {
                update.leave_out_links(&self.work.top, plan);
            }
            update.decide(&self.work, plan, delete, (&self.destination, self.choices.allow_git))
        });
    }

    /// What [`Restore::apply`] would do now.
    pub fn preview(&self) -> Preview {
        locked(&self.update).preview(&self.work.plan())
    }

    /// Plans what is to be made, makes room for it, and starts the threads. All files together may have `free_bytes`, and
    /// the bytes of those that are replaced.
    ///
    /// # Errors
    /// As [`Restore::start`].
    pub fn apply(&self, free_bytes: u64) -> Result<()> {
        self.work.attempt(|| {
            let (mut files, mut plan) = self.work.planned();
            locked(&self.update).apply(&self.work, &mut plan, &mut files, free_bytes)
        });
        self.start()
    }

    fn updated(&self, change: impl FnOnce(&mut Update, &mut Plan) -> Result<(), RestoreFailure>) {
        if !self.work.is_stopped() {
            self.work.attempt(|| change(&mut locked(&self.update), &mut self.work.plan_mut()));
        }
    }

    /// Removes what is to be removed, makes the links and sets the attributes of folders, when all payloads are written.
    /// Those of the top folder itself, and of what is moved, come later.
    pub fn finish(&self) {
        let work = &self.work;
        if work.is_stopped() {
            return;
        }
        work.attempt(|| {
            lane::begin(work)?;
            let mut update = locked(&self.update);
            let is_stopped = || work.is_stopped();
            update.remove_surplus(&work.top, &work.plan(), &is_stopped)?;
            if !self.choices.all_links && work.plan().held.is_none() {
                update.leave_out_planned_links(&mut work.plan_mut());
            }
            let plan = work.plan();
            work.top.make_links(&plan, &is_stopped)?;
            let records_exec_bits = plan.has_records && !plan.has_full_records;
            let mut note = |item: &HeldItem, stat| work.note_kept(&plan, item, stat);
            work.top.finish_kept(&plan, records_exec_bits, &mut note, &is_stopped)?;
            work.top.finish_folders(&plan, work.is_moved, &is_stopped)?;
            work.top.take_back_rights(&plan); // before what is at the top is moved
            Ok(())
        });
    }

    /// The numbers of what was done.
    pub fn done(&self) -> Done {
        locked(&self.update).done(&self.work.plan(), self.work.planned_files())
    }

    /// The paths of links that are not made because they lead out of the tree.
    pub fn links_left_out(&self) -> Vec<String> {
        locked(&self.update).links_left_out.clone()
    }

    /// Extended attributes that are not restored: where the first is, its name, and how many there are; those of the folder
    /// itself apart. O(folders).
    pub fn unrestored_xattrs(&self) -> Vec<(String, String, u64)> {
        let extras = &self.choices.extras;
        let (files, plan) = self.work.planned();
        let (mut own, mut found) = (Vec::new(), files.unrestored.clone());
        for (number, folder) in plan.folders.iter().enumerate().filter(|_| extras.xattrs) {
            let recorded = folder.attributes.xattrs.iter().flat_map(|known| known.xattrs.keys());
            for name in recorded.filter(|name| !extras.restores(name)) {
                if number == TOP as usize {
                    own.push((plan.path(TOP, &folder.name), name.clone(), 1));
                    continue;
                }
                let first = || (plan.path(folder.parent, &folder.name), 0);
                found.entry(name.clone()).or_insert_with(first).1 += 1;
            }
        }
        own.extend(found.into_iter().map(|(name, (path, count))| (path, name, count)));
        own
    }

    /// Takes back the rights that were given to folders. Idempotent.
    pub fn take_back_rights(&self) {
        self.work.top.take_back_rights(&self.work.plan());
    }

    /// Stops writing, and waits until the threads have ended. Idempotent.
    pub fn close(&self) {
        self.work.stop();
        self.work.end();
        // Not locked while they end.
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            // A panic of a thread's work is caught inside it.
            let _ = thread.join();
        }
        self.take_back_rights();
    }
}

impl Drop for Restore {
    /// Lets the threads end. They are not waited for: what they hold may need the caller's thread to be freed.
    fn drop(&mut self) {
        self.work.stop();
        self.work.end();
    }
}
