//! Differences between pages: a change of a large tree alters a few bytes of each page on its path.
//!
//! A difference says how a page is made of another one, its base (`docs/decisions/0403`):
//!
//! ```text
//! digest of the base (32 bytes)
//! splices, each:  varint: bytes of the base to copy
//!                 varint: bytes of the base to leave out
//!                 varint: length of the bytes to insert, and these
//! ```
//!
//! What follows in the base after the last splice is copied. Differences are storage, not protocol: the page that one makes
//! is checked against its digest like any other.

use crate::id::suite::Digest;
use crate::id::varint;
use crate::page::format::MAX_PAGE;

/// So many equal bytes between two changes are copied: a splice takes about as many.
const MIN_COPIED: usize = 8;

/// Which part of its page a difference may take. Those to one base grow with each change, and a page that is stored as a
/// whole is the base of the next ones: per change both together take the least at about a tenth.
const MAX_PART: usize = 8;

/// A page as the difference to its base, in the form of the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageDifference(Vec<u8>);

impl PageDifference {
    /// The difference that makes `new` of the page `old`, whose digest is `base`. O(bytes).
    pub fn between(base: &Digest, old: &[u8], new: &[u8]) -> Self {
        let start = common_start(old, new);
        let end = common_end(&old[start..], &new[start..]);
        let (left_out, inserted) = (&old[start..old.len() - end], &new[start..new.len() - end]);
        let mut out = DifferenceWriter::new(base);
        out.copy(0, start);
        if left_out.len() == inserted.len() {
            out.overwrite(start, left_out, inserted);
        } else {
            out.insert(inserted);
        }
        out.copy_rest(old.len() - end);
        Self(out.bytes)
    }

    /// Reads a stored difference. None if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (_, mut splices) = decode(bytes)?;
        splices.all(|splice| splice.is_some()).then(|| Self(bytes.to_vec()))
    }

    /// The digest of the base.
    pub fn base(&self) -> Digest {
        let mut base = Digest::ZERO;
        base.0.copy_from_slice(&self.0[..32]);
        base
    }

    /// Whether it is worth storing, instead of its page of so many bytes.
    pub fn is_short(&self, page_len: usize) -> bool {
        self.0.len() * MAX_PART <= page_len
    }

    /// The difference that makes the page of `next` of this one's base; `next` makes it of this one's page. O(bytes).
    #[must_use]
    pub fn join(&self, next: &Self) -> Self {
        let mut stretches = Stretches::of(self.splices());
        let mut out = DifferenceWriter::new(&self.base());
        for splice in next.splices() {
            stretches.take(splice.copied, |stretch| out.add(stretch));
            stretches.take(splice.left_out, |_| {});
            out.insert(splice.inserted);
        }
        let mut rest = 0;
        for stretch in stretches.left.into_iter().rev() {
            match stretch {
                Stretch::Rest { start } => rest = start,
                stretch => out.add(stretch),
            }
        }
        out.copy_rest(rest);
        Self(out.bytes)
    }

    /// The page that it makes of the bytes of its base. None if these are another page's. O(bytes).
    pub fn apply(&self, base: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(base.len() + self.0.len());
        let mut rest = base;
        for splice in self.splices() {
            out.extend_from_slice(rest.get(..splice.copied)?);
            rest = rest.get(splice.copied + splice.left_out..)?;
            out.extend_from_slice(splice.inserted);
            if out.len() > MAX_PAGE {
                return None;
            }
        }
        out.extend_from_slice(rest);
        (out.len() <= MAX_PAGE).then_some(out)
    }

    fn splices(&self) -> impl Iterator<Item = Splice<'_>> {
        decode(&self.0).into_iter().flat_map(|(_, splices)| splices.flatten())
    }
}

/// The stored form.
impl AsRef<[u8]> for PageDifference {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn common_start(left: &[u8], right: &[u8]) -> usize {
    let (wide, by) = (left.chunks_exact(32).zip(right.chunks_exact(32)), |(left, right): &(_, _)| left == right);
    let start = wide.take_while(by).count() * 32;
    start + left[start..].iter().zip(&right[start..]).take_while(|(left, right)| left == right).count()
}

fn common_end(left: &[u8], right: &[u8]) -> usize {
    let (wide, by) = (left.rchunks_exact(32).zip(right.rchunks_exact(32)), |(left, right): &(_, _)| left == right);
    let end = wide.take_while(by).count() * 32;
    let (left, right) = (&left[..left.len() - end], &right[..right.len() - end]);
    end + left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

struct Splice<'a> {
    copied: usize,
    left_out: usize,
    inserted: &'a [u8],
}

/// The base and the splices of a stored difference. The last splice is None if it is malformed.
fn decode(bytes: &[u8]) -> Option<(Digest, impl Iterator<Item = Option<Splice<'_>>>)> {
    let (base, mut rest) = bytes.split_first_chunk::<32>()?;
    let splices = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (splice, after) = read_splice(rest).unzip();
        rest = after.unwrap_or_default();
        Some(splice)
    });
    Some((Digest(*base), splices))
}

fn read_splice(bytes: &[u8]) -> Option<(Splice<'_>, &[u8])> {
    let (copied, rest) = read_length(bytes)?;
    let (left_out, rest) = read_length(rest)?;
    let (inserted, rest) = read_length(rest)?;
    let (inserted, rest) = rest.split_at_checked(inserted)?;
    Some((Splice { copied, left_out, inserted }, rest))
}

fn read_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (value, len) = varint::read(bytes).ok()?;
    let value = usize::try_from(value).ok().filter(|&value| value <= MAX_PAGE)?;
    Some((value, &bytes[len..]))
}

/// Successive bytes of a page that is made of a base.
#[derive(Clone, Copy)]
enum Stretch<'a> {
    Copied {
        start: usize,
        len: usize,
    },
    Inserted(&'a [u8]),
    /// What the base has from here on.
    Rest {
        start: usize,
    },
}

impl Stretch<'_> {
    /// The stretch in two, if it is longer than this.
    fn split(self, len: usize) -> Option<(Self, Self)> {
        match self {
            Stretch::Copied { start, len: all } if all > len => {
                Some((Stretch::Copied { start, len }, Stretch::Copied { start: start + len, len: all - len }))
            }
            Stretch::Inserted(bytes) if bytes.len() > len => {
                let (first, rest) = bytes.split_at(len);
                Some((Stretch::Inserted(first), Stretch::Inserted(rest)))
            }
            Stretch::Rest { start } => Some((Stretch::Copied { start, len }, Stretch::Rest { start: start + len })),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Stretch::Copied { len, .. } => *len,
            Stretch::Inserted(bytes) => bytes.len(),
            Stretch::Rest { .. } => usize::MAX,
        }
    }
}

/// What is left of a page, the next stretch last.
struct Stretches<'a> {
    left: Vec<Stretch<'a>>,
}

impl<'a> Stretches<'a> {
    fn of(splices: impl Iterator<Item = Splice<'a>>) -> Self {
        let (mut left, mut at) = (Vec::new(), 0);
        for splice in splices {
            left.extend([Stretch::Copied { start: at, len: splice.copied }, Stretch::Inserted(splice.inserted)]);
            at += splice.copied + splice.left_out;
        }
        left.push(Stretch::Rest { start: at });
        left.reverse();
        Self { left }
    }

    /// Takes the next bytes.
    fn take(&mut self, mut bytes: usize, mut each: impl FnMut(Stretch<'a>)) {
        while bytes > 0
            && let Some(stretch) = self.left.pop()
        {
            let stretch = match stretch.split(bytes) {
                Some((first, rest)) => {
                    self.left.push(rest);
                    first
                }
                None => stretch,
            };
            bytes -= stretch.len();
            each(stretch);
        }
    }
}

/// Writes a difference. What is copied comes in the order of the base.
struct DifferenceWriter {
    bytes: Vec<u8>,
    /// Where the base was copied to.
    at: usize,
    /// What the next splice copies, and inserts after that.
    copied: usize,
    inserted: Vec<u8>,
}

impl DifferenceWriter {
    fn new(base: &Digest) -> Self {
        Self { bytes: base.0.to_vec(), at: 0, copied: 0, inserted: Vec::new() }
    }

    fn add(&mut self, stretch: Stretch<'_>) {
        match stretch {
            Stretch::Copied { start, len } => self.copy(start, len),
            Stretch::Inserted(bytes) => self.insert(bytes),
            Stretch::Rest { start } => self.copy_rest(start),
        }
    }

    fn copy(&mut self, start: usize, len: usize) {
        if len > 0 {
            self.copy_rest(start);
            self.copied += len;
            self.at += len;
        }
    }

    fn insert(&mut self, bytes: &[u8]) {
        self.inserted.extend_from_slice(bytes);
    }

    /// Writes `new` for the bytes `old` of the base, which are as many, and copies what is the same.
    fn overwrite(&mut self, start: usize, old: &[u8], new: &[u8]) {
        let mut at = 0;
        while at < new.len() {
            let equal = old[at..].iter().zip(&new[at..]).take_while(|(old, new)| old == new).count();
            if equal >= MIN_COPIED {
                self.copy(start + at, equal);
            } else {
                self.insert(&new[at..at + equal]);
            }
            at += equal;
            let other = old[at..].iter().zip(&new[at..]).take_while(|(old, new)| old != new).count();
            self.insert(&new[at..at + other]);
            at += other;
        }
    }

    /// Copies the base from `start` on, and ends a splice if something was inserted or left out before.
    fn copy_rest(&mut self, start: usize) {
        if start == self.at && self.inserted.is_empty() {
            return;
        }
        for length in [self.copied, start - self.at, self.inserted.len()] {
            varint::write(&mut self.bytes, length as u64);
        }
        self.bytes.append(&mut self.inserted);
        (self.copied, self.at) = (0, start);
    }
}

#[cfg(test)]
#[path = "../../tests/unit/page_difference.rs"]
mod tests;
