//! Several keys in one block of memory, and in key order.

use std::ops::Range;

use crate::bits::{self, common_len};
use crate::error::{Error, Result};
use crate::key::{self, Key, MAX_KEY};

/// The maximum number of keys in one multiproof.
pub const MAX_KEYS: usize = 10_000;

/// Keys in any order, in one block of memory.
#[derive(Debug, Clone, Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
}

impl KeyList {
    /// Reserves memory for `keys` keys, whose paths have `text_bytes` bytes of text.
    pub fn with_capacity(keys: usize, text_bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(text_bytes + 2 * keys), ends: Vec::with_capacity(keys) }
    }

    /// Adds the key of a path in text form, which is split on `/`.
    ///
    /// # Errors
    /// [`InputCode::InvalidPath`](crate::InputCode::InvalidPath) that names the path; the list is not changed.
    pub fn push_text(&mut self, path: &str) -> Result<()> {
        let start = self.bytes.len();
        key::append_text(path, &mut self.bytes).inspect_err(|_| self.bytes.truncate(start))?;
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn range(&self, index: usize) -> Range<usize> {
        index.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[index]
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.range(index)]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl FromIterator<Key> for KeyList {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut list = Self::default();
        for key in keys {
            list.bytes.extend_from_slice(key.as_bytes());
            list.ends.push(list.bytes.len());
        }
        list
    }
}

/// Distinct keys of a map: at least one, at most [`MAX_KEYS`].
#[derive(Debug, Clone)]
pub struct Keys {
    bytes: Vec<u8>,
    /// In key order.
    sorted: Vec<KeyPlace>,
}

/// Where the bytes of a key are, and its index among the keys as they were asked.
#[derive(Debug, Clone, Copy)]
struct KeyPlace {
    start: u32,
    len: u16,
    asked: u16,
}

const _: () = assert!(MAX_KEY <= u16::MAX as usize);
const _: () = assert!(MAX_KEYS <= u16::MAX as usize);

impl Keys {
    /// Sorts and validates keys. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if the list is empty or longer than [`MAX_KEYS`], or if a key occurs twice; the message names the
    /// index of the second one.
    pub fn new(keys: KeyList) -> Result<Self> {
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(Error::request(format!("keys: {} of them; a multiproof is of 1 to {MAX_KEYS}", keys.len())));
        }
        let sorted = sort(&keys);
        let twice = sorted.windows(2).filter(|pair| keys.get(pair[0] as usize) == keys.get(pair[1] as usize));
        if let Some(index) = twice.map(|pair| pair[1]).min() {
            let path = key::segments(keys.get(index as usize)).join("/");
            return Err(Error::request(format!("keys[{index}]: {path:?} occurs twice")));
        }
        let place = |asked: u32| {
            let Range { start, end } = keys.range(asked as usize);
            KeyPlace { start: start as u32, len: (end - start) as u16, asked: asked as u16 }
        };
        let sorted = sorted.into_iter().map(place).collect();
        Ok(Self { bytes: keys.bytes, sorted })
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The bytes of the keys, in key order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.sorted.iter().map(|place| self.at(place))
    }

    /// Always false: [`Keys::new`] rejects an empty list.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The key at this place in key order.
    #[inline(always)]
    pub(crate) fn key(&self, place: usize) -> &[u8] {
        self.at(&self.sorted[place])
    }

    /// The index of the key at this place among the keys as they were asked.
    #[inline(always)]
    pub(crate) fn asked(&self, place: usize) -> usize {
        usize::from(self.sorted[place].asked)
    }

    /// The first of these places whose key has this bit; all keys have the same bits before it.
    #[inline(always)]
    pub(crate) fn first_with(&self, bit: u32, places: Range<usize>) -> usize {
        places.start + self.sorted[places].partition_point(|place| !bits::bit(self.at(place), bit))
    }

    #[inline(always)]
    fn at(&self, place: &KeyPlace) -> &[u8] {
        &self.bytes[place.start as usize..][..usize::from(place.len)]
    }
}

/// The places of keys, in key order; of equal keys, the later one comes second.
///
/// Comparing the eight bytes after the common prefix of all keys decides most comparisons without reading the keys.
fn sort(keys: &KeyList) -> Vec<u32> {
    let shared = keys.iter().map(|key| common_len(keys.get(0), key)).min().unwrap_or(0);
    let lead = |key: &[u8]| {
        let mut lead = [0; 8];
        // A key that ends is before those that continue, whatever their next byte is; equal leads decide nothing.
        lead.iter_mut().zip(&key[shared..]).for_each(|(lead, byte)| *lead = *byte);
        u64::from_be_bytes(lead)
    };
    let mut sorted: Vec<(u64, u32)> = keys.iter().map(lead).zip(0..).collect();
    let key = |index: u32| keys.get(index as usize);
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))).then(a.1.cmp(&b.1)));
    sorted.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
#[path = "../tests/unit/key_list.rs"]
mod tests;
