//! Adversarial inputs: they are refused, and parsing them takes heap memory proportional to their length.
//!
//! The tests here run one at a time because they measure the same heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coregw_core::{
    Ask, Error, Key, Kind, ListChange, ListChanges, MAX_PAGE, MapChange, MapChanges, Page, RootCid, Suite, Window,
    varint, verify,
};

/// An allocator that counts the bytes in use and their peak.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

// SAFETY: every call is forwarded unchanged to the system allocator; counting does not touch allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `alloc` above with the same layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` and returns its peak heap use in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let before = USED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

fn stub(out: &mut Vec<u8>) {
    out.extend_from_slice(&[3, 1]);
    out.extend_from_slice(&[0xab; 32]);
}

/// Byte strings of at most `max` bytes that stress the proof parser, each with a description.
fn hostile(max: usize) -> Vec<(&'static str, Vec<u8>)> {
    let filled = |piece: &[u8]| piece.iter().copied().cycle().take(max).collect::<Vec<_>>();
    let mut all = vec![
        ("nested list nodes", filled(&[0x12])),
        ("nested map nodes", filled(&[2, 0])),
        ("map nodes one label byte apart", filled(&[2, 7, 0])),
        ("map nodes with stubs on the left", {
            let mut piece = vec![2, 0];
            stub(&mut piece);
            filled(&piece)
        }),
        ("consecutive stubs", {
            let mut piece = Vec::new();
            stub(&mut piece);
            filled(&piece)
        }),
        ("empty nodes", filled(&[0])),
        ("list stubs", filled(&[0x13, 1, 1])),
        ("zeros", vec![0; max]),
        ("ones", vec![0xff; max]),
    ];
    for (what, tag, number) in [
        ("a tail of 2^62 bytes", 1, 1 << 62),
        ("a label of 2^62 bits", 2, 1 << 62),
        ("a gap of 2^32 bits", 2, 1 << 32),
        ("a gap of 2^32 - 1 bits", 2, (1 << 32) - 1),
        ("a list target of 2^62 bytes", 0x11, 1 << 62),
        ("a measure of 2^62", 0x13, 1 << 62),
    ] {
        let mut bytes = vec![tag];
        if tag == 0x11 {
            bytes.push(1);
        }
        varint::write(&mut bytes, number);
        bytes.resize(max, 0);
        all.push((what, bytes));
    }
    // A perfect list of the shortest leaves: well-formed, but with another digest.
    let mut tiny = Vec::new();
    let leaves = 1usize << (max / 8).ilog2();
    for i in 0..leaves {
        let opened = if i == 0 { leaves.ilog2() } else { i.trailing_zeros() };
        (0..opened).for_each(|_| tiny.push(0x12));
        tiny.extend_from_slice(&[0x11, 1, 4, 1, 0x55, 0, 0]);
    }
    all.push(("a well-formed list of empty payloads", tiny));
    // A chain of inner nodes down to the maximum depth of keys, then stubs: well-formed, but with another digest.
    let mut deep = Vec::new();
    let depth = (max / 40).min(60_000);
    (0..depth).for_each(|_| deep.extend_from_slice(&[2, 0]));
    (0..=depth).for_each(|_| stub(&mut deep));
    all.push(("a well-formed tree of maximum depth", deep));
    all
}

fn root(kind: Kind) -> RootCid {
    RootCid { kind, suite: Suite::Sha2_256, digest: Suite::Sha2_256.digest(b"another tree") }
}

/// Asserts that the verifier of every query refuses `bytes` as a proof.
fn refuse_all(what: &str, bytes: &[u8]) {
    let limit = verify::WIDE_PROOF_LIMIT;
    let key = Key::from_text("a/b").expect("a path");
    let target = coregw_core::Cid::from_bytes(&[&[1, 0x55, 0x12, 32][..], &[7; 32]].concat()).expect("a CID");
    let window = Window::new::<&str, &str>(&[], None).expect("a window");
    let change = MapChange { key: key.clone(), before: None, after: Some(target) };
    let changes = MapChanges::new(vec![change]).expect("changes");
    let (map_root, list_root) = (root(Kind::Map), root(Kind::List));
    let element = ListChange { index: 0, before: None, after: Some((target, 1)) };
    let elements = ListChanges::new(vec![element]).expect("changes");
    let outcomes = [
        verify::key(&map_root, &key, bytes, limit).err(),
        verify::scan(&map_root, window, 1000, bytes, limit).err(),
        verify::map_changes(&map_root, changes, bytes, limit).err(),
        verify::index(&list_root, 0, bytes, limit).err(),
        verify::range(&list_root, 0, None, bytes, limit).err(),
        verify::list_changes(&list_root, elements, bytes, limit).err(),
    ];
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Error::Proof { .. }))), "{what}: {outcomes:?}");
}

#[test]
fn hostile_proofs_are_refused_with_memory_proportional_to_their_length() {
    let _alone = ONE_AT_A_TIME.lock();
    for max in [1 << 20, 4096, 64] {
        for (what, bytes) in hostile(max) {
            let peak = peak(|| refuse_all(what, &bytes));
            // A node takes 80 bytes; the shortest leaf and its share of an inner node are 8 bytes of proof.
            assert!(peak <= 26 * bytes.len() + 32_768, "{what}: {peak} bytes of heap for {}", bytes.len());
        }
    }
}

#[test]
fn proofs_of_more_nodes_than_their_query_visits_are_refused_before_they_are_hashed() {
    let _alone = ONE_AT_A_TIME.lock();
    let well_formed = "a well-formed list of empty payloads";
    let (_, bytes) = hostile(1 << 20).into_iter().find(|(what, _)| *what == well_formed).expect("a list");
    for ask in [Ask::Index(0), Ask::Range { start: 0, end: None, max_segments: 1000 }] {
        let refused = verify::replay(&root(Kind::List), ask, &bytes, verify::WIDE_PROOF_LIMIT);
        let refused = refused.expect_err("another digest").to_string();
        assert!(refused.contains("more nodes than the query can visit"), "{refused}");
    }
}

/// A pruned tree of 4,096 leaves, each of nine bytes: their keys are 4,000 letters and two more, which tell them apart.
fn long_keys() -> Vec<u8> {
    const LETTER: u8 = 0x40; // the first two bits of a letter
    fn below(out: &mut Vec<u8>, depth: u32) {
        match depth {
            0 => return out.extend_from_slice(&[1, 2, 0, 0, 4, 1, 0x55, 0, 0]),
            6 => out.extend_from_slice(&[2, 2, LETTER]),
            _ => out.extend_from_slice(&[2, 0]),
        }
        below(out, depth - 1);
        below(out, depth - 1);
    }
    let mut out = vec![2];
    varint::write(&mut out, 8 * 4000 + 2);
    out.extend_from_slice(&[b'a'; 4000]);
    out.push(LETTER);
    below(&mut out, 11);
    below(&mut out, 11);
    out
}

#[test]
fn proofs_of_more_long_keys_than_their_query_visits_are_refused_before_they_are_hashed() {
    let _alone = ONE_AT_A_TIME.lock();
    let bytes = long_keys();
    let root = root(Kind::Map);
    let limit = verify::WIDE_PROOF_LIMIT;
    let window = || Window::new::<&str, &str>(&[], None).expect("a window");
    let key = Key::from_text("a/b").expect("a path");
    let target = coregw_core::Cid::from_bytes(&[1, 0x55, 0, 0]).expect("a CID");
    let change = MapChange { key: key.clone(), before: None, after: Some(target) };
    let changes = MapChanges::new(vec![change]).expect("changes");
    let refused = [
        verify::scan(&root, window(), 1000, &bytes, limit).err(),
        verify::map_changes(&root, changes, &bytes, limit).err(),
        verify::diff([&root, &root], &window(), 1000, [&bytes, &bytes], limit).err(),
        verify::replay_on_tree(&root, &Ask::Key(key), &bytes, limit).err(),
    ];
    for refused in refused {
        let refused = refused.expect("another digest").to_string();
        assert!(refused.contains("more leaves than the query can visit"), "{refused}");
    }
    // As many as the query may visit are read, and another digest is found.
    let refused = verify::scan(&root, window(), 1 << 12, &bytes, limit).expect_err("another digest").to_string();
    assert!(refused.contains("digest"), "{refused}");
}

#[test]
fn hostile_pages_are_refused_with_memory_proportional_to_their_length() {
    let _alone = ONE_AT_A_TIME.lock();
    for (what, bytes) in hostile(MAX_PAGE) {
        let root = root(Kind::Map);
        let peak = peak(|| {
            for kind in [Kind::Map, Kind::List] {
                let refused = Page::parse(&bytes, kind, Suite::Sha2_256, &root.digest);
                assert!(matches!(refused, Err(Error::Damaged { .. })), "{what}: {refused:?}");
            }
        });
        assert!(peak <= 48 * bytes.len() + 32_768, "{what}: {peak} bytes of heap for {}", bytes.len());
    }
}
