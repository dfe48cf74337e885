//! The arcs of a map before it is built: collected in any order, sorted once, doubles refused.

use crate::cid::Cid;
use crate::error::{Error, InputCode, Result};
use crate::path::{self, Key};

/// One arc: where its key, and behind that its target, lie.
#[derive(Debug, Clone, Copy)]
struct Arc {
    /// The eight bytes of the key behind what all keys share, so that most comparisons look no further.
    lead: u64,
    offset: u64,
    key_len: u16,
    target_len: u8,
}

/// Arcs in one block of memory.
#[derive(Debug, Default)]
pub struct Arcs {
    bytes: Vec<u8>,
    arcs: Vec<Arc>,
}

impl Arcs {
    /// Makes room for `n` arcs.
    pub fn with_capacity(n: usize) -> Self {
        Self { bytes: Vec::with_capacity(64 * n), arcs: Vec::with_capacity(n) }
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
    pub(crate) fn push_text(&mut self, path: &str, target: &Cid) -> Result<(), &'static str> {
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

    /// Sorts by key. O(n log n).
    ///
    /// # Errors
    /// [`Error::Input`] if two arcs have the same path, naming it, or for more than 4 GiB of keys and targets.
    pub fn sort(&mut self) -> Result<()> {
        if u32::try_from(self.bytes.len()).is_err() {
            let what = "arcs: their keys and targets take more than 4 GiB; build a smaller map and change it";
            return Err(Error::input(InputCode::TooLarge, what));
        }
        let mut arcs = std::mem::take(&mut self.arcs);
        let shared = arcs.split_first().map_or(0, |(first, rest)| {
            let first = self.key(first);
            rest.iter().fold(first.len(), |n, arc| {
                let key = self.key(arc);
                first[..n].iter().zip(key).position(|(a, b)| a != b).unwrap_or(n.min(key.len()))
            })
        });
        for arc in &mut arcs {
            let rest = &self.key(arc)[shared..];
            let mut lead = [0; 8];
            lead[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
            arc.lead = u64::from_be_bytes(lead);
        }
        arcs.sort_unstable_by(|a, b| a.lead.cmp(&b.lead).then_with(|| self.key(a).cmp(self.key(b))));
        // What is built from the arcs reads them in order; bringing them in order here waits for memory only once.
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
