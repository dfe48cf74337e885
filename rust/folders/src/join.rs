//! The two listings of a folder, joined page by page: what each path is, its target, and what is known of it.
//!
//! ```text
//! folder's map         bin/go ──────┐
//!                      readme ────┐ │
//! map of attributes    bin        │ │      →  bin (folder), bin/go (file), bin/now (link), readme (file)
//!                      bin/go ────│─┘
//!                      bin/now    │
//!                      readme ────┘
//! ```
//!
//! The record at the reserved name is that of the folder itself, and no entry.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use coregw_core::{Cid, Error, InputCode, Kind, Result, RootCid};

use crate::attributes::{Attributes, Entry};

/// The reserved path of a folder's map that names the map of attributes.
pub const ATTRIBUTES_PATH: &str = ".coregw/attributes";
/// The reserved first segment: no file or folder of that name is part of a folder.
pub const RESERVED_NAME: &str = ".coregw";

/// What a path of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A folder that has a record.
    Folder,
    /// A nested map: a folder with attributes of its own.
    Map,
}

/// A path of a folder, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// The path.
    pub segments: Vec<String>,
    /// What it is.
    pub kind: PathKind,
    /// The target in the folder's map; none for a symbolic link or a folder.
    pub target: Option<Cid>,
    /// What is known of it; none without a record. Paths with the same long record share it.
    pub attributes: Option<Arc<Attributes>>,
}

/// A record in the map of attributes.
#[derive(Debug)]
enum Found {
    Decoded(Arc<Attributes>),
    /// Its bytes are a payload, which is not here yet.
    Payload(Cid),
}

/// The records that are payloads, decoded. Any number of paths may share one, in all maps of a tree, and a record may have
/// a megabyte: so it is fetched and kept once.
#[derive(Debug, Default)]
pub struct Records {
    /// Whether extended attributes are of interest. Otherwise they are forgotten, and a record is small.
    has_xattrs: bool,
    recent: HashMap<Cid, Arc<Attributes>>,
    /// Those before `recent`. All of these were in use since the ones before them were forgotten.
    older: HashMap<Cid, Arc<Attributes>>,
}

/// Records that are remembered, at least; at most twice as many.
const REMEMBERED_RECORDS: usize = 1 << 16;

impl Records {
    /// No records; those that come keep extended attributes only if these are wanted.
    pub fn new(has_xattrs: bool) -> Self {
        Self { has_xattrs, ..Self::default() }
    }

    fn decoded(&self, segments: &[String], target: &Cid, payload: Option<&[u8]>) -> Result<Arc<Attributes>> {
        let mut attributes = Attributes::of_record(target, payload)
            .map_err(|error| error.within(&format!("the attributes of {}", shown(segments))))?;
        if !self.has_xattrs {
            attributes.xattrs.clear();
        }
        Ok(Arc::new(attributes))
    }

    fn get(&mut self, target: &Cid) -> Option<Arc<Attributes>> {
        if let Some(known) = self.recent.get(target) {
            return Some(Arc::clone(known));
        }
        let known = self.older.remove(target)?;
        self.put(target, Arc::clone(&known));
        Some(known)
    }

    fn put(&mut self, target: &Cid, attributes: Arc<Attributes>) {
        if self.recent.len() >= REMEMBERED_RECORDS {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(*target, attributes);
    }
}

/// Joins the listings of a folder's two maps, each of which comes in pages and in key order.
///
/// Memory: what one listing is ahead of the other.
#[derive(Debug)]
pub struct FolderJoin {
    /// The root of the folder's map, unless the reserved path does not matter.
    root: Option<RootCid>,
    files: VecDeque<(Vec<String>, Cid)>,
    records: VecDeque<(Vec<String>, Found)>,
    has_all_files: bool,
    has_all_records: bool,
    attributes_root: Option<RootCid>,
    /// Whether a path after the reserved one is listed.
    has_passed_reserved: bool,
    /// What is known of the folder itself, once its record is joined.
    top: Option<Arc<Attributes>>,
    /// The link that came last: nothing may be below it.
    link: Option<Vec<String>>,
}

impl FolderJoin {
    /// The join of a folder's listings, with nothing listed.
    pub fn new(root: RootCid) -> Self {
        Self { root: Some(root), ..Self::of_decoded() }
    }

    /// The join of listings whose records are all decoded, with nothing listed. The reserved path is left out.
    pub fn of_decoded() -> Self {
        Self {
            root: None,
            files: VecDeque::new(),
            records: VecDeque::new(),
            has_all_files: false,
            has_all_records: false,
            attributes_root: None,
            has_passed_reserved: false,
            top: None,
            link: None,
        }
    }

    /// Adds the next page of the folder's map; `has_more` says that others follow. O(entries).
    ///
    /// # Errors
    /// [`Error::Input`] if the reserved path does not name a map of the folder's suite.
    pub fn add_files(&mut self, entries: Vec<(Vec<String>, Cid)>, has_more: bool) -> Result<()> {
        for (segments, target) in entries {
            if is_reserved(&segments) {
                if let Some(root) = &self.root {
                    self.attributes_root = Some(checked_root(root, &target)?);
                }
            } else {
                self.files.push_back((segments, target));
            }
        }
        self.has_all_files = !has_more;
        self.has_passed_reserved |= self.files.back().is_some_and(|(last, _)| last[0].as_str() > RESERVED_NAME);
        Ok(())
    }

    /// Adds the next decoded records; `has_more` says that others follow. O(records).
    pub fn add_decoded(&mut self, records: Vec<(Vec<String>, Arc<Attributes>)>, has_more: bool) {
        self.records.extend(records.into_iter().map(|(segments, attributes)| (segments, Found::Decoded(attributes))));
        self.has_all_records = !has_more;
    }

    /// Adds the next page of the map of attributes. O(entries).
    ///
    /// # Errors
    /// [`Error::Input`] if a target is not a record.
    pub fn add_records(&mut self, known: &mut Records, entries: Vec<(Vec<String>, Cid)>, has_more: bool) -> Result<()> {
        for (segments, target) in entries {
            let found = match (target.identity(), known.get(&target)) {
                (Some(_), _) => Found::Decoded(known.decoded(&segments, &target, None)?),
                (None, Some(attributes)) => Found::Decoded(attributes),
                (None, None) => Found::Payload(target),
            };
            self.records.push_back((segments, found));
        }
        self.has_all_records = !has_more;
        Ok(())
    }

    /// The root of the map of attributes, if its path is listed.
    pub fn attributes_root(&self) -> Option<RootCid> {
        self.attributes_root
    }

    /// Whether more of the folder's map has to be listed to know whether there is a map of attributes.
    pub fn may_have_attributes(&self) -> bool {
        self.attributes_root.is_none() && !self.has_all_files && !self.has_passed_reserved
    }

    /// The records that are payloads and not here yet, each once. O(records that wait).
    pub fn missing_records(&self) -> impl Iterator<Item = &Cid> {
        let mut seen = HashSet::new();
        self.records.iter().filter_map(move |(_, found)| match found {
            Found::Payload(target) => seen.insert(target).then_some(target),
            Found::Decoded(_) => None,
        })
    }

    /// Supplies a record that is a payload. O(records that wait + bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if it is not a record.
    pub fn supply_record(&mut self, known: &mut Records, target: &Cid, payload: &[u8]) -> Result<()> {
        let mut decoded = None;
        for (segments, found) in &mut self.records {
            if matches!(found, Found::Payload(missing) if missing == target) {
                let attributes = match decoded {
                    Some(attributes) => attributes,
                    None => known.decoded(segments, target, Some(payload))?,
                };
                *found = Found::Decoded(Arc::clone(&attributes));
                decoded = Some(attributes);
            }
        }
        if let Some(attributes) = decoded {
            known.put(target, attributes);
        }
        Ok(())
    }

    /// The entries that wait for the other listing, in the folder's map and in the map of attributes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.files.len(), self.records.len())
    }

    /// What is known of the folder itself: none before all paths before its record are joined, and without a record.
    pub fn top(&self) -> Option<&Arc<Attributes>> {
        self.top.as_ref()
    }

    /// The next entry, in key order; none if more has to be listed first, or all have been returned. O(depth).
    ///
    /// # Errors
    /// [`Error::Input`] if a record contradicts the folder's map; the message names the path.
    pub fn next_entry(&mut self) -> Result<Option<FolderEntry>> {
        let has_no_records = self.root.is_some() && self.attributes_root.is_none() && !self.may_have_attributes();
        let order = match (self.files.front(), self.records.front()) {
            (Some(file), Some(record)) => file.0.cmp(&record.0),
            (Some(_), None) if has_no_records || self.has_all_records => Ordering::Less,
            (None, Some(_)) if self.has_all_files => Ordering::Greater,
            _ => return Ok(None),
        };
        if order.is_ge() && matches!(self.records.front(), Some((_, Found::Payload(_)))) {
            return Ok(None);
        }
        let file = if order.is_le() { self.files.pop_front() } else { None };
        let record = if order.is_ge() { self.records.pop_front() } else { None };
        if let Some((path, Found::Decoded(attributes))) = &record
            && is_top(path)
        {
            if file.is_some() || attributes.entry != Entry::Folder {
                return Err(refused(path, "it is reserved for the record of the folder itself"));
            }
            self.top = Some(Arc::clone(attributes));
            return self.next_entry();
        }
        let (record_path, attributes) = match record {
            Some((path, Found::Decoded(attributes))) => (Some(path), Some(attributes)),
            _ => (None, None),
        };
        let (path, target) = file.map_or((None, None), |(path, target)| (Some(path), Some(target)));
        let Some(segments) = path.or(record_path) else { return Ok(None) };
        if self.link.as_ref().is_some_and(|link| segments.starts_with(link)) {
            return Err(refused(&segments, "it is below a symbolic link"));
        }
        let kind = kind(target.as_ref(), attributes.as_deref()).map_err(|why| refused(&segments, why))?;
        self.link = (kind == PathKind::Link).then(|| segments.clone());
        Ok(Some(FolderEntry { segments, kind, target, attributes }))
    }
}

fn kind(target: Option<&Cid>, attributes: Option<&Attributes>) -> Result<PathKind, &'static str> {
    let is_map = target.and_then(Cid::root).is_some_and(|root| root.kind == Kind::Map);
    match (target, attributes.map(|attributes| &attributes.entry)) {
        (None, Some(Entry::Folder)) => Ok(PathKind::Folder),
        (None, Some(Entry::Link(_))) => Ok(PathKind::Link),
        (None, _) => Err("it has a file's attributes, and no file"),
        (Some(_), None | Some(Entry::Folder)) if is_map => Ok(PathKind::Map),
        (Some(_), Some(Entry::File)) if is_map => Err("it is a map with the attributes of a file"),
        (Some(_), Some(Entry::Link(_))) if is_map => Err("it is a map with the attributes of a link"),
        (Some(_), None | Some(Entry::File)) => Ok(PathKind::File),
        (Some(_), Some(Entry::Folder)) => Err("it is a file with the attributes of a folder"),
        (Some(_), Some(Entry::Link(_))) => Err("it is a file with the attributes of a link"),
    }
}

fn checked_root(root: &RootCid, target: &Cid) -> Result<RootCid> {
    let found = target.root().filter(|found| found.kind == Kind::Map && found.suite == root.suite);
    found.ok_or_else(|| {
        let what = format!("{ATTRIBUTES_PATH}: {target} is not a map of the folder's suite");
        Error::input(InputCode::KindMismatch, what)
    })
}

/// Whether this is the path of the record of the folder itself.
pub fn is_top(segments: &[String]) -> bool {
    matches!(segments, [name] if name == RESERVED_NAME)
}

fn is_reserved(segments: &[String]) -> bool {
    segments.iter().map(String::as_str).eq(ATTRIBUTES_PATH.split('/'))
}

fn refused(segments: &[String], why: &str) -> Error {
    Error::input(InputCode::InvalidPath, format!("{}: {why}", shown(segments)))
}

/// A path for messages: on one line, without control characters.
pub fn shown(segments: &[String]) -> String {
    let escape = |c: char| if c.is_control() { format!("\\x{:02x}", u32::from(c)) } else { c.into() };
    segments.join("/").chars().map(escape).collect()
}
