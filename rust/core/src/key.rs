//! Paths, and the keys under which maps hold them (protocol section 2).
//!
//! ```text
//! path   docs/a<NUL>b        segments "docs" and "a\0b"
//! key    64 6f 63 73  00 01  61 00 ff 62  00 00
//!        └── docs ──┘ next   └─ a\0b ──┘ end
//! ```
//!
//! Every [`Key`] is valid: its segments are non-empty UTF-8 without `/`, and its text form is at most [`MAX_TEXT`] bytes.
//! Keys in untrusted trees are checked by `check`, which does not allocate.

use std::borrow::Cow;

use crate::error::{Error, InputCode, Result};

/// The maximum length of a path's text form, in bytes.
pub const MAX_TEXT: usize = 4096;
/// The maximum length of a key, in bytes: every byte of the text escaped, and the terminator.
pub const MAX_KEY: usize = 2 * MAX_TEXT + 2;
/// The number of bits in the longest key.
pub const MAX_BITS: u32 = 8 * MAX_KEY as u32;

/// The key of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Vec<u8>);

impl Key {
    /// Encodes a path given by its segments.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names the segment.
    pub fn from_segments<S: AsRef<str>>(segments: &[S]) -> Result<Self> {
        if segments.is_empty() {
            return Err(Error::input(InputCode::InvalidPath, "empty path; at least one segment is required"));
        }
        let mut key = escaped(segments)?;
        key.extend_from_slice(&[0, 0]);
        Ok(Self(key))
    }

    /// Encodes a path in text form, which is split on `/`.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] that names the path.
    pub fn from_text(text: &str) -> Result<Self> {
        let mut key = Vec::with_capacity(text.len() + 2);
        append_text(text, &mut key)?;
        Ok(Self(key))
    }

    /// The key's bytes; their order is the order of keys in a map.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text form of the path.
    pub fn text(&self) -> String {
        segments(&self.0).join("/")
    }

    /// The segments of the path. O(bytes) in all; only those with a NUL are copied.
    pub fn segments(&self) -> Segments<'_> {
        Segments(&self.0)
    }

    /// The length of all segments together, in bytes. O(bytes), without decoding them.
    pub fn segment_bytes(&self) -> usize {
        // A zero is the first of two bytes that stand for one of a segment, if it is escaped, or for none. The last zero
        // is the terminator's second byte. No other byte of UTF-8 is the escape's.
        let zeros = memchr::memchr_iter(0, &self.0).count() - 1;
        let escaped = memchr::memchr_iter(ESCAPE, &self.0).count();
        self.0.len() + escaped - 2 * zeros
    }

    /// A key that [`check`] accepts.
    pub(crate) fn trusted(key: &[u8]) -> Self {
        Self(key.to_vec())
    }
}

/// The segments of a path, from first to last, decoded from its key.
#[derive(Debug, Clone)]
pub struct Segments<'k>(&'k [u8]);

impl<'k> Iterator for Segments<'k> {
    type Item = Cow<'k, str>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.0;
        let mut escaped: Option<Vec<u8>> = None;
        let mut at = 0;
        loop {
            // A search costs more than the byte that it finds, and escaped NULs often follow one another.
            let zero = if key.get(at) == Some(&0) { at } else { at + memchr::memchr(0, key.get(at..)?)? };
            let part = &key[at..zero];
            at = zero + 2;
            if key.get(zero + 1) == Some(&ESCAPE) {
                let segment = escaped.get_or_insert_default();
                segment.extend_from_slice(part);
                segment.push(0);
                continue;
            }
            self.0 = key.get(at..).unwrap_or_default();
            return Some(match escaped {
                Some(before) => Cow::Owned(String::from_utf8_lossy(&[&before, part].concat()).into_owned()),
                None => String::from_utf8_lossy(part),
            });
        }
    }
}

/// The keys of the parts of one path: of every run of consecutive segments.
#[derive(Debug, Clone)]
pub struct PathKeys {
    /// The segments, escaped and joined.
    joined: Vec<u8>,
    /// Where each segment ends in `joined`.
    ends: Vec<u16>,
}

impl PathKeys {
    /// Encodes a path given by its segments. O(bytes).
    ///
    /// # Errors
    /// As [`Key::from_segments`]; no segments are no error.
    pub fn new<S: AsRef<str>>(segments: &[S]) -> Result<Self> {
        let joined = escaped(segments)?;
        // No key is longer than `MAX_KEY`.
        let ends =
            separators(&joined).chain((!segments.is_empty()).then_some(joined.len())).map(|end| end as u16).collect();
        Ok(Self { joined, ends })
    }

    fn start(&self, segment: usize) -> usize {
        let before = segment.checked_sub(1).and_then(|before| self.ends.get(before));
        before.map_or(0, |end| usize::from(*end) + SEPARATOR.len())
    }

    /// Where the last of `len` segments from `first` on ends.
    fn end(&self, first: usize, len: usize) -> usize {
        usize::from(self.ends[first + len - 1])
    }

    /// The key of the `len` segments from `first` on, at least one. O(bytes).
    pub fn key(&self, first: usize, len: usize) -> Key {
        let part = &self.joined[self.start(first)..self.end(first, len)];
        let mut key = Vec::with_capacity(part.len() + 2);
        key.extend_from_slice(part);
        key.extend_from_slice(&[0, 0]);
        Key(key)
    }

    /// The bit in which the key of `len` segments from `first` on differs from that of more segments from there.
    pub fn differing_bit(&self, first: usize, len: usize) -> u32 {
        // The one ends with 00 00, the other continues with 00 01.
        8 * (self.end(first, len) - self.start(first)) as u32 + 15
    }
}

/// What follows a NUL in a key.
const ESCAPE: u8 = 0xff;
/// What is between two segments in a key.
const SEPARATOR: [u8; 2] = [0, 1];

/// Where separators are in escaped and joined segments. An escaped NUL is 00 FF, so every 00 01 is one.
fn separators(joined: &[u8]) -> impl Iterator<Item = usize> + '_ {
    joined.windows(2).enumerate().filter(|(_, pair)| *pair == SEPARATOR).map(|(at, _)| at)
}

/// As [`write_text`].
///
/// # Errors
/// [`InputCode::InvalidPath`] that names the path.
pub(crate) fn append_text(text: &str, out: &mut Vec<u8>) -> Result<()> {
    write_text(text, out).map_err(|why| refuse(text, why))
}

fn refuse(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::input(InputCode::InvalidPath, format!("path {shown:?}: {why}"))
}

/// Appends the key of a path in text form; the error says what is wrong with the path.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if text.len() > MAX_TEXT {
        return Err("longer than 4,096 bytes");
    }
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes[0] == b'/' || bytes[bytes.len() - 1] == b'/' {
        return Err("empty segment");
    }
    // Most paths have few separators and no NUL, so what is between them is copied at once.
    let mut start = 0;
    for at in memchr::memchr2_iter(b'/', 0, bytes) {
        out.extend_from_slice(&bytes[start..at]);
        match bytes[at] {
            b'/' if bytes[at + 1] == b'/' => return Err("empty segment"),
            b'/' => out.extend_from_slice(&SEPARATOR),
            _ => out.extend_from_slice(&[0, ESCAPE]),
        }
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.extend_from_slice(&[0, 0]);
    Ok(())
}

/// Escapes and joins segments, without the terminator of a key.
fn escaped<S: AsRef<str>>(segments: &[S]) -> Result<Vec<u8>> {
    let text_len = segments.iter().map(|s| s.as_ref().len() + 1).sum::<usize>().saturating_sub(1);
    if text_len > MAX_TEXT {
        return Err(Error::input(
            InputCode::InvalidPath,
            format!("the path has {text_len} bytes of text; the limit is 4,096"),
        ));
    }
    let mut key = Vec::with_capacity(text_len + segments.len() + 2);
    for (i, segment) in segments.iter().enumerate() {
        let segment = segment.as_ref();
        if segment.is_empty() || segment.contains('/') {
            let why = if segment.is_empty() { "empty segment" } else { "a segment must not contain '/'" };
            return Err(Error::input(InputCode::InvalidPath, format!("segment {i}: {why}")));
        }
        if i > 0 {
            key.extend_from_slice(&SEPARATOR);
        }
        for &b in segment.as_bytes() {
            key.push(b);
            if b == 0 {
                key.push(ESCAPE);
            }
        }
    }
    Ok(key)
}

/// The range of keys that a listing covers: from `lo` up to, not including, `hi` (protocol section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The first key; None for no lower bound.
    pub(crate) lo: Option<Vec<u8>>,
    /// The first key past the window; None for no upper bound.
    pub(crate) hi: Option<Vec<u8>>,
    /// Whether `lo` itself is excluded.
    pub(crate) skip_lo: bool,
}

impl Window {
    /// Creates the window of the path `prefix` and its descendants, starting after the path `after` if given.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] if a path is invalid, or if `after` is not in the window.
    pub fn new<S: AsRef<str>, T: AsRef<str>>(prefix: &[S], after: Option<&[T]>) -> Result<Self> {
        let (mut lo, mut hi) = (None, None);
        if !prefix.is_empty() {
            let p = escaped(prefix).map_err(|error| error.within("prefix"))?;
            lo = Some([&p[..], &[0, 0]].concat());
            hi = Some([&p[..], &[0, 2]].concat());
        }
        let mut skip_lo = false;
        if let Some(after) = after {
            let key = Key::from_segments(after).map_err(|error| error.within("after"))?.0;
            if lo.as_ref().is_some_and(|lo| key < *lo) || hi.as_ref().is_some_and(|hi| key >= *hi) {
                return Err(Error::input(InputCode::InvalidPath, "after: the path is neither the prefix nor below it"));
            }
            lo = Some(key);
            skip_lo = true;
        }
        Ok(Self { lo, hi, skip_lo })
    }

    /// No key of the window is less than this; empty without a lower bound.
    pub fn start(&self) -> &[u8] {
        self.lo.as_deref().unwrap_or_default()
    }
}

/// Checks that `key` is the key of a path; the error says what is wrong.
pub(crate) fn check(key: &[u8]) -> Result<(), &'static str> {
    // An ASCII key is UTF-8, and one search finds any `/`.
    let ascii = key.is_ascii();
    if ascii && memchr::memchr(b'/', key).is_some() {
        return Err(SLASH);
    }
    let (mut at, mut segment, mut text) = (0, 0, 0);
    for zero in memchr::memchr_iter(0, key) {
        // The second byte of the terminator.
        if zero < at {
            continue;
        }
        let piece = &key[at..zero];
        if !ascii && std::str::from_utf8(piece).is_err() {
            return Err("a key is not UTF-8");
        }
        if !ascii && memchr::memchr(b'/', piece).is_some() {
            return Err(SLASH);
        }
        segment += piece.len();
        text += piece.len();
        at = zero + 2;
        match key.get(at - 1) {
            Some(&ESCAPE) => {
                segment += 1;
                text += 1;
            }
            Some(0 | 1) if segment == 0 => return Err("a key has an empty segment"),
            Some(1) => {
                segment = 0;
                text += 1;
            }
            Some(0) if at != key.len() => return Err("bytes follow the terminator of a key"),
            Some(0) if text > MAX_TEXT => return Err("a key is longer than 4,096 bytes of text"),
            Some(0) => return Ok(()),
            _ => return Err("a key has an invalid escape"),
        }
    }
    Err("a key has no terminator")
}

const SLASH: &str = "a key has a '/' in a segment";

/// Decodes a key into the text form of its path. O(bytes).
///
/// # Errors
/// Why the bytes are not a key.
pub fn text_of(key: &[u8]) -> Result<String, &'static str> {
    check(key)?;
    Ok(segments(key).join("/"))
}

/// Decodes a key that [`check`] accepts into its segments.
pub(crate) fn segments(key: &[u8]) -> Vec<String> {
    // One allocation for each segment, of its size: listings have thousands of paths. Escaped zeros end no segment, and a
    // path of zeros must not take room for thousands.
    let mut out = Vec::with_capacity(key.windows(2).filter(|pair| pair[0] == 0 && pair[1] != ESCAPE).count());
    out.extend(Segments(key).map(Cow::into_owned));
    out
}

#[cfg(test)]
#[path = "../tests/unit/key.rs"]
mod tests;
