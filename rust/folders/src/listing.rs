//! The proven listings of a folder's two maps, joined, and passed on to a writer as they come.

use coregw_core::{Cid, Error, Kind, Result, RootCid};
use coregw_ops as ops;

use crate::attributes::Entry;
use crate::join::{FolderEntry, FolderJoin, PathKind, Records};
use crate::metadata::Metadata;
use crate::plan::{Content, Files, ListFile, Placement, Plan, TOP};
use crate::writer::Writing;

/// The name of the folder for incomplete files in a destination: `coregw.client.folders.names.INSIDE`.
pub(crate) const INCOMPLETE: &str = ".coregw.partial";

/// The listings of a folder's two maps (protocol section 7), verified and joined page by page.
pub struct Listing {
    root: RootCid,
    join: FolderJoin,
    /// How far the folder's map and the map of attributes are listed.
    listed: [Listed; 2],
    /// The file or link that came last: nothing may be below it.
    leaf: Vec<String>,
}

/// Which of the two maps a page is of.
#[derive(Clone, Copy)]
pub enum Side {
    /// The folder's map.
    Files,
    /// The map of attributes.
    Records,
}

/// How far a map is listed.
#[derive(Clone, PartialEq, Eq)]
enum Listed {
    /// Up to this path; to no path yet.
    After(Option<Vec<String>>),
    Whole,
}

/// The page that a listing needs next.
pub struct NextPage {
    side: Side,
    root: RootCid,
    after: Option<Vec<String>>,
}

/// A page that was verified.
pub struct ListedPage {
    next: NextPage,
    entries: Vec<(Vec<String>, Cid)>,
    more: bool,
}

impl NextPage {
    /// Verifies the result of a request for this page. O(depth + entries) hashes.
    ///
    /// # Errors
    /// [`Error::Input`] if the request is malformed, or not one for this page; [`Error::Proof`] if anything is wrong in the
    /// result.
    pub fn verify(self, request: &[u8], result: &[u8]) -> Result<ListedPage> {
        let listing = ops::verify_page(&self.root, self.after.as_deref(), request, result)?;
        let (entries, more) = (listing.decoded(), listing.more);
        if more && entries.is_empty() {
            return Err(Error::proof("a listing says that more entries follow, but is empty"));
        }
        Ok(ListedPage { next: self, entries, more })
    }
}

impl Listing {
    /// Nothing is listed yet.
    ///
    /// # Errors
    /// [`Error::Input`] if it is not the root of a map.
    pub fn new(root: &Cid) -> Result<Self> {
        let root = RootCid::of(root, Kind::Map)?;
        let listed = [Listed::After(None), Listed::After(None)];
        Ok(Self { root, join: FolderJoin::new(root), listed, leaf: Vec::new() })
    }

    /// The listings as they are joined.
    pub fn join(&mut self) -> &mut FolderJoin {
        &mut self.join
    }

    /// The page that is needed next of a map.
    ///
    /// # Errors
    /// [`Error::Input`] if all of it is listed, or it is that of attributes and its root is not known.
    pub fn next_page(&self, side: Side) -> Result<NextPage> {
        let root = match side {
            Side::Files => Some(self.root),
            Side::Records => self.join.attributes_root(),
        };
        let root = root.ok_or_else(|| Error::request("no map of attributes is listed"))?;
        match &self.listed[side as usize] {
            Listed::After(after) => Ok(NextPage { side, root, after: after.clone() }),
            Listed::Whole => Err(Error::request(format!("all of the map {root} is listed"))),
        }
    }

    /// Adds a page: the number of its entries; the last path, if others follow. O(entries).
    ///
    /// # Errors
    /// [`Error::Input`] if another page was added since this one was asked for, the reserved path does not name a map of
    /// the folder's suite, or a target is not a record.
    pub fn add(&mut self, known: &mut Records, page: ListedPage) -> Result<(usize, Option<Vec<String>>)> {
        let ListedPage { next: NextPage { side, after, .. }, entries, more } = page;
        if self.listed[side as usize] != Listed::After(after) {
            return Err(Error::request("another thread has added a page meanwhile"));
        }
        let last = if more { entries.last().map(|(segments, _)| segments.clone()) } else { None };
        let count = entries.len();
        match side {
            Side::Files => self.join.add_files(entries, more)?,
            Side::Records => self.join.add_records(known, entries, more)?,
        }
        self.listed[side as usize] = if more { Listed::After(last.clone()) } else { Listed::Whole };
        Ok((count, last))
    }

    /// Adds the entries that are joined to what a writer writes, and returns what has to be asked for: nested maps, and the
    /// payloads of files that are lists. O(entries).
    ///
    /// # Errors
    /// [`Error::Input`] as [`Writing::add_file`]; if a path is a file and a folder, or that of the folder for incomplete
    /// files; or as [`FolderJoin::next_entry`].
    pub fn add_to(&mut self, work: &Writing, below: u32, placement: Placement) -> Result<Wanted> {
        let Self { join, leaf, .. } = self;
        let (mut files, mut plan) = work.planned();
        let mut wanted = Wanted::default();
        while let Some(entry) = join.next_entry()? {
            let path = &entry.segments;
            if below == TOP && path.first().is_some_and(|first| first == INCOMPLETE) {
                return Err(plan.refused(below, &path[..1], "is the name of the folder for incomplete files"));
            }
            if !leaf.is_empty() && path.starts_with(leaf) {
                return Err(plan.refused(below, leaf, "it is both a file and a folder"));
            }
            if matches!(entry.kind, PathKind::File | PathKind::Link) {
                leaf.clone_from(path);
            }
            add_entry(work, (&mut plan, &mut files), below, entry, placement, &mut wanted)?;
        }
        // What is recorded of a nested map itself comes before what the map above has recorded of its path.
        if let Some(own) = join.top() {
            plan.note_records(own);
            plan.add_folder(below, &[], work.top.extras.metadata(own))?;
        }
        Ok(wanted)
    }
}

/// What a writer needs besides what is joined.
#[derive(Default)]
pub struct Wanted {
    /// Nested maps: the number of the folder that each is, how many folders it is below in the map that it is nested in, and
    /// its root.
    pub maps: Vec<(u32, usize, Cid)>,
    /// Files that are lists: the number by which the payloads of each are supplied, the path, the list, and the
    /// size that is recorded.
    pub lists: Vec<(u32, String, Cid, Option<u64>)>,
}

fn add_entry(
    work: &Writing,
    (plan, files): (&mut Plan, &mut Files),
    below: u32,
    entry: FolderEntry,
    placement: Placement,
    wanted: &mut Wanted,
) -> Result<()> {
    let FolderEntry { segments: path, kind, target, attributes: known } = entry;
    let extras = &work.top.extras;
    let attributes = known.as_ref().map_or_else(Metadata::default, |known| extras.metadata(known));
    if let Some(known) = &known {
        plan.note_records(known);
    }
    if matches!(kind, PathKind::Folder | PathKind::Map) {
        let number = plan.add_folder(below, &path, attributes)?;
        wanted.maps.extend(target.map(|target| (number, path.len(), target)));
        return Ok(());
    }
    let place = plan.place(below, &path)?;
    if let Some(known) = known.as_ref().filter(|_| extras.xattrs && kind == PathKind::File) {
        for name in known.xattrs.keys().filter(|name| !extras.restores(name)) {
            let first = || (plan.path(place.0, &place.1), 0);
            files.unrestored.entry(name.clone()).or_insert_with(first).1 += 1;
        }
    }
    match (target, known.as_ref().map(|known| &known.entry)) {
        (None, Some(Entry::Link(link))) => plan.add_link(place, link.clone(), attributes, placement),
        (None, _) => Ok(()),
        (Some(list), _) if list.root().is_some() => {
            let number = files.listed;
            files.listed += 1;
            wanted.lists.push((number, plan.path(place.0, &place.1), list, known.and_then(|known| known.size)));
            let mut file = ListFile { place: place.clone(), target: list, attributes: attributes.clone(), item: None };
            if plan.held.is_some() {
                let content = Content::File(Vec::new(), Some(Box::new(list)));
                file.item = Some(plan.hold(place, content, attributes)?);
            }
            files.lists.insert(number, file);
            Ok(())
        }
        (Some(payload), _) => {
            let part = (payload, known.and_then(|known| known.size));
            work.add_file((plan, files), place, (&[part], None), attributes, placement)
        }
    }
}
