//! Random edits of a proof, and random bytes that resemble one.

use coregw_core::varint;
use proptest::prelude::*;
use proptest::sample::Index;

use super::target;

/// One edit of a byte string.
#[derive(Debug, Clone)]
pub enum Edit {
    Set(Index, u8),
    Remove(Index),
    Insert(Index, u8),
    Swap(Index, Index),
    Copy(Index, Index, Index),
}

/// A few edits.
pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<Index>;
    let one = prop_oneof![
        (at(), any::<u8>()).prop_map(|(i, b)| Edit::Set(i, b)),
        at().prop_map(Edit::Remove),
        (at(), any::<u8>()).prop_map(|(i, b)| Edit::Insert(i, b)),
        (at(), at()).prop_map(|(i, j)| Edit::Swap(i, j)),
        (at(), at(), at()).prop_map(|(i, j, k)| Edit::Copy(i, j, k)),
    ];
    prop::collection::vec(one, 1..4)
}

/// Returns `bytes` with the edits applied.
pub fn tamper(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for edit in edits {
        let n = out.len().max(1);
        match edit {
            Edit::Set(i, b) => out.get_mut(i.index(n)).into_iter().for_each(|byte| *byte = *b),
            Edit::Remove(i) => drop(out.splice(i.index(n)..(i.index(n) + 1).min(out.len()), [])),
            Edit::Insert(i, b) => out.insert(i.index(n), *b),
            Edit::Swap(i, j) if !out.is_empty() => out.swap(i.index(n), j.index(n)),
            Edit::Copy(i, j, k) if !out.is_empty() => {
                let (i, j) = (i.index(n), j.index(n));
                let piece = out[i.min(j)..i.max(j)].to_vec();
                drop(out.splice(k.index(n)..k.index(n), piece));
            }
            _ => {}
        }
    }
    out
}

/// Random bytes, some made of pieces of pruned-tree encodings.
pub fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop::sample::select(vec![0u8, 1, 2, 3, 0x10, 0x11, 0x12, 0x13]);
    let piece = prop_oneof![
        3 => tag.prop_map(|tag| vec![tag]),
        2 => (0u64..200).prop_map(number),
        1 => any::<[u8; 32]>().prop_map(|digest| digest.to_vec()),
        1 => (0u16..9).prop_map(|n| target(n).as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..9),
        1 => (prop::collection::vec(any::<u8>(), 0..4), 0usize..600).prop_map(|(bytes, n)| bytes.repeat(n)),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn number(n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(&mut out, n);
    out
}
