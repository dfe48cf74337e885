//! All arcs in key order: the merge of the runs, or the arcs themselves if they fitted into memory.

use std::io;
use std::sync::Arc;

use coregw_core::{Arcs, Error, MapBuilder, Result};
use coregw_ops::SortedArcs;

use super::run::{Run, RunFile, RunReader};

/// Memory for the blocks of all runs together.
const MERGE_BYTES: usize = 48 << 20;
/// The largest block of one run.
const MAX_BLOCK: usize = 256 << 10;

/// Arcs that are sorted, and can be read in order any number of times.
#[derive(Clone)]
pub enum Sorted {
    /// Few arcs, in memory.
    Memory(Arc<Arcs>),
    /// Runs in a file.
    File(Arc<RunFile>, Arc<[Run]>),
}

impl Sorted {
    /// A reader before the first arc.
    pub fn reader(&self) -> Result<SortedReader> {
        Ok(match self {
            Self::Memory(arcs) => SortedReader::Memory { arcs: Arc::clone(arcs), next: 0 },
            Self::File(file, runs) => SortedReader::Merge(Merge::new(Arc::clone(file), runs).map_err(unreadable)?),
        })
    }
}

/// Reads sorted arcs in order.
pub enum SortedReader {
    Memory { arcs: Arc<Arcs>, next: usize },
    Merge(Merge),
}

impl SortedReader {
    /// Gives the next arcs to `take`, up to `count`. Returns whether there may be more.
    pub fn next(&mut self, count: usize, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<bool> {
        match self {
            Self::Memory { arcs, next } => {
                for (key, target) in arcs.iter_from(*next).take(count) {
                    take(key, target)?;
                    *next += 1;
                }
                Ok(*next < arcs.len())
            }
            Self::Merge(merge) => {
                for _ in 0..count {
                    let Some(first) = merge.first() else {
                        return Ok(false);
                    };
                    take(first.key(), first.target())?;
                    merge.advance().map_err(unreadable)?;
                }
                Ok(true)
            }
        }
    }
}

impl SortedArcs for SortedReader {
    fn push_next(&mut self, builder: &mut MapBuilder, count: usize) -> Result<bool> {
        self.next(count, |key, target| builder.push(key, target))
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Memory { arcs, .. } => arcs.held_bytes(),
            Self::Merge(merge) => merge.heap.iter().map(|source| source.reader.held_bytes()).sum(),
        }
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::damaged(format!("the temporary file of sorted arcs cannot be read: {error}"))
}

/// A run in the merge: its reader, and the eight bytes of its current key by which runs are compared first.
struct Source {
    reader: RunReader,
    lead: u64,
}

/// The merge of runs: a binary heap of them, by their current keys.
pub struct Merge {
    file: Arc<RunFile>,
    heap: Vec<Source>,
    /// How many bytes all keys have in common.
    shared: usize,
}

impl Merge {
    fn new(file: Arc<RunFile>, runs: &[Run]) -> io::Result<Self> {
        let block = (MERGE_BYTES / runs.len().max(1)).min(MAX_BLOCK);
        // All keys are between the least and the greatest, so they begin with what these two share.
        let least = runs.iter().map(|run| &run.first[..]).min().unwrap_or_default();
        let greatest = runs.iter().map(|run| &run.last[..]).max().unwrap_or_default();
        let shared = least.iter().zip(greatest).take_while(|(a, b)| a == b).count();
        let mut merge = Self { file, heap: Vec::with_capacity(runs.len()), shared };
        for run in runs {
            let mut reader = RunReader::new(run, block);
            if reader.advance(&merge.file)? {
                let lead = lead(reader.key(), shared);
                merge.heap.push(Source { reader, lead });
            }
        }
        (0..merge.heap.len() / 2).rev().for_each(|at| merge.sink(at));
        Ok(merge)
    }

    /// The run whose current arc comes first.
    fn first(&self) -> Option<&RunReader> {
        self.heap.first().map(|source| &source.reader)
    }

    /// Goes to the next arc.
    fn advance(&mut self) -> io::Result<()> {
        let Some(first) = self.heap.first_mut() else {
            return Ok(());
        };
        if first.reader.advance(&self.file)? {
            first.lead = lead(first.reader.key(), self.shared);
        } else {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    fn precedes(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.heap[a], &self.heap[b]);
        a.lead < b.lead || a.lead == b.lead && a.reader.key() < b.reader.key()
    }

    /// Moves a run down to its place in the heap.
    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.precedes(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

fn lead(key: &[u8], from: usize) -> u64 {
    let rest = key.get(from..).unwrap_or_default();
    match rest.first_chunk() {
        Some(whole) => u64::from_be_bytes(*whole),
        None => rest.iter().rev().fold(0, |lead, &byte| lead >> 8 | u64::from(byte) << 56),
    }
}
