//! Paths in messages, as arrays of segments. No more is kept than a path can have, however many segments are sent.

use std::fmt;

use coregw_core::key::MAX_TEXT;
use coregw_core::{Error, InputCode, Key, Result};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

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
        let invalid = |what: String| Err(Error::input(InputCode::InvalidPath, what));
        let index = self.len;
        if segment.is_empty() {
            return invalid(format!("segment {index}: empty segment"));
        }
        if segment.contains('/') {
            return invalid(format!("segment {index}: a segment must not contain '/'"));
        }
        if self.text.len() + usize::from(index > 0) + segment.len() > MAX_TEXT {
            return invalid("the path has more than 4,096 bytes of text".to_owned());
        }
        if index > 0 {
            self.text.push('/');
        } else {
            self.text.reserve(segment.len() + SPARE_BYTES);
        }
        self.text.push_str(segment);
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
        struct SegmentsVisitor;
        impl<'de> Visitor<'de> for SegmentsVisitor {
            type Value = Segments;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of segments")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Segments, A::Error> {
                let mut segments = Segments(Ok(Path::default()));
                while array.next_element_seed(NextSegment(&mut segments))?.is_some() {}
                Ok(segments)
            }
        }
        deserializer.deserialize_seq(SegmentsVisitor)
    }
}

/// Reads one segment, and adds it. After the first that is invalid, the others are only checked to be strings.
struct NextSegment<'a>(&'a mut Segments);

impl<'de> DeserializeSeed<'de> for NextSegment<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NextSegment<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a segment as a string")
    }

    fn visit_str<E>(self, segment: &str) -> Result<(), E> {
        if let Ok(path) = &mut self.0.0
            && let Err(error) = path.push(segment)
        {
            self.0.0 = Err(error);
        }
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
mod tests {
    use super::*;

    #[test]
    fn a_path_consists_of_its_segments() {
        let segments = ["a", "\0", "b c", "\u{e9}", "d"];
        let path = Path::of(&segments).expect("a path");
        assert_eq!((path.segments(), path.text()), (segments.to_vec(), &*segments.join("/")));
        assert_eq!(serde_json::from_str::<Path>(&serde_json::to_string(&path).expect("JSON")).expect("a path"), path);
        for first in 0..=segments.len() {
            for len in 0..=segments.len() - first {
                let part = path.part(first, len).expect("enough segments");
                assert_eq!(part, Path::of(&segments[first..first + len]).expect("a path"));
            }
            assert_eq!(path.part(first, segments.len() - first + 1), None);
        }
    }

    #[test]
    fn what_is_kept_does_not_grow_with_the_number_of_segments() {
        let read = |segment: &str, count: usize| -> Segments {
            serde_json::from_str(&serde_json::to_string(&vec![segment; count]).expect("JSON")).expect("strings")
        };
        assert_eq!(read("a", MAX_SEGMENTS).path("key").expect("the longest path").len(), MAX_SEGMENTS);
        for (segment, why) in [("a", "4,096"), ("", "segment 0"), ("a/b", "segment 0")] {
            let refused = read(segment, 100_000).path("key").expect_err("no path");
            assert!(matches!(&refused, Error::Input { code: InputCode::InvalidPath, what } if what.contains(why)));
        }
    }

    #[test]
    fn a_path_has_up_to_4096_bytes_with_its_separators() {
        let longest = "x".repeat(MAX_TEXT);
        for (segments, fits) in [
            (vec![&longest[..]], true),
            (vec![&longest[2..], "y"], true),
            (vec![&longest[3..], "y", "z"], false),
            (vec![&longest[1..], "y"], false),
            (vec!["y", &longest[1..]], false),
            (vec!["y", "z", &longest[4..]], true),
        ] {
            assert_eq!(Path::of(&segments).map(|path| path.text().len()).ok(), fits.then_some(MAX_TEXT));
        }
        assert!(Path::of(&[&format!("{longest}x")]).is_err());
    }

    #[test]
    fn every_segment_is_a_string() {
        for text in [r#"["", 1]"#, r#"[1]"#, r#"["a", null]"#, "{}", "\"a\""] {
            assert!(serde_json::from_str::<Segments>(text).is_err(), "{text}");
        }
    }
}
