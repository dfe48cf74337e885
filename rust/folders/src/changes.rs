//! A folder that is added, beside what was known of it the last time: the same paths in the same order. What is equal has not
//! changed.

use std::cmp::Ordering;
use std::io;

use coregw_core::{Cid, Error, Result};

use crate::entries::EntryCursor;
use crate::hashed::{Hashed, Recorded};
use crate::join::RESERVED_NAME;
use crate::stat_file::{StatEntries, StatFile, compare};
use crate::survey::Survey;

/// The entries of a survey joined with those of a cache, by path.
pub(crate) struct Joined<'a> {
    survey: EntryCursor<'a>,
    /// The cache at its next entry; None if it has no more.
    old: Option<StatEntries>,
    /// Which of the two have the current path.
    has: [bool; 2],
}

impl<'a> Joined<'a> {
    /// Before the first path.
    pub fn new(survey: &'a Survey, cache: Option<&StatFile>) -> Result<Self> {
        let mut joined =
            Self { survey: survey.entries.cursor(), old: cache.map(StatFile::entries), has: [false, true] };
        joined.advance_old()?;
        Ok(joined)
    }

    /// Goes to the next path, in key order; false at the end. Either the survey or the cache has it, or both.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the cache cannot be read.
    pub fn advance(&mut self) -> Result<bool> {
        if self.has[0] {
            self.survey.advance();
        }
        if self.has[1] {
            self.advance_old()?;
        }
        let order = match (self.survey.index(), &self.old) {
            (Some(_), Some(old)) => compare(self.survey.path(), &old.path),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(false),
        };
        self.has = [order.is_le(), order.is_ge()];
        Ok(true)
    }

    /// The place of the current path in the survey.
    pub fn index(&self) -> Option<usize> {
        self.survey.index().filter(|_| self.has[0])
    }

    /// What was known of the current path.
    pub fn old(&self) -> Option<&StatEntries> {
        self.old.as_ref().filter(|_| self.has[1])
    }

    /// The current path.
    fn path(&self) -> &[u8] {
        self.old().map_or_else(|| self.survey.path(), |old| &old.path)
    }

    fn advance_old(&mut self) -> Result<()> {
        self.has[1] = false;
        if let Some(old) = &mut self.old
            && !old.advance().map_err(unreadable)?
        {
            self.old = None;
        }
        Ok(())
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::damaged(format!("the cache of files' states cannot be read: {error}"))
}

/// A path, and its targets before and after.
pub type Change = (String, Option<Cid>, Option<Cid>);

/// What has changed since a cache was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Of the folder's map.
    pub files: Vec<Change>,
    /// Of its map of attributes.
    pub records: Vec<Change>,
    /// The places in the survey of entries whose records have changed.
    pub changed: Vec<usize>,
}

/// The changes of the folder's map and of its map of attributes since the cache was written; None if there are more
/// than `most`. Those of attributes are left out if nothing is recorded. O(entries).
///
/// # Errors
/// [`Error::Damaged`] if the cache cannot be read; [`Error::Input`] if a record is too long.
pub fn changes(hashed: &Hashed, cache: &StatFile, recorded: Recorded, most: usize) -> Result<Option<Changes>> {
    let mut found = Changes::default();
    let before = cache.header.top_record().filter(|_| !recorded.is_nothing());
    let after = hashed.top_record(recorded)?.map(|record| record.target);
    if before != after {
        found.records.push((RESERVED_NAME.to_owned(), before, after));
    }
    let mut joined = Joined::new(&hashed.survey, Some(cache))?;
    while joined.advance()? {
        let before = joined
            .old()
            .map_or([None; 2], |old| [old.target_bytes(), old.record_bytes().filter(|_| !recorded.is_nothing())]);
        let mut after = [None; 2];
        if let Some(index) = joined.index() {
            after = [hashed.targets.get(index), hashed.record(index, recorded)?.map(|record| record.target)];
        }
        for ((changes, before), after) in [&mut found.files, &mut found.records].into_iter().zip(before).zip(after) {
            if before != after.as_ref().map(Cid::as_bytes) {
                let before = before.and_then(|target| Cid::try_bytes(target).ok());
                changes.push((String::from_utf8_lossy(joined.path()).into_owned(), before, after));
            }
        }
        if before[1] != after[1].as_ref().map(Cid::as_bytes) {
            found.changed.extend(joined.index());
        }
        if found.files.len() + found.records.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(found))
}
