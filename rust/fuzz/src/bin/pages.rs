//! Fuzz target: any bytes as a page. A page that parses is written back to the same bytes, no stub names its own page, and its
//! sizes are those of a fixed list exactly if each of them is.
#![no_main]

use coregw_core::internals::arena::{Node, NodeId, State};
use coregw_core::{Digest, FixedSizes, Kind, Page, Suite, inner_pages};
use libfuzzer_sys::fuzz_target;

/// Extracts the actual digest from a mismatch error.
fn digest_of(refused: &str) -> Option<Digest> {
    let (_, hex) = refused.rsplit_once("has the digest ")?;
    let byte = |i: usize| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Option<Vec<_>> = (0..32).map(byte).collect();
    Some(Digest(bytes?.try_into().ok()?))
}

/// The count, the measure and whether it is a stub, of each leaf and stub of a page from left to right.
fn ends(page: &Page, id: NodeId, out: &mut Vec<(u64, u64, bool)>) {
    let node = page.arena.node(id);
    match node.state {
        State::Inner { left, right, .. } => {
            ends(page, left, out);
            ends(page, right, out);
        }
        State::Empty => {}
        state => out.push((node.count, page.arena.measure(id), matches!(state, State::Stub { .. }))),
    }
}

/// Checks the sizes of a page of a list, as if its first element had this index in a fixed list.
fn sizes(page: &Page, first: u64, total: u64, size: u64) {
    let Some(fixed) = FixedSizes::new(total, size) else { return };
    let mut all = Vec::new();
    ends(page, Page::TOP, &mut all);
    let start = |index: u64| (u128::from(index) * u128::from(size)).min(total.into());
    let (mut index, mut fits, mut stubs) = (first, true, 0);
    for (count, measure, is_stub) in all {
        fits &= start(index + count) - start(index) == measure.into();
        stubs += usize::from(is_stub && count > 1 && size > 1);
        index += count;
    }
    let checked = fixed.check_page(page, first).map(|unchecked| unchecked.len()).ok();
    assert_eq!(checked, fits.then_some(stubs));
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let suite = Suite::ALL[usize::from(how & 1)];
    let kind = if how & 2 == 0 { Kind::Map } else { Kind::List };
    let inner: Vec<_> = inner_pages(bytes).into_iter().map(|page| page.digest).collect();
    let refused = Page::parse(bytes, kind, suite, &Digest([0; 32])).expect_err("no page has this digest");
    if let Some(digest) = digest_of(&refused.to_string()) {
        let page = Page::parse(bytes, kind, suite, &digest).expect("the page parses under its own digest");
        assert_eq!(page.to_bytes(), bytes);
        assert!(page.stubs().all(|stub| stub != digest));
        let is_inner = |node: &&Node| matches!(node.state, State::Stub { .. }) && node.height > 0 && kind == Kind::Map;
        assert!(page.arena.nodes.iter().filter(is_inner).map(|node| node.digest).eq(inner));
        if kind == Kind::List {
            let (first, size) = (u64::from(how >> 2), u64::from(how >> 5));
            for (first, total) in [(0, bytes.len() as u64), (first, first * size + 9), ((1 << 52) - 1, 1 << 52)] {
                sizes(&page, first, total, size);
            }
        }
    }
});
