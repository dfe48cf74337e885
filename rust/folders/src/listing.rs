//! The proven listings of a folder's two maps, joined, and passed on to a writer as they come.

use coregw_core::{Cid, Error, Kind, Result, RootCid};
use coregw_ops as ops;

use crate::join::{FolderEntry, FolderJoin, PathKind, Records};
use crate::metadata::Metadata;
use crate::plan::{Files, Placement, Plan, TOP};
use crate::writer::Writing;

/// The name of the folder for incomplete files in a destination: `coregw.client.folders.names.INSIDE`.
const INCOMPLETE: &str = ".coregw.partial";

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

    /// Adds the files of one payload and the folders that are joined to what a writer writes, and returns the other
    /// entries: links, nested maps, files that are lists, and folders that have no attributes because they are moved.
    /// O(entries).
    ///
    /// # Errors
    /// [`Error::Input`] as [`Writing::add_file`]; if a path is a file and a folder, or that of the folder for incomplete
    /// files; or as [`FolderJoin::next_entry`].
    pub fn add_to(&mut self, work: &Writing, below: u32, placement: Placement) -> Result<Vec<FolderEntry>> {
        let Self { join, leaf, .. } = self;
        let (mut files, mut plan) = work.planned();
        let mut others = Vec::new();
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
            if !add_entry(work, (&mut plan, &mut files), below, &entry, placement)? {
                others.push(entry);
            }
        }
        Ok(others)
    }
}

/// Adds an entry that is a folder, or a file of one payload.
fn add_entry(
    work: &Writing,
    (plan, files): (&mut Plan, &mut Files),
    below: u32,
    entry: &FolderEntry,
    placement: Placement,
) -> Result<bool> {
    let (path, known) = (&entry.segments, entry.attributes.as_deref());
    let attributes = known.map_or_else(Metadata::default, |known| {
        let is_executable = known.is_exec_bit();
        let mode = known.mode.filter(|_| !is_executable).map(u32::from);
        Metadata { mode, mtime: known.mtime, is_executable }
    });
    match (entry.kind, &entry.target) {
        (PathKind::File, Some(target)) if target.root().is_none() => {
            let part = (*target, known.and_then(|known| known.size));
            work.add_file((plan, files), (below, path), (&[part], None), attributes, placement)?;
            Ok(true)
        }
        (PathKind::Folder, _) => {
            let number = plan.folder(below, path)?;
            plan.folders[number as usize].attributes = attributes;
            Ok(below != TOP || path.len() > 1 || !work.is_moved)
        }
        _ => Ok(false),
    }
}
