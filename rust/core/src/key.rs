//! Paths and the keys that trees hold for them (protocol section 2).
//!
//! A [`Key`] is valid when it exists: its segments are non-empty UTF-8 without `/` and its text form is at most
//! [`MAX_TEXT`] bytes. Keys of untrusted trees are checked by `check` without allocating.

use crate::error::{Error, InputCode, Result};
use crate::tree::node::copy;

/// The longest text form, in bytes.
pub const MAX_TEXT: usize = 4096;
/// The longest key, in bytes: every byte of the text escaped, and the ending.
pub const MAX_KEY: usize = 2 * MAX_TEXT + 2;
/// The number of bits of the longest key.
pub const MAX_BITS: u32 = 8 * MAX_KEY as u32;

/// The key of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Vec<u8>);

impl Key {
    /// The key of a path given by its segments.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`], naming the segment.
    pub fn from_segments<S: AsRef<str>>(segments: &[S]) -> Result<Self> {
        if segments.is_empty() {
            return Err(Error::input(InputCode::InvalidPath, "the path is empty; it needs at least one segment"));
        }
        let mut key = escaped(segments)?;
        key.extend_from_slice(&[0, 0]);
        Ok(Self(key))
    }

    /// The key of a path given in text form, which is split on `/`.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`], naming the path.
    pub fn from_text(text: &str) -> Result<Self> {
        let mut key = Vec::with_capacity(text.len() + 2);
        write_text(text, &mut key).map_err(|why| refuse(text, why))?;
        Ok(Self(key))
    }

    /// The bytes themselves.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The bytes, in the order of the tree.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text form of the path.
    pub fn text(&self) -> String {
        segments(&self.0).join("/")
    }
}

fn refuse(text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::input(InputCode::InvalidPath, format!("path {shown:?}: {why}"))
}

/// Appends the key of a path in text form.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if text.len() > MAX_TEXT {
        return Err("it is longer than 4,096 bytes");
    }
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes[0] == b'/' || bytes[bytes.len() - 1] == b'/' {
        return Err("it has an empty segment");
    }
    let mut before = 0;
    for &b in bytes {
        match b {
            b'/' if before == b'/' => return Err("it has an empty segment"),
            b'/' => out.extend_from_slice(&[0, 1]),
            0 => out.extend_from_slice(&[0, 0xff]),
            b => out.push(b),
        }
        before = b;
    }
    out.extend_from_slice(&[0, 0]);
    Ok(())
}

/// The segments escaped and joined, without the ending of a key. No segments give nothing.
fn escaped<S: AsRef<str>>(segments: &[S]) -> Result<Vec<u8>> {
    let text_len = segments.iter().map(|s| s.as_ref().len() + 1).sum::<usize>().saturating_sub(1);
    if text_len > MAX_TEXT {
        return Err(Error::input(
            InputCode::InvalidPath,
            format!("the path is {text_len} bytes of text; 4,096 is the limit"),
        ));
    }
    let mut key = Vec::with_capacity(text_len + segments.len() + 2);
    for (i, segment) in segments.iter().enumerate() {
        let segment = segment.as_ref();
        if segment.is_empty() || segment.contains('/') {
            let why = if segment.is_empty() { "is empty" } else { "contains '/'" };
            return Err(Error::input(InputCode::InvalidPath, format!("segment {i} of the path {why}")));
        }
        if i > 0 {
            key.extend_from_slice(&[0, 1]);
        }
        for &b in segment.as_bytes() {
            key.push(b);
            if b == 0 {
                key.push(0xff);
            }
        }
    }
    Ok(key)
}

/// The keys that a scan covers: from `lo` up to, not including, `hi` (protocol section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Where to seek; None starts at the first key.
    pub(crate) lo: Option<Vec<u8>>,
    /// The first key past the window; None has no end.
    pub(crate) hi: Option<Vec<u8>>,
    /// Whether an entry at `lo` itself is left out.
    pub(crate) skip_lo: bool,
}

impl Window {
    /// The window of the path `prefix` and all below it, from behind `after` on if that is given.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`] for a bad path, which the message names, or an `after` that is not in the window.
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
                return Err(Error::input(InputCode::InvalidPath, "the path of 'after' is not the prefix nor below it"));
            }
            lo = Some(key);
            skip_lo = true;
        }
        Ok(Self { lo, hi, skip_lo })
    }
}

/// Whether `key` is the key of some path.
pub(crate) fn check(key: &[u8]) -> Result<(), &'static str> {
    // Of a key in ASCII, all pieces are UTF-8, and all `/` are found at once.
    let ascii = key.is_ascii();
    if ascii && memchr::memchr(b'/', key).is_some() {
        return Err(SLASH);
    }
    let (mut at, mut segment, mut text) = (0, 0, 0);
    for zero in memchr::memchr_iter(0, key) {
        // The second byte of an ending, or an escaped zero's.
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
            Some(0xff) => {
                segment += 1;
                text += 1;
            }
            Some(0 | 1) if segment == 0 => return Err("a key has an empty segment"),
            Some(1) => {
                segment = 0;
                text += 1;
            }
            Some(0) if at != key.len() => return Err("bytes follow the ending of a key"),
            Some(0) if text > MAX_TEXT => return Err("a key is longer than 4,096 bytes of text"),
            Some(0) => return Ok(()),
            _ => return Err("a key has a broken escape"),
        }
    }
    Err("a key has no ending")
}

const SLASH: &str = "a key has a '/' inside a segment";

/// The segments of a key that [`check`] accepts.
pub(crate) fn segments(key: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    let mut segment = Vec::new();
    let mut bytes = key.iter();
    while let Some(&b) = bytes.next() {
        if b != 0 {
            segment.push(b);
            continue;
        }
        match bytes.next() {
            Some(0xff) => segment.push(0),
            _ => out.push(String::from_utf8_lossy(&std::mem::take(&mut segment)).into_owned()),
        }
    }
    out
}

/// Bit `i` of a key, from the most significant bit of its first byte on; false past its end.
#[inline]
pub(crate) fn bit(key: &[u8], i: u32) -> bool {
    key.get(i as usize / 8).is_some_and(|b| b >> (7 - i % 8) & 1 == 1)
}

/// The first bit in which two keys differ; None if one is a prefix of the other.
#[inline]
pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<u32> {
    let at = common(a, b);
    Some(8 * at as u32 + (a.get(at)? ^ b.get(at)?).leading_zeros())
}

/// The number of bytes from the start on in which both are the same.
#[inline(always)]
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.as_chunks::<8>().0.iter(), b.as_chunks::<8>().0.iter());
    let whole = 8 * words.zip(others).take_while(|(a, b)| a == b).count();
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

/// Puts `own` into `path`: the bits from `floor` on, which start at byte `floor / 8`. Bits before stay.
#[inline(always)]
pub(crate) fn put(path: &mut [u8], floor: u32, own: &[u8]) {
    let from = (floor / 8) as usize;
    let Some((&first, rest)) = own.split_first() else {
        return;
    };
    let keep = top_bits(floor % 8);
    path[from] = path[from] & keep | first & !keep;
    copy(&mut path[from + 1..from + own.len()], rest);
}

/// Puts the one bit that leads to a child into `path`, and zeros behind it in its byte.
#[inline(always)]
pub(crate) fn turn(path: &mut [u8], bit: u32, right: bool) {
    let at = (bit / 8) as usize;
    path[at] = path[at] & top_bits(bit % 8) | u8::from(right) << (7 - bit % 8);
}

/// A byte with its first `n` bits set, `n` below 8.
#[inline]
pub fn top_bits(n: u32) -> u8 {
    !(0xff >> n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_segments_agree() {
        let key = Key::from_text("docs/a\0b/\u{e9}").expect("a path");
        assert_eq!(key, Key::from_segments(&["docs", "a\0b", "\u{e9}"]).expect("a path"));
        assert_eq!(segments(key.as_bytes()), ["docs", "a\0b", "\u{e9}"]);
        assert_eq!(check(key.as_bytes()), Ok(()));
    }

    #[test]
    fn bad_paths_are_named() {
        for text in ["", "/", "a/", "/a", "a//b"] {
            assert!(Key::from_text(text).is_err(), "{text:?}");
        }
        assert!(Key::from_text(&"x".repeat(MAX_TEXT)).is_ok());
        assert!(Key::from_text(&"x".repeat(MAX_TEXT + 1)).is_err());
        assert!(Key::from_segments(&["a/b"]).is_err());
        assert!(Key::from_segments(&["a", ""]).is_err());
        assert!(Key::from_segments::<&str>(&[]).is_err());
        let longest = Key::from_text(&"\0".repeat(MAX_TEXT)).expect("a path");
        assert_eq!(longest.as_bytes().len(), MAX_KEY);
    }

    #[test]
    fn a_window_refuses_an_after_outside() {
        assert!(Window::new(&["a"], Some(&["a"])).is_ok());
        assert!(Window::new(&["a"], Some(&["a", "b"])).is_ok());
        assert!(Window::new(&["a"], Some(&["b"])).is_err());
        assert!(Window::new(&["a"], Some(&["A"])).is_err());
        assert!(Window::new(&["a"], Some(&["ab"])).is_err());
    }
}
