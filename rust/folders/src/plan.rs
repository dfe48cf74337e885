//! What a writer is to make: folders, symbolic links, and files with the payloads that they consist of. Files that are added
//! before any of them is requested make one batch.
//!
//! Where something may be there already, files and links are held until that is known: see [`crate::update`].

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use coregw_core::{Cid, Error, InputCode, Result};

use crate::attributes::{Attributes, Entry};
use crate::join::shown;
use crate::metadata::{Extras, FileIdentity, FileStat, Metadata};
use crate::stat_file::Stat;

/// The number of the folder that everything is below.
pub const TOP: u32 = 0;

/// A folder. Its parent has a lower number.
pub struct Folder {
    pub(crate) parent: u32,
    /// The number of folders above it.
    pub depth: u32,
    pub(crate) name: CString,
    pub(crate) exists: bool,
    /// Whether something else has its name.
    pub(crate) is_blocked: bool,
    /// Whether the tree says more of it than that something is in it.
    pub(crate) is_listed: bool,
    pub(crate) attributes: Metadata,
}

impl Folder {
    /// Whether there is something to set, or to remove.
    pub(crate) fn is_changed(&self, extras: &Extras) -> bool {
        !self.attributes.is_empty() || self.is_listed && extras.xattrs
    }
}

/// A file or link of a tree, and what has its name.
pub(crate) struct HeldItem {
    pub(crate) folder: u32,
    pub(crate) name: CString,
    pub(crate) attributes: Metadata,
    pub(crate) content: Content,
    pub(crate) found: Occupant,
    /// Whether what was found is what the tree has.
    pub(crate) is_right: bool,
    /// Whether it is neither made nor kept: a link that leads out of the tree.
    pub(crate) is_left_out: bool,
}

/// What an item is to be.
pub(crate) enum Content {
    /// A file of these payloads, and the root of their list, if they are of one.
    File(Vec<(Cid, Option<u64>)>, Option<Box<Cid>>),
    /// A link to this target.
    Link(CString),
}

impl HeldItem {
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.content, Content::File(..))
    }

    /// The size of a file; none if it is not known.
    pub(crate) fn size(&self) -> Option<u64> {
        let Content::File(parts, _) = &self.content else { return Some(0) };
        parts.iter().try_fold(0u64, |sum, (_, size)| Some(sum.saturating_add((*size)?)))
    }

    /// The target of a file in the folder's map.
    pub(crate) fn target(&self) -> Option<&Cid> {
        match &self.content {
            Content::File(parts, list) => list.as_deref().or_else(|| parts.first().map(|(cid, _)| cid)),
            Content::Link(_) => None,
        }
    }

    /// Whether something is there until a file or link takes its place.
    pub(crate) fn is_replaced(&self) -> bool {
        !matches!(self.found, Occupant::Nothing | Occupant::Folder)
    }
}

/// What has the name of an item.
pub(crate) enum Occupant {
    Nothing,
    Folder,
    Link(CString),
    File(FoundFile),
    Other,
}

/// A file that was found.
#[derive(Clone, Copy)]
pub(crate) struct FoundFile {
    pub(crate) identity: FileIdentity,
    pub(crate) stat: Stat,
    pub(crate) mode: u32,
}

/// A symbolic link.
pub struct Link {
    pub(crate) folder: u32,
    pub(crate) name: CString,
    pub(crate) target: CString,
    pub(crate) attributes: Metadata,
    pub(crate) placement: Placement,
}

/// Where a file or link is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In its folder, which nobody else looks into yet.
    Direct,
    /// In the folder for incomplete files; it gets its name when it is complete, if nothing has that name.
    New,
    /// The same, replacing what has that name.
    Replacing,
}

/// All of it.
pub struct Plan {
    pub(crate) folders: Vec<Folder>,
    /// Files and links, if they are held.
    pub(crate) items: Vec<HeldItem>,
    /// Where items are in `items`, by folder and name; none if they are not held.
    pub(crate) held: Option<HashMap<(u32, CString), u32>>,
    pub(crate) links: Vec<Link>,
    /// Whether attributes were added, and whether any of them say more than that a file is executable, or what a link is.
    pub(crate) has_records: bool,
    pub(crate) has_full_records: bool,
    /// Folders that have been made; those after them have not.
    pub made: usize,
    /// Where folders are in `folders`, by parent and name.
    numbers: HashMap<(u32, CString), u32>,
    /// The folder that was added to last, by a folder above it and its path below that: paths mostly follow each other
    /// in one folder.
    last: (u32, Vec<String>, u32),
}

impl Folder {
    fn new(parent: u32, depth: u32, name: CString) -> Self {
        Self {
            parent,
            depth,
            name,
            exists: false,
            is_blocked: false,
            is_listed: false,
            attributes: Metadata::default(),
        }
    }
}

impl Plan {
    /// An empty plan; whether files and links `are_held`.
    pub(crate) fn new(are_held: bool) -> Self {
        Self {
            folders: vec![Folder { exists: true, ..Folder::new(TOP, 0, CString::default()) }],
            items: Vec::new(),
            held: are_held.then(HashMap::new),
            links: Vec::new(),
            has_records: false,
            has_full_records: false,
            made: 0,
            numbers: HashMap::new(),
            last: (TOP, Vec::new(), TOP),
        }
    }

    /// The number of the folder with this path below another; it and those above it are added if they are new. No
    /// segments are the other folder.
    pub fn folder(&mut self, below: u32, segments: &[String]) -> Result<u32> {
        if self.last.0 == below && self.last.1 == segments {
            return Ok(self.last.2);
        }
        let mut at = self.known(below)?;
        for (place, segment) in segments.iter().enumerate() {
            let key = (at, self.name(segment, below, segments)?);
            if self.held.as_ref().is_some_and(|held| held.contains_key(&key)) {
                return Err(self.refused(below, &segments[..=place], BOTH));
            }
            at = match self.numbers.get(&key) {
                Some(&number) => number,
                None => {
                    let number = count(self.folders.len())?;
                    let depth = self.folders[at as usize].depth + 1;
                    self.folders.push(Folder::new(at, depth, key.1.clone()));
                    self.numbers.insert(key, number);
                    number
                }
            };
        }
        self.last = (below, segments.to_vec(), at);
        Ok(at)
    }

    /// Notes what a record says.
    pub(crate) fn note_records(&mut self, known: &Attributes) {
        self.has_records = true;
        self.has_full_records |= known.entry == Entry::Folder || known.size.is_some() || known.mtime.is_some();
    }

    /// Adds a folder as [`Plan::folder`], with what is recorded of it.
    ///
    /// # Errors
    /// [`Error::Input`] if a segment can't be a file name, or no folder has the number `below`.
    pub fn add_folder(&mut self, below: u32, segments: &[String], recorded: Metadata) -> Result<u32> {
        let number = self.folder(below, segments)?;
        let folder = &mut self.folders[number as usize];
        (folder.attributes, folder.is_listed) = (recorded, true);
        Ok(number)
    }

    /// The number of a folder in another, if it was added.
    pub fn folder_in(&self, folder: u32, name: &[u8]) -> Option<u32> {
        self.numbers.get(&(folder, CString::new(name).ok()?)).copied()
    }

    /// Checks that a number is that of a folder.
    pub fn known(&self, folder: u32) -> Result<u32> {
        let what = || Error::request(format!("{folder} is not the number of a folder of the writer"));
        self.folders.get(folder as usize).map(|_| folder).ok_or_else(what)
    }

    /// Holds a file or link until it is known what is there.
    ///
    /// # Errors
    /// [`Error::Input`] if the tree has its path already.
    pub(crate) fn hold(
        &mut self,
        (folder, name): (u32, CString),
        content: Content,
        attributes: Metadata,
    ) -> Result<u32> {
        let number = count(self.items.len())?;
        let key = (folder, name.clone());
        let is_folder = self.numbers.contains_key(&key);
        let Some(held) = &mut self.held else { return Err(Error::request("the writer holds nothing")) };
        if is_folder || held.insert(key, number).is_some() {
            let why = if is_folder { BOTH } else { "the tree has this path twice" };
            return Err(self.refused(folder, &[text(&name)], why));
        }
        let found = Occupant::Nothing;
        self.items.push(HeldItem { folder, name, attributes, content, found, is_right: false, is_left_out: false });
        Ok(number)
    }

    /// The number of an item in a folder, if it is held.
    pub(crate) fn item_in(&self, folder: u32, name: &[u8]) -> Option<u32> {
        self.held.as_ref()?.get(&(folder, CString::new(name).ok()?)).copied()
    }

    /// Adds a symbolic link with this name in a folder, or holds it.
    ///
    /// # Errors
    /// [`Error::Input`] if the target contains a NUL, or the tree has the path already.
    pub fn add_link(
        &mut self,
        (folder, name): (u32, CString),
        target: Vec<u8>,
        attributes: Metadata,
        at: Placement,
    ) -> Result<()> {
        let target = CString::new(target)
            .map_err(|_| self.refused(folder, &[text(&name)], "the link's target contains a NUL"))?;
        if self.held.is_some() {
            return self.hold((folder, name), Content::Link(target), attributes).map(drop);
        }
        self.plan_link((folder, name), target, attributes, at);
        Ok(())
    }

    /// Adds a symbolic link that is made.
    pub(crate) fn plan_link(
        &mut self,
        (folder, name): (u32, CString),
        target: CString,
        attributes: Metadata,
        placement: Placement,
    ) {
        self.links.push(Link { folder, name, target, attributes, placement });
    }

    /// The folder and the name of an item with this path below a folder.
    pub fn place(&mut self, below: u32, path: &[String]) -> Result<(u32, CString)> {
        let (last, above) = path.split_last().ok_or_else(|| refused(path, "a file needs a name"))?;
        self.known(below)?;
        let name = self.name(last, below, path)?;
        if let Some(segment) = above.iter().find(|segment| !is_name(segment)) {
            return Err(self.no_name(segment, below, path)); // an error names the whole path
        }
        Ok((self.folder(below, above)?, name))
    }

    /// A segment of a path as the name of a file.
    fn name(&self, segment: &str, below: u32, path: &[String]) -> Result<CString> {
        let name = CString::new(segment).ok().filter(|_| is_name(segment));
        name.ok_or_else(|| self.no_name(segment, below, path))
    }

    fn no_name(&self, segment: &str, below: u32, path: &[String]) -> Error {
        self.refused(below, path, &format!("'{}' can't be a file name", shown(&[segment.to_owned()])))
    }

    /// The error of a path below a folder.
    pub fn refused(&self, below: u32, path: &[String], why: &str) -> Error {
        let mut whole = self.names(below);
        whole.extend_from_slice(path);
        refused(&whole, why)
    }

    fn names(&self, mut folder: u32) -> Vec<String> {
        let mut names = Vec::new();
        while folder != TOP {
            let Folder { parent, name, .. } = &self.folders[folder as usize];
            names.push(text(name));
            folder = *parent;
        }
        names.reverse();
        names
    }

    /// The path of an item in this folder.
    pub fn path(&self, folder: u32, name: &CString) -> String {
        let mut names = self.names(folder);
        if names.is_empty() && name.is_empty() {
            return ".".to_owned(); // the top folder itself
        }
        names.push(text(name));
        names.join("/")
    }
}

const BOTH: &str = "it is both a file and a folder";

fn text(name: &CString) -> String {
    OsStr::from_bytes(name.as_bytes()).to_string_lossy().into_owned()
}

fn is_name(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains(['/', '\0'])
}

/// A number of files, folders or payloads.
pub fn count(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::input(InputCode::TooLarge, "more than 2^32 files, folders or payloads"))
}

fn refused(path: &[String], why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", shown(path)))
}

/// The most payloads that one request may name.
const MAX_PAYLOADS: usize = 4096;

/// The longest file: offsets in it are signed.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// A file, and how far it is.
pub struct PlannedFile {
    /// Unique among all files of a writer.
    pub number: u32,
    pub(crate) folder: u32,
    pub(crate) name: CString,
    pub(crate) attributes: Metadata,
    pub(crate) placement: Placement,
    /// The root of a list; none for a file that is one payload.
    pub list: Option<Box<[u8]>>,
    /// Payloads that are not written yet.
    pub parts_left: AtomicU32,
    pub(crate) created: Mutex<Option<Created>>,
}

/// The file that was created, and its descriptor if that stays open.
pub struct Created {
    pub(crate) stat: FileStat,
    pub(crate) opened: Option<fs::File>,
}

/// A payload, and where its bytes go.
pub struct PlannedPayload {
    cid: Box<[u8]>,
    pub(crate) places: Vec<Place>,
    /// Whether its size counts where it was not known before it came.
    pub is_counted: AtomicBool,
    pub(crate) is_done: AtomicBool,
}

/// Where a payload is in a file.
pub struct Place {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    /// The payload's size, if it is known already.
    pub size: Option<u64>,
}

impl PlannedPayload {
    /// Its CID.
    pub fn cid(&self) -> Cid {
        Cid::trusted(&self.cid)
    }

    /// Its size, if that is known.
    pub fn size(&self) -> Option<u64> {
        self.places.iter().find_map(|place| place.size)
    }
}

/// Files whose payloads are requested. Each payload occurs once.
#[derive(Default)]
pub struct Batch {
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) payloads: Vec<PlannedPayload>,
}

impl Batch {
    /// Payloads from `next` on that are not done: of about `bytes` together, at least one if there is one. `next` goes
    /// past them. One of unknown size counts `guess` bytes.
    pub fn next_payloads(&self, next: &mut usize, bytes: u64, guess: u64) -> Vec<u32> {
        let (mut requested, mut total) = (Vec::new(), 0u64);
        while let Some(payload) = self.payloads.get(*next) {
            if !payload.is_done.load(Ordering::Acquire) {
                total = total.saturating_add(payload.size().unwrap_or(guess));
                if requested.len() == MAX_PAYLOADS || total > bytes && !requested.is_empty() {
                    break;
                }
                requested.push(*next as u32);
            }
            *next += 1;
        }
        requested
    }
}

/// Payloads that are requested together.
pub struct Request {
    pub(crate) batch: Arc<Batch>,
    /// Which of the batch's payloads they are.
    pub indices: Vec<u32>,
}

impl Request {
    pub(crate) fn new(batch: Arc<Batch>, indices: Vec<u32>) -> Self {
        Self { batch, indices }
    }

    pub(crate) fn payloads(&self) -> impl Iterator<Item = &PlannedPayload> {
        self.indices.iter().map(|&index| &self.batch.payloads[index as usize])
    }

    /// The payload at this place of the request.
    pub fn payload(&self, index: usize) -> &PlannedPayload {
        &self.batch.payloads[self.indices[index] as usize]
    }
}

/// Files that are not requested yet.
#[derive(Default)]
pub struct Files {
    /// Files that were added.
    pub count: u32,
    /// The sum of their sizes, as far as these are known.
    pub bytes: u64,
    pub(crate) has_unknown_sizes: bool,
    pub(crate) draft: BatchDraft,
    /// Files that are lists whose payloads are not known yet.
    pub(crate) lists: HashMap<u32, ListFile>,
    pub(crate) listed: u32,
    /// Extended attributes of files and links that are not restored: where the first is, and how many there are.
    pub(crate) unrestored: BTreeMap<String, (String, u64)>,
    /// The batch that is being requested, and its payload to request next.
    pub open: Option<(Arc<Batch>, usize)>,
}

/// A file that is a list.
pub(crate) struct ListFile {
    pub(crate) place: (u32, CString),
    pub(crate) target: Cid,
    pub(crate) attributes: Metadata,
    /// The item that it is held as, if all are.
    pub(crate) item: Option<u32>,
}

/// Files that wait to be requested, from which on nobody should add more.
const MAX_WAITING_FILES: usize = 65_536;

impl Files {
    /// The number of files that were added, and the sum of their sizes; none if one of them is not known.
    pub fn added(&self) -> (u32, Option<u64>) {
        (self.count, (!self.has_unknown_sizes).then_some(self.bytes))
    }

    /// Whether so many files wait to be requested that no more should be added.
    pub fn are_enough(&self) -> bool {
        self.draft.count() >= MAX_WAITING_FILES
    }
}

/// A file to add.
pub struct NewFile<'a> {
    pub(crate) number: u32,
    pub(crate) place: (u32, CString),
    /// The payloads in order, at least one. The size of each but the last is known.
    pub parts: &'a [(Cid, Option<u64>)],
    pub(crate) list: Option<&'a Cid>,
    pub(crate) attributes: Metadata,
    pub(crate) placement: Placement,
}

/// The sum of the sizes that are known of a file's payloads, in order.
///
/// # Errors
/// [`Error::Input`] if no file can be that long.
pub fn known_size(parts: &[(Cid, Option<u64>)]) -> Result<u64> {
    let sum = parts.iter().try_fold(0u64, |sum, (_, size)| sum.checked_add(size.unwrap_or(0)));
    sum.filter(|&sum| sum <= MAX_FILE_BYTES).ok_or_else(|| {
        Error::input(InputCode::TooLarge, "the sizes of its payloads sum to 2^63 or more, which no file can have")
    })
}

/// A batch that files are added to.
#[derive(Default)]
pub struct BatchDraft {
    batch: Batch,
    /// Where payloads are in the batch, by CID.
    indices: HashMap<Box<[u8]>, u32>,
}

impl BatchDraft {
    /// Adds a file. O(parts).
    pub fn add(&mut self, new: NewFile<'_>) -> Result<()> {
        let file = count(self.batch.files.len())?;
        let mut offset = 0;
        for (cid, size) in new.parts {
            let index = match self.indices.get(cid.as_bytes()) {
                Some(&index) => index,
                None => {
                    let index = count(self.batch.payloads.len())?;
                    let cid: Box<[u8]> = cid.as_bytes().into();
                    self.indices.insert(Box::clone(&cid), index);
                    self.batch.payloads.push(PlannedPayload {
                        cid,
                        places: Vec::new(),
                        is_counted: AtomicBool::new(false),
                        is_done: AtomicBool::new(false),
                    });
                    index
                }
            };
            self.batch.payloads[index as usize].places.push(Place { file, offset, size: *size });
            offset += size.unwrap_or(0);
        }
        let (folder, name) = new.place;
        self.batch.files.push(PlannedFile {
            number: new.number,
            folder,
            name,
            attributes: new.attributes,
            placement: new.placement,
            list: new.list.map(|cid| cid.as_bytes().into()),
            parts_left: AtomicU32::new(count(new.parts.len())?),
            created: Mutex::new(None),
        });
        Ok(())
    }

    /// The number of files.
    pub fn count(&self) -> usize {
        self.batch.files.len()
    }

    /// The batch; the next file begins another one.
    pub fn take(&mut self) -> Batch {
        self.indices.clear();
        std::mem::take(&mut self.batch)
    }
}
