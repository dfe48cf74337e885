//! Forged CARs: each violates one check, and nothing of it is stored.

#[path = "support/store.rs"]
mod store;

use std::sync::Arc;

use coregw_core::internals::block::MAX_BLOCK;
use coregw_core::{Error, Kind, RootCid, Snapshot, Suite};
use coregw_ops::Operation;
use coregw_ops::car::{CarLimits, CarReader, block_head};
use store::{Store, payload};

/// A node block, with the root that names it.
fn block(kind: Kind, bytes: &[u8]) -> (RootCid, Vec<u8>) {
    let root = RootCid { kind, suite: Suite::Sha2_256, digest: Suite::Sha2_256.digest(bytes) };
    (root, [&block_head(&root.cid(), bytes.len() as u64), bytes].concat())
}

fn leaf(n: u64) -> Vec<u8> {
    [&[0x11, 1, 36], payload(n).as_bytes()].concat()
}

/// A list node of two children with these counts and measures.
fn pair(counts: [u8; 2], measures: [u8; 2], children: [&RootCid; 2]) -> Vec<u8> {
    let mut out = vec![0x12];
    for i in 0..2 {
        out.extend([counts[i], measures[i]]);
        out.extend(children[i].digest.0);
    }
    out
}

fn car(root: &RootCid, blocks: &[&[u8]]) -> Vec<u8> {
    let cid = root.cid();
    let cid = cid.as_bytes();
    let cbor = [&b"\xa2\x65roots\x81\xd8\x2a\x58"[..], &[cid.len() as u8 + 1, 0], cid, b"\x67version\x01"].concat();
    [&[cbor.len() as u8][..], &cbor, &blocks.concat()].concat()
}

/// Imports a CAR; returns the roots that it stores.
fn import(car: &[u8]) -> Result<Vec<RootCid>, Error> {
    let mut store = Store::new(0, 100);
    store.car = car.to_vec();
    let mut reader = CarReader::new(CarLimits { payload_bytes: 1 << 20, blocks: 100 });
    reader.feed(car)?;
    let outcome = store.serve(Operation::import_car(Arc::clone(&store.cache), reader));
    assert!(outcome.is_ok() || store.pages.is_empty() && store.recorded.is_empty(), "stored parts of a forged CAR");
    outcome.map(|_| store.recorded)
}

#[track_caller]
fn assert_not_imported(car: &[u8], why: &str) {
    let refused = import(car);
    assert!(matches!(&refused, Err(Error::Input { what, .. }) if what.contains(why)), "{why}: {refused:?}");
}

#[test]
fn car_with_another_tree_than_its_root_is_refused() {
    let ((a, first), (b, second)) = (block(Kind::List, &leaf(1)), block(Kind::List, &leaf(2)));
    let (root, top) = block(Kind::List, &pair([1, 1], [1, 1], [&a, &b]));
    let honest = Snapshot::list(Suite::Sha2_256, &[(payload(1), 1), (payload(2), 1)]).expect("a list").root();
    assert_eq!((import(&car(&root, &[&top, &first, &second])), root), (Ok(vec![root]), honest));
    let (_, other) = block(Kind::List, &leaf(3));
    assert_not_imported(&car(&root, &[&top, &first]), &format!("its right child, {b}, is not among the blocks"));
    assert_not_imported(&car(&root, &[&top, &second]), &format!("its left child, {a}, is not among the blocks"));
    assert_not_imported(&car(&root, &[&first, &second]), "not among the blocks");
    assert_not_imported(&car(&root, &[&top, &first, &second, &other]), "not reachable from any root");
    let as_map = RootCid { kind: Kind::Map, ..root };
    assert!(import(&car(&as_map, &[&top, &first, &second])).is_err());
}

#[test]
fn car_with_a_block_of_another_hash_is_refused() {
    let (root, top) = block(Kind::List, &leaf(1));
    for at in block_head(&root.cid(), 0).len()..top.len() {
        let mut forged = top.clone();
        forged[at] ^= 1;
        assert_not_imported(&car(&root, &[&forged]), "another hash");
    }
    let payload_block = [block_head(&payload(1), 8), 2u64.to_be_bytes().to_vec()].concat();
    assert_not_imported(&car(&root, &[&top, &payload_block]), "another hash");
}

#[test]
fn car_whose_counts_or_measures_differ_from_the_children_is_refused() {
    let ((a, first), (b, second)) = (block(Kind::List, &leaf(1)), block(Kind::List, &leaf(2)));
    for (counts, measures) in [([1, 1], [2, 1]), ([1, 1], [1, 2]), ([2, 1], [1, 1])] {
        let (root, top) = block(Kind::List, &pair(counts, measures, [&a, &b]));
        assert_not_imported(&car(&root, &[&top, &first, &second]), "differs from what its parent records");
    }
    for (counts, measures) in [([1, 2], [1, 1]), ([0, 1], [1, 1]), ([1, 1], [0, 1])] {
        let (root, top) = block(Kind::List, &pair(counts, measures, [&a, &b]));
        assert!(import(&car(&root, &[&top, &first, &second])).is_err(), "{counts:?} {measures:?}");
    }
}

#[test]
fn car_whose_keys_do_not_belong_below_their_parent_is_refused() {
    let leaf = |key: &[u8]| [&[1, key.len() as u8], key, &[36], payload(1).as_bytes()].concat();
    let ((a, first), (b, second)) = (block(Kind::Map, &leaf(b"a\0\0")), block(Kind::Map, &leaf(b"b\0\0")));
    // 61 and 62 differ in bit 6; the bits before it are 011000.
    let inner = |bit: u8, prefix: &[u8], children: [&RootCid; 2]| {
        [&[2, bit], prefix, &[1], &children[0].digest.0, &[1], &children[1].digest.0].concat()
    };
    let (root, top) = block(Kind::Map, &inner(6, &[0x60], [&a, &b]));
    assert_eq!(import(&car(&root, &[&top, &first, &second])), Ok(vec![root]));
    for (bit, prefix, children) in
        [(6, &[0x60][..], [&b, &a]), (5, &[0x60], [&a, &b]), (6, &[0x70], [&a, &b]), (7, &[0x60], [&a, &b])]
    {
        let (root, top) = block(Kind::Map, &inner(bit, prefix, children));
        assert_not_imported(&car(&root, &[&top, &first, &second]), "do not belong below");
    }
}

#[test]
fn truncated_car_is_refused() {
    let (root, top) = block(Kind::List, &leaf(1));
    let whole = car(&root, &[&top]);
    assert!(import(&whole).is_ok());
    (0..whole.len()).for_each(|n| assert!(import(&whole[..n]).is_err(), "{n} bytes"));
}

#[test]
fn car_with_another_header_is_refused() {
    let (root, top) = block(Kind::List, &leaf(1));
    let whole = car(&root, &[&top]);
    let header = whole.len() - top.len();
    for at in 0..header {
        for flip in [1, 0x20, 0x80] {
            let mut forged = whole.clone();
            forged[at] ^= flip;
            assert!(import(&forged).is_err(), "byte {at}");
        }
    }
}

/// The result of reading these bytes with the limits of most tests.
fn feed(car: &[u8]) -> Result<(), Error> {
    CarReader::new(CarLimits { payload_bytes: 1 << 20, blocks: 100 }).feed(car)
}

#[test]
fn lengths_in_a_car_are_accepted_up_to_their_limits() {
    assert_eq!(feed(&[0x80, 0x80, 0x04]), Ok(()));
    assert!(matches!(feed(&[0x81, 0x80, 0x04]), Err(Error::Input { what, .. }) if what.contains("longer than 64 KiB")));
    let (root, top) = block(Kind::List, &leaf(1));
    let header = car(&root, &[]);
    for (cid, longest, why) in
        [(root.cid(), MAX_BLOCK as u64, "no tree node has more than"), (payload(1), 1 << 20, "1048576 is the limit")]
    {
        let start = |len| [&header[..], &block_head(&cid, len), &[0; 200]].concat();
        assert_eq!(feed(&start(longest)), Ok(()));
        assert!(matches!(feed(&start(longest + 1)), Err(Error::Input { what, .. }) if what.contains(why)), "{why}");
    }
    // A block of 2^32 - 1 bytes with its CID is the longest that the index can describe.
    let start = |len| [&header[..], &block_head(&payload(1), len), &[0; 200]].concat();
    let feed_long = |len| CarReader::new(CarLimits { payload_bytes: u32::MAX, blocks: 100 }).feed(&start(len));
    assert_eq!(feed_long(u64::from(u32::MAX) - 36), Ok(()));
    let refused = feed_long(u64::from(u32::MAX) - 35);
    assert!(
        matches!(&refused, Err(Error::Input { what, .. }) if what.contains("4294967259 is the limit")),
        "{refused:?}"
    );
    // A length whose varint is not complete, and a CARv2 that ends between two of its blocks.
    assert!(import(&[&car(&root, &[&top])[..], &[0x80]].concat()).is_err());
    let first = car(&root, &[&top, &top]);
    let offsets = [51, first.len() as u64, 0].map(u64::to_le_bytes).concat();
    let second = [b"\x0a\xa1\x67version\x02", &[0; 16][..], &offsets, &first].concat();
    assert_eq!(import(&second), Ok(vec![root]));
    assert!(import(&second[..second.len() - top.len()]).is_err());
}

#[test]
fn check_counts_targets_that_are_not_among_the_blocks() {
    let unheld = RootCid { kind: Kind::Map, suite: Suite::Blake3, digest: Suite::Blake3.digest(b"") }.cid();
    let to_root = [&[0x11, 1, unheld.as_bytes().len() as u8], unheld.as_bytes()].concat();
    let ((a, first), (b, second)) = (block(Kind::List, &to_root), block(Kind::List, &leaf(1)));
    let (root, top) = block(Kind::List, &pair([1, 1], [1, 1], [&a, &b]));
    let payload_block = [block_head(&payload(1), 8), 1u64.to_be_bytes().to_vec()].concat();
    for (blocks, missing_payloads) in [(vec![], 1), (vec![&payload_block[..]], 0)] {
        let mut store = Store::new(0, 100);
        store.car = car(&root, &[&[&top[..], &first, &second], &blocks[..]].concat());
        let mut reader = CarReader::new(CarLimits { payload_bytes: 1 << 20, blocks: 100 });
        reader.feed(&store.car).expect("blocks");
        let result = store.serve(Operation::check_car(reader)).expect("a complete tree");
        let counts = format!("\"missing_payloads\":{missing_payloads},\"missing_roots\":1}}");
        assert!(result.ends_with(&counts), "{result}");
    }
}
