//! Paths in messages, as arrays of segments. No more is kept than a path can have, however many segments are sent.

use std::fmt;

use coregw_core::key::MAX_TEXT;
use coregw_core::{Error, InputCode, Key, KeyList, Result};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::json::Items;

/// The limit on the segments of a path: each has a byte, and all but the last a separator.
pub(crate) const MAX_SEGMENTS: usize = MAX_TEXT.div_ceil(2);

/// Room for the segments after the first one, in bytes: most paths are not longer.
const SPARE_BYTES: usize = 24;

/// A valid path, or no segments at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// The segments, joined by `/`, which none of them contains.
    text: String,
    /// The number of segments.
    len: usize,
}

impl Path {
    /// A path of these segments.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names the segment.
    #[cfg(test)]
    pub(crate) fn of(segments: &[&str]) -> Result<Self> {
        let mut path = Self::default();
        segments.iter().try_for_each(|segment| path.push(segment))?;
        Ok(path)
    }

    fn push(&mut self, segment: &str) -> Result<()> {
        if self.len == 0 {
            self.text.reserve(segment.len() + SPARE_BYTES);
        }
        push_segment(&mut self.text, 0, self.len, segment)?;
        self.len += 1;
        Ok(())
    }

    /// The number of segments.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The text form: the segments, joined by `/`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The key of the path.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] if there are no segments.
    pub(crate) fn key(&self) -> Result<Key> {
        // Segments contain no '/', so the text form is split into the same ones.
        if self.is_empty() { Key::from_segments(&self.segments()) } else { Key::from_text(&self.text) }
    }

    /// The segments. O(bytes).
    pub(crate) fn segments(&self) -> Vec<&str> {
        // The empty text would be split into one segment.
        self.text.split('/').take(self.len).collect()
    }

    /// The segment `index`; empty if the path has fewer. O(bytes).
    pub(crate) fn segment(&self, index: usize) -> &str {
        self.text.split('/').nth(index).unwrap_or_default()
    }

    /// The path of the `len` segments from `first` on; None if there are fewer. O(bytes).
    pub(crate) fn part(&self, first: usize, len: usize) -> Option<Self> {
        if len > self.len.checked_sub(first)? {
            return None;
        }
        let text = &self.text[self.start(first)..];
        let end = memchr::memchr_iter(b'/', text.as_bytes()).nth(len.saturating_sub(1)).unwrap_or(text.len());
        let text = if len == 0 { "" } else { &text[..end] };
        Some(Self { text: text.to_owned(), len })
    }

    /// Where a segment starts, or the text ends.
    fn start(&self, index: usize) -> usize {
        let mut separators = memchr::memchr_iter(b'/', self.text.as_bytes());
        index.checked_sub(1).map_or(0, |before| separators.nth(before).map_or(self.text.len(), |at| at + 1))
    }
}

/// Adds the segment `index` of a path, whose text starts at `start`.
///
/// # Errors
/// [`InputCode::InvalidPath`] that names the segment; nothing is added.
fn push_segment(text: &mut String, start: usize, index: usize, segment: &str) -> Result<()> {
    let invalid = |what: String| Err(Error::input(InputCode::InvalidPath, what));
    if segment.is_empty() {
        return invalid(format!("segment {index}: empty segment"));
    }
    if segment.contains('/') {
        return invalid(format!("segment {index}: a segment must not contain '/'"));
    }
    if text.len() - start + usize::from(index > 0) + segment.len() > MAX_TEXT {
        return invalid("the path has more than 4,096 bytes of text".to_owned());
    }
    if index > 0 {
        text.push('/');
    }
    text.push_str(segment);
    Ok(())
}

/// Several valid paths in one block of memory. One without segments is an empty text, as in [`Path`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    /// The text forms, one after the other.
    text: String,
    /// Where each ends in `text`.
    ends: Vec<usize>,
}

impl Paths {
    /// The number of paths.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text forms of the paths; that of no segments is empty.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start..end])
    }

    /// The keys of the paths.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names `member` and the first path without segments.
    pub(crate) fn keys(&self, member: &str) -> Result<KeyList> {
        let mut keys = KeyList::with_capacity(self.len(), self.text.len());
        for (index, text) in self.iter().enumerate() {
            let added = if text.is_empty() { Path::default().key().map(drop) } else { keys.push_text(text) };
            added.map_err(|error| error.within(&format!("{member}[{index}]")))?;
        }
        Ok(keys)
    }
}

/// The paths of a request as they were received, and the index and the error of the first invalid one.
#[derive(Debug, Default)]
pub(crate) struct SegmentsOfPaths {
    paths: Paths,
    fault: Option<(usize, Error)>,
}

impl SegmentsOfPaths {
    /// The paths.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names `member`, the path and the segment.
    pub(crate) fn paths(self, member: &str) -> Result<Paths> {
        match self.fault {
            None => Ok(self.paths),
            Some((index, error)) => Err(error.within(&format!("{member}[{index}]"))),
        }
    }
}

impl<'de> Items<'de> for SegmentsOfPaths {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn read_next<A: SeqAccess<'de>>(&mut self, array: &mut A) -> Result<bool, A::Error> {
        let start = self.paths.text.len();
        let is_item = array.next_element_seed(EachSegment(PathOf { all: self, start, len: 0 }))?.is_some();
        if is_item {
            self.paths.ends.push(self.paths.text.len());
        }
        Ok(is_item)
    }
}

/// The last one of several paths.
struct PathOf<'a> {
    all: &'a mut SegmentsOfPaths,
    /// Where its text starts.
    start: usize,
    /// The number of its segments.
    len: usize,
}

/// Where the segments of a path go as they are read.
trait Segmented {
    /// Adds a segment. After the first that is invalid, the others are ignored.
    fn add(&mut self, segment: &str);
}

impl Segmented for Segments {
    fn add(&mut self, segment: &str) {
        if let Ok(path) = &mut self.0
            && let Err(error) = path.push(segment)
        {
            self.0 = Err(error);
        }
    }
}

impl Segmented for PathOf<'_> {
    fn add(&mut self, segment: &str) {
        let SegmentsOfPaths { paths, fault } = self.all;
        if fault.is_none() {
            *fault =
                push_segment(&mut paths.text, self.start, self.len, segment).err().map(|error| (paths.len(), error));
            self.len += 1;
        }
    }
}

/// The segments of a request as they were received: a path, or why they are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments(pub(crate) Result<Path>);

impl Segments {
    /// The path.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names `member` and the segment.
    pub(crate) fn path(self, member: &str) -> Result<Path> {
        self.0.map_err(|error| error.within(member))
    }
}

impl<'de> Deserialize<'de> for Segments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        EachSegment(Segments(Ok(Path::default()))).deserialize(deserializer)
    }
}

/// Reads the segments of a path, and adds them.
struct EachSegment<T>(T);

impl<'de, T: Segmented> DeserializeSeed<'de> for EachSegment<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Segmented> Visitor<'de> for EachSegment<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of segments")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<T, A::Error> {
        while array.next_element_seed(NextSegment(&mut self.0))?.is_some() {}
        Ok(self.0)
    }
}

/// Reads one segment, and adds it. All are checked to be strings.
struct NextSegment<'a, T>(&'a mut T);

impl<'de, T: Segmented> DeserializeSeed<'de> for NextSegment<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T: Segmented> Visitor<'_> for NextSegment<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a segment as a string")
    }

    fn visit_str<E>(self, segment: &str) -> Result<(), E> {
        self.0.add(segment);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Segments::deserialize(deserializer)?.0.map_err(de::Error::custom)
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.segments())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/message_path.rs"]
mod tests;
