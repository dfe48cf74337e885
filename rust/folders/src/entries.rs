//! The entries of a survey, in little memory: one block a folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

/// The bits of `st_mode` that are recorded.
const MODE_BITS: u32 = 0o7777;

/// What the file system says of a file, link or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// The size of a file in bytes; of a link, the length of its target.
    pub size: u64,
    /// The time of the last modification. One that is more than 292 years from 1970 is the nearest that is not.
    pub mtime_ns: i64,
    /// The time of the last change of content or state.
    pub ctime_ns: i64,
    /// The number of the inode.
    pub inode: u64,
    /// The number of the device.
    pub device: u64,
    /// The permission bits, and set-user-id, set-group-id and sticky.
    pub mode: u16,
    /// The numbers of the owner and the group.
    pub owner: (u32, u32),
}

impl FileState {
    #[allow(clippy::unnecessary_cast)] // the types of devices and modes differ between systems
    pub(crate) fn of(found: &Stat) -> Self {
        let ns = |seconds: i64, rest: i128| {
            let time = i128::from(seconds) * 1_000_000_000 + rest;
            time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        Self {
            size: found.st_size as u64,
            mtime_ns: ns(found.st_mtime, found.st_mtime_nsec.into()),
            ctime_ns: ns(found.st_ctime, found.st_ctime_nsec.into()),
            inode: found.st_ino,
            device: found.st_dev as u64,
            mode: (found.st_mode as u32 & MODE_BITS) as u16,
            owner: (found.st_uid, found.st_gid),
        }
    }

    /// The same state of a file of which this many bytes count.
    pub fn with_size(self, size: u64) -> Self {
        Self { size, ..self }
    }

    /// Whether the time of the last modification is the one that the file system says, and not only the nearest.
    #[allow(clippy::unnecessary_cast)] // as in `of`
    pub fn has_mtime_of(&self, found: &Stat) -> bool {
        self.mtime_ns.div_euclid(1_000_000_000) == found.st_mtime as i64
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A folder.
    Folder,
}

impl EntryKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Link => "link",
            Self::Folder => "folder",
        }
    }
}

/// Where an entry is and whose it is: few differ in one folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    device: u64,
    owner: (u32, u32),
}

/// One entry of a folder, in 48 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    pub(crate) kind: EntryKind,
    name_len: u8,
    mode: u16,
    /// Where the name is in the folder's text. A link's target follows it.
    name_at: u32,
    /// Which of the folder's origins it has.
    origin: u32,
    /// The size of a file, the length of a link's target, or the number of a folder (0: it was not entered).
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    inode: u64,
}

impl Item {
    fn link_len(&self) -> usize {
        if self.kind == EntryKind::Link { self.size as usize } else { 0 }
    }

    /// The number of the folder that this entry is, once it was entered.
    fn folder(&self) -> Option<u32> {
        (self.kind == EntryKind::Folder && self.size != 0).then_some(self.size as u32)
    }

    /// Records the number of the folder that this entry is.
    pub fn set_folder(&mut self, number: u32) {
        self.size = number.into();
    }
}

/// A folder that was listed: its entries, in the order of their names.
#[derive(Debug, Default)]
pub struct FolderItems {
    /// The number of the folder above, and the place of this one in it; of the top folder, its own number.
    pub above: (u32, u32),
    text: Box<[u8]>,
    pub(crate) items: Box<[Item]>,
    origins: Vec<Origin>,
}

/// A folder that is being listed.
#[derive(Default)]
pub struct FolderDraft {
    text: Vec<u8>,
    items: Vec<Item>,
    origins: Vec<Origin>,
}

/// The place of a state's origin among `origins`, which it joins if it is new.
fn origin_of(origins: &mut Vec<Origin>, state: FileState) -> u32 {
    let origin = Origin { device: state.device, owner: state.owner };
    let known = origins.iter().rposition(|known| *known == origin);
    known.unwrap_or_else(|| {
        origins.push(origin);
        origins.len() - 1
    }) as u32
}

impl FolderDraft {
    /// Adds an entry. False if its name or its target is too long for a file system, or the folder too large.
    pub fn push(&mut self, kind: EntryKind, name: &OsStr, target: &[u8], state: FileState) -> bool {
        let (Ok(name_len), Ok(name_at)) = (name.len().try_into(), self.text.len().try_into()) else { return false };
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(target);
        let size = match kind {
            EntryKind::File => state.size,
            EntryKind::Link => target.len() as u64,
            EntryKind::Folder => 0,
        };
        let FileState { mtime_ns, ctime_ns, inode, mode, .. } = state;
        let origin = origin_of(&mut self.origins, state);
        self.items.push(Item { kind, name_len, mode, name_at, origin, size, mtime_ns, ctime_ns, inode });
        true
    }

    /// The names of what is in the folder, and what each is.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], EntryKind)> {
        self.items.iter().map(|item| (name(&self.text, item), item.kind))
    }

    /// The folder with the entries for which `keep` is true. O(n log n).
    pub fn finish(self, above: (u32, u32), mut keep: impl FnMut(&[u8], EntryKind) -> bool) -> FolderItems {
        let mut text = Vec::with_capacity(self.text.len());
        let mut items: Vec<_> = self.items.into_iter().filter(|item| keep(name(&self.text, item), item.kind)).collect();
        items.sort_unstable_by(|a, b| name(&self.text, a).cmp(name(&self.text, b)));
        for item in &mut items {
            let bytes = &self.text[item.name_at as usize..][..usize::from(item.name_len) + item.link_len()];
            item.name_at = text.len() as u32;
            text.extend_from_slice(bytes);
        }
        FolderItems { above, text: text.into(), items: items.into(), origins: self.origins }
    }
}

fn name<'a>(text: &'a [u8], item: &Item) -> &'a [u8] {
    &text[item.name_at as usize..][..usize::from(item.name_len)]
}

impl FolderItems {
    pub(crate) fn name(&self, item: &Item) -> &OsStr {
        OsStr::from_bytes(name(&self.text, item))
    }

    fn link(&self, item: &Item) -> &[u8] {
        &self.text[item.name_at as usize + usize::from(item.name_len)..][..item.link_len()]
    }
}

/// The numbers of entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Files.
    pub files: u64,
    /// Symbolic links.
    pub links: u64,
    /// Folders, without the top one.
    pub folders: u64,
    /// The sum of the files' sizes when they were found.
    pub bytes: u64,
}

/// All entries below a folder, in key order: a folder, then what is in it.
#[derive(Debug, Default)]
pub struct Inventory {
    folders: Vec<FolderItems>,
    /// Entries that follow one another in one folder, with nothing of another folder between them.
    runs: Vec<ItemRun>,
    len: usize,
}

/// A run of entries of one folder.
#[derive(Debug, Clone, Copy)]
struct ItemRun {
    /// The place of its first entry among all.
    start: usize,
    /// The number of the folder.
    folder: u32,
    /// The place of the first entry in the folder.
    at: u32,
}

impl Inventory {
    /// Puts folders in order; the first one is the top. O(n).
    pub fn new(folders: Vec<FolderItems>) -> Self {
        let (mut runs, mut len) = (Vec::new(), 0);
        let mut open = vec![(0_u32, 0_u32)];
        while let Some((folder, at)) = open.pop() {
            let rest = folders.get(folder as usize).and_then(|folder| folder.items.get(at as usize..));
            let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { continue };
            runs.push(ItemRun { start: len, folder, at });
            let below = rest.iter().enumerate().find_map(|(place, item)| Some((place, item.folder()?)));
            len += below.map_or(rest.len(), |(place, _)| place + 1);
            if let Some((place, number)) = below {
                open.extend([(folder, at + place as u32 + 1), (number, 0)]);
            }
        }
        Self { folders, runs, len }
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.len
    }

    /// The number of an entry's folder, and the place of the entry in it. O(log runs).
    fn find(&self, index: usize) -> (u32, u32) {
        let run = self.runs[self.runs.partition_point(|run| run.start <= index) - 1];
        (run.folder, run.at + (index - run.start) as u32)
    }

    fn get(&self, index: usize) -> (&FolderItems, &Item) {
        let (folder, at) = self.find(index);
        let folder = &self.folders[folder as usize];
        (folder, &folder.items[at as usize])
    }

    /// What an entry is. O(log runs).
    pub fn kind(&self, index: usize) -> EntryKind {
        self.get(index).1.kind
    }

    /// What an entry was when it was found. A link's size is the length of its target.
    pub fn state(&self, index: usize) -> FileState {
        let (folder, item) = self.get(index);
        let Origin { device, owner } = folder.origins[item.origin as usize];
        let &Item { mtime_ns, ctime_ns, inode, mode, .. } = item;
        let size = if item.kind == EntryKind::Folder { 0 } else { item.size };
        FileState { size, mtime_ns, ctime_ns, inode, device, mode, owner }
    }

    /// The target of a symbolic link.
    pub fn link(&self, index: usize) -> &[u8] {
        let (folder, item) = self.get(index);
        folder.link(item)
    }

    /// The location of an entry, relative to the top. Its text is the path in the folder's map. O(depth).
    pub fn path(&self, index: usize) -> PathBuf {
        let (folder, at) = self.find(index);
        let here = &self.folders[folder as usize];
        self.folder_path(folder).join(here.name(&here.items[at as usize]))
    }

    /// The location of a folder, relative to the top.
    fn folder_path(&self, mut folder: u32) -> PathBuf {
        let mut names = Vec::new();
        while folder != 0 {
            let (above, at) = self.folders[folder as usize].above;
            let there = &self.folders[above as usize];
            names.push(there.name(&there.items[at as usize]));
            folder = above;
        }
        names.iter().rev().map(Path::new).collect()
    }

    /// The number of entries of each kind, and the sum of the sizes of files. O(entries).
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for item in self.folders.iter().flat_map(|folder| &folder.items) {
            match item.kind {
                EntryKind::File => {
                    counts.files += 1;
                    counts.bytes = counts.bytes.saturating_add(item.size);
                }
                EntryKind::Link => counts.links += 1,
                EntryKind::Folder => counts.folders += 1,
            }
        }
        counts
    }

    /// A cursor at the first entry.
    pub fn cursor(&self) -> EntryCursor<'_> {
        let mut cursor = EntryCursor { entries: self, index: 0, run: 0, folder_len: 0, path: Vec::new() };
        cursor.find_path();
        cursor
    }
}

/// Goes through all entries in order. Paths share one buffer.
pub struct EntryCursor<'a> {
    entries: &'a Inventory,
    index: usize,
    /// The place of the run that the entry is in.
    run: usize,
    /// The length of the folder's path in `path`, with its slash.
    folder_len: usize,
    path: Vec<u8>,
}

impl EntryCursor<'_> {
    /// The place of the entry; None after the last one.
    pub fn index(&self) -> Option<usize> {
        (self.index < self.entries.len).then_some(self.index)
    }

    /// The entry's path in the folder's map.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Goes to the next entry.
    pub fn advance(&mut self) {
        self.index += 1;
        if self.entries.runs.get(self.run + 1).is_some_and(|next| next.start == self.index) {
            self.run += 1;
        }
        self.find_path();
    }

    fn find_path(&mut self) {
        let Some(run) = self.entries.runs.get(self.run).filter(|_| self.index < self.entries.len) else { return };
        let folder = &self.entries.folders[run.folder as usize];
        if run.start == self.index {
            self.path = self.entries.folder_path(run.folder).into_os_string().into_encoded_bytes();
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.folder_len = self.path.len();
        }
        let item = &folder.items[run.at as usize + self.index - run.start];
        self.path.truncate(self.folder_len);
        self.path.extend_from_slice(folder.name(item).as_bytes());
    }
}
