//! A folder and what was known of it the last time, side by side in key order.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt as _;

use core::{Cid, Error, Result};
use coregw_core as core;

use super::super::hashed::{Hashed, Recorded};
use super::super::survey::State;
use super::stat_file::{OldEntries, OldEntry, StatFile};

/// The entries of a survey joined with those of a cache, by path.
pub(super) struct Joined<'a> {
    state: &'a State,
    next: usize,
    /// The path of the next entry of the survey, if there is one.
    path: Vec<u8>,
    old: Option<OldEntries>,
    pending: Option<OldEntry>,
}

/// A path's place in the survey, and what was known of it; at least one of the two.
type Pair = (Option<usize>, Option<OldEntry>);

impl<'a> Joined<'a> {
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub(super) fn new(state: &'a State, cache: Option<&StatFile>) -> Result<Self> {
        let old = cache.map(StatFile::entries).transpose().map_err(unreadable)?;
        let mut joined = Self { state, next: 0, path: Vec::new(), old, pending: None };
        joined.find_path();
        joined.read_old()?;
        Ok(joined)
    }

    /// The next path, in key order.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<Pair>> {
        let is_there = self.next < self.state.entries.len();
        let order = match &self.pending {
            Some(old) if is_there => compare(&self.path, &old.path),
            Some(_) => Ordering::Greater,
            None if is_there => Ordering::Less,
            None => return Ok(None),
        };
        let index = (order != Ordering::Greater).then_some(self.next);
        let old = if order == Ordering::Less { None } else { self.pending.take() };
        if index.is_some() {
            self.next += 1;
            self.find_path();
        }
        if old.is_some() {
            self.read_old()?;
        }
        Ok(Some((index, old)))
    }

    fn find_path(&mut self) {
        self.path.clear();
        // Paths are compared with those of the cache only.
        if self.old.is_some() && self.next < self.state.entries.len() {
            self.path.extend_from_slice(self.state.entries.path(self.next).as_os_str().as_bytes());
        }
    }

    fn read_old(&mut self) -> Result<()> {
        self.pending = match &mut self.old {
            Some(old) => old.next().map_err(unreadable)?,
            None => None,
        };
        Ok(())
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::damaged(format!("the cache of files' states cannot be read: {error}"))
}

/// The order of the keys of two paths: a folder comes before what is in it, and that before the folder's siblings.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).cmp(b.iter().map(key))
}

/// A path, and its targets before and after.
pub(super) type Change = (String, Option<Cid>, Option<Cid>);

/// The changes of the folder's map and of its map of attributes since the cache was written; None if there are more
/// than `most`. Those of attributes are left out if nothing is recorded. O(entries).
///
/// # Errors
/// [`Error::Damaged`] if the cache cannot be read; [`Error::Input`] if a record is too long.
pub(super) fn changes(
    hashed: &Hashed,
    cache: &StatFile,
    recorded: Recorded,
    most: usize,
) -> Result<Option<[Vec<Change>; 2]>> {
    let mut found = [Vec::new(), Vec::new()];
    let mut joined = Joined::new(&hashed.state, Some(cache))?;
    while let Some((index, old)) = joined.next()? {
        let of_old = |old: OldEntry| ([old.target, old.record.filter(|_| !recorded.is_nothing())], Some(old.path));
        let (before, path) = old.map_or(([None; 2], None), of_old);
        let mut after = [None; 2];
        if let Some(index) = index {
            after = [hashed.targets.get(index), hashed.record(index, recorded)?.map(|record| record.target)];
        }
        if before == after {
            continue;
        }
        let path = match (path, index) {
            (Some(path), _) => String::from_utf8_lossy(&path).into_owned(),
            (None, Some(index)) => hashed.state.entries.path(index).to_string_lossy().into_owned(),
            (None, None) => continue,
        };
        for ((changes, before), after) in found.iter_mut().zip(before).zip(after) {
            if before != after {
                changes.push((path.clone(), before, after));
            }
        }
        if found.iter().map(Vec::len).sum::<usize>() > most {
            return Ok(None);
        }
    }
    Ok(Some(found))
}
