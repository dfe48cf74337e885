//! The arcs of a map before it is built: collected in any order, sorted once, doubles refused.

use std::collections::TryReserveError;

use crate::error::{Error, InputCode, Result};
use crate::id::cid::Cid;
use crate::key::{self as path, Key};

/// One arc: where its key, and behind that its target, lie.
#[derive(Debug, Clone, Copy)]
struct Arc {
    /// While it is sorted, the eight bytes of its key that are compared.
    lead: u64,
    offset: u64,
    key_len: u16,
    target_len: u8,
}

/// Fewer arcs than this are sorted by their whole keys.
const FEW: usize = 12;
/// What all keys of a step share is looked for in so many bytes, a line of the processor's cache: keys that part one at
/// a time would otherwise be read to their ends at each step.
const AHEAD: usize = 64;

/// Arcs in one block of memory.
#[derive(Debug, Default)]
pub struct Arcs {
    bytes: Vec<u8>,
    arcs: Vec<Arc>,
}

impl Arcs {
    /// Reserves memory for more arcs with so many bytes of keys and targets.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn try_reserve(&mut self, arcs: usize, bytes: usize) -> std::result::Result<(), TryReserveError> {
        self.bytes.try_reserve(bytes)?;
        self.arcs.try_reserve(arcs)
    }

    /// Adds an arc.
    pub fn push(&mut self, key: &Key, target: &Cid) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(key.as_bytes());
        self.finish(offset, target);
    }

    /// Adds an arc whose path is in text form.
    ///
    /// # Errors
    /// A phrase that says what is wrong with the path; the arc is not added.
    pub fn push_text(&mut self, path: &str, target: &Cid) -> Result<(), &'static str> {
        let offset = self.bytes.len();
        if let Err(why) = path::write_text(path, &mut self.bytes) {
            self.bytes.truncate(offset);
            return Err(why);
        }
        self.finish(offset, target);
        Ok(())
    }

    fn finish(&mut self, offset: usize, target: &Cid) {
        let (key_len, target) = (self.bytes.len() - offset, target.as_bytes());
        self.bytes.extend_from_slice(target);
        let (key_len, target_len) = (key_len as u16, target.len() as u8);
        self.arcs.push(Arc { lead: 0, offset: offset as u64, key_len, target_len });
    }

    /// Number of arcs.
    pub fn len(&self) -> usize {
        self.arcs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.arcs.is_empty()
    }

    fn key(&self, arc: &Arc) -> &[u8] {
        &self.bytes[arc.offset as usize..][..usize::from(arc.key_len)]
    }

    /// Sorts by key. O(n log n + bytes).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path, naming it, or for more than 4 GiB of keys and targets.
    pub fn sort(&mut self) -> Result<()> {
        if u32::try_from(self.bytes.len()).is_err() {
            let what = "arcs: their keys and targets take more than 4 GiB; build a smaller map and change it";
            return Err(Error::input(InputCode::TooLarge, what));
        }
        let mut arcs = std::mem::take(&mut self.arcs);
        self.order(&mut arcs);
        // What is built from the arcs reads them in order; bringing them in order here waits for memory only once. A
        // comparison in this loop would make it twice as slow.
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for arc in &mut arcs {
            let (from, len) = (arc.offset as usize, usize::from(arc.key_len) + usize::from(arc.target_len));
            arc.offset = bytes.len() as u64;
            bytes.extend_from_slice(&self.bytes[from..from + len]);
        }
        (self.bytes, self.arcs) = (bytes, arcs);
        for pair in self.arcs.windows(2) {
            if self.key(&pair[0]) == self.key(&pair[1]) {
                let path = path::segments(self.key(&pair[0])).join("/");
                return Err(Error::request(format!("arcs: two arcs have the path {path:?}")));
            }
        }
        Ok(())
    }

    /// Brings arcs in the order of their keys: by the first eight bytes, those that agree there by the next eight, and
    /// so on. So a key that is in no cache is waited for once for eight bytes, not at each comparison.
    fn order(&self, arcs: &mut [Arc]) {
        let mut rest = vec![(0..arcs.len(), 0)];
        while let Some((range, known)) = rest.pop() {
            let (mut start, arcs) = (range.start, &mut arcs[range]);
            if arcs.len() < FEW {
                arcs.sort_unstable_by(|a, b| self.key(a)[known..].cmp(&self.key(b)[known..]));
                continue;
            }
            for arc in &mut *arcs {
                let behind = &self.key(arc)[known..];
                arc.lead = match behind.first_chunk() {
                    Some(whole) => u64::from_be_bytes(*whole),
                    None => behind.iter().rev().fold(0, |lead, &byte| lead >> 8 | u64::from(byte) << 56),
                };
            }
            arcs.sort_unstable_by_key(|arc| arc.lead);
            for same in arcs.chunk_by(|a, b| a.lead == b.lead) {
                // No key is a prefix of another: where one ends, all that agree with it are doubles. What all share is
                // often long, and passed over at once.
                if same.len() > 1 && usize::from(same[0].key_len) > known + 8 {
                    let known = if same.len() == arcs.len() { self.shared(same, known + 8) } else { known + 8 };
                    rest.push((start..start + same.len(), known));
                }
                start += same.len();
            }
        }
    }

    /// The number of bytes from the start on in which all keys are the same: `known`, and what is found behind those.
    fn shared(&self, arcs: &[Arc], known: usize) -> usize {
        let first = &self.key(&arcs[0])[known..];
        let most = first.len().min(AHEAD);
        known + arcs.iter().fold(most, |n, arc| path::common(&first[..n], &self.key(arc)[known..]))
    }

    /// The block of memory, and where the arcs lie in it, in their order.
    pub(crate) fn into_parts(self) -> (Vec<u8>, impl Iterator<Item = Span>) {
        let span = |arc: Arc| Span { offset: arc.offset as u32, key_len: arc.key_len, target_len: arc.target_len };
        (self.bytes, self.arcs.into_iter().map(span))
    }
}

/// Where an arc lies: its key, and its target right behind that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) offset: u32,
    pub(crate) key_len: u16,
    pub(crate) target_len: u8,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(i: usize) -> Cid {
        Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[i as u8; 32]].concat()).expect("a CID")
    }

    fn sorted(keys: &[Key]) -> Result<Vec<(Vec<u8>, Cid)>> {
        let mut arcs = Arcs::default();
        keys.iter().enumerate().for_each(|(i, key)| arcs.push(key, &target(i)));
        arcs.sort()?;
        let (bytes, spans) = arcs.into_parts();
        let arc = |Span { offset, key_len, target_len }| {
            let (key, rest) = bytes[offset as usize..].split_at(usize::from(key_len));
            (key.to_vec(), Cid::from_bytes(&rest[..usize::from(target_len)]).expect("a CID"))
        };
        Ok(spans.map(arc).collect())
    }

    /// Keys that share much, end at any distance from what they share, and hold zero bytes; few are doubles.
    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let segment = prop_oneof![Just("a".repeat(30)), Just("\0".repeat(9)), "[ab]{1,3}", "a{1,20}b?", "[\0ab]{1,9}"];
        let path = prop::collection::vec(segment, 1..5).prop_map(|segments| Key::from_segments(&segments));
        prop::collection::vec(path.prop_map(|key| key.expect("a path")), 0..200)
    }

    #[test]
    fn keys_that_part_one_at_a_time_behind_long_beginnings_come_in_order() {
        let key = |n: usize| Key::from_text(&format!("{}b", "a".repeat(13 * n))).expect("a path");
        let mut keys: Vec<_> = (0..300).map(|n| key(n * 7 % 300)).collect();
        let found = sorted(&keys).expect("no doubles");
        // An "a" where another key has its "b" comes first.
        let wanted: Vec<_> = (0..300).rev().map(|n| key(n).as_bytes().to_vec()).collect();
        assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), wanted);
        keys.push(key(299));
        assert!(sorted(&keys).is_err());
    }

    proptest! {
        #[test]
        fn arcs_come_in_the_order_of_their_keys_and_doubles_are_refused(mut keys in keys()) {
            let distinct: std::collections::BTreeSet<_> = keys.iter().cloned().collect();
            prop_assert_eq!(sorted(&keys).is_ok(), distinct.len() == keys.len());
            let mut seen = std::collections::BTreeSet::new();
            keys.retain(|key| seen.insert(key.clone()));
            let mut wanted: Vec<_> =
                keys.iter().enumerate().map(|(i, key)| (key.as_bytes().to_vec(), target(i))).collect();
            wanted.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!(sorted(&keys).expect("no doubles"), wanted);
        }
    }
}
