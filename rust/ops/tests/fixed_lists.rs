//! Fixed lists: `commit.fixed_list` checks every size, at a cost that the number of elements does not determine.

#[path = "support/store.rs"]
mod store;

use std::sync::Arc;

use coregw_core::{Error, Kind, PageCache, Result, RootCid, Suite, varint};
use coregw_ops::car::{CarLimits, CarReader, block_head};
use coregw_ops::{Operation, verify_transition};
use serde_json::{Value, json};
use store::{Store, payload, root_of};

/// The change of element `index` from `payload(before)` to `payload(after)`.
fn change(index: u64, before: u64, after: u64) -> Value {
    json!({"index": index, "before": {"target": payload(before).text()}, "after": {"target": payload(after).text()}})
}

/// The same with `payload(5)` and size 4 after it.
fn sized(index: u64) -> Value {
    json!({"index": index, "before": {"target": payload(index).text()},
        "after": {"target": payload(5).text(), "size": 4}})
}

fn request(object: &RootCid, changes: &[Value], total: u64, chunk: u64) -> Value {
    json!({"prove": true, "deltas": [{"kind": "list", "object": object.cid().text(), "changes": changes,
        "commit": {"fixed_list": {"total_size": total, "chunk_size": chunk}}}]})
}

/// Makes changes without a commit, and verifies the receipt as if the request had had one.
fn forged(store: &mut Store, root: &RootCid, changes: &[Value], total: u64, chunk: u64) -> Result<RootCid> {
    let receipt = store.mutate(root, &json!({"prove": true, "deltas": [{"kind": "list", "changes": changes}]}))?;
    let request = json!({"root": root.cid().text(), "deltas": [{"kind": "list", "changes": changes,
        "commit": {"fixed_list": {"total_size": total, "chunk_size": chunk}}}]});
    let new = verify_transition(request.to_string().as_bytes(), receipt.to_string().as_bytes())?;
    Ok(new.root().expect("a root"))
}

/// Stores the list of `payload(i)` with these sizes.
fn list(store: &mut Store, sizes: &[u64]) -> RootCid {
    let create = |(i, size)| json!({"index": i, "after": {"target": payload(i as u64).text(), "size": size}});
    let changes: Vec<_> = sizes.iter().enumerate().map(create).collect();
    let map = store.build(Suite::Sha2_256, &[].into());
    let receipt = store.mutate(&map, &json!({"deltas": [{"kind": "list", "changes": changes}]})).expect("a list");
    root_of(&receipt["new_root"])
}

/// A store with the list of 2^50 elements of this size, all the same, which was imported from a small CAR.
fn repeated(size: u8) -> (Store, RootCid) {
    let block = |bytes: Vec<u8>| {
        let root = RootCid { kind: Kind::List, suite: Suite::Sha2_256, digest: Suite::Sha2_256.digest(&bytes) };
        (root, [block_head(&root.cid(), bytes.len() as u64), bytes].concat())
    };
    let (mut top, mut blocks) = block([&[0x11, size, 36], payload(0).as_bytes()].concat());
    for height in 0..50u32 {
        let mut half = Vec::new();
        varint::write(&mut half, 1 << height);
        varint::write(&mut half, u64::from(size) << height);
        half.extend(top.digest.0);
        let (root, bytes) = block([&[0x12], &half[..], &half].concat());
        (top, blocks) = (root, [blocks, bytes].concat());
    }
    let cid = top.cid();
    let cid = cid.as_bytes();
    let cbor = [&b"\xa2\x65roots\x81\xd8\x2a\x58"[..], &[cid.len() as u8 + 1, 0], cid, b"\x67version\x01"].concat();
    let mut store = Store::new(0, 10_000);
    store.car = [&[cbor.len() as u8][..], &cbor, &blocks].concat();
    let mut reader = CarReader::new(CarLimits { payload_bytes: 1 << 20, blocks: 1000 });
    reader.feed(&store.car).expect("a CAR");
    store.serve(Operation::import_car(Arc::clone(&store.cache), reader)).expect("a list");
    (store, top)
}

#[test]
fn each_distinct_page_is_checked_once_however_often_the_list_repeats_it() {
    for size in [1, 2] {
        let (mut store, root) = repeated(size);
        let total = u64::from(size) << 50;
        store.loads = 0;
        let wrong_count = request(&root, &[change(0, 0, 1)], 10, 1);
        let refused = store.mutate(&root, &wrong_count).expect_err("the list is longer").to_string();
        assert!(refused.contains("the list has 1125899906842624 elements; the fixed list has 10"), "{refused}");
        assert!(store.loads <= 50, "{} pages to compare the counts", store.loads);
        store.mutate(&root, &request(&root, &[change(0, 0, 1)], total, size.into())).expect("a fixed list");
        assert!(store.loads <= 200, "{} pages", store.loads);
    }
}

#[test]
fn a_change_of_a_list_that_is_known_to_be_fixed_reads_only_the_descent() {
    let n = 20_000;
    let mut store = Store::new(0, 10_000);
    let root = list(&mut store, &vec![4; n as usize]);
    let pages = store.pages.len() as u64;
    let total = 4 * n - 3;
    let end = json!({"index": n - 1, "before": {"target": payload(n - 1).text()},
        "after": {"target": payload(n - 1).text()}});
    store.loads = 0;
    let receipt = store.mutate(&root, &request(&root, &[end], total, 4)).expect("a fixed list");
    assert!((pages - 5..pages + 5).contains(&store.loads), "every page once: {} of {pages}", store.loads);
    let root = root_of(&receipt["new_root"]);
    store.loads = 0;
    let receipt = store.mutate(&root, &request(&root, &[change(7, 7, 8)], total, 4)).expect("a fixed list");
    assert!(store.loads <= 6, "{} of {pages} pages", store.loads);
    // The last element is the only one of another size; an append without a change of it is seen in the total.
    let root = root_of(&receipt["new_root"]);
    let append = json!({"index": n, "after": {"target": payload(1).text()}});
    let refused = store.mutate(&root, &request(&root, &[append], 4 * n + 4, 4)).expect_err("size 1").to_string();
    assert!(
        refused.contains("elements 19968 to 19999 have size 125 together; in the fixed list it is 128"),
        "{refused}"
    );
    // Nothing is known of other sizes of the elements.
    let refused = store.mutate(&root, &request(&root, &[change(9, 9, 8)], total, 5)).expect_err("size 4").to_string();
    assert!(refused.contains("elements"), "{refused}");
    // A new cache knows nothing.
    store.cache = Arc::new(PageCache::new(0, 0));
    store.loads = 0;
    store.mutate(&root, &request(&root, &[change(9, 9, 8)], total, 4)).expect("a fixed list");
    assert!(store.loads >= pages - 5, "{} of {pages} pages", store.loads);
}

#[test]
fn sizes_that_only_add_up_are_refused_wherever_they_are() {
    let mut sizes = vec![4; 20_000];
    (sizes[12_344], sizes[12_345]) = (2, 6);
    let mut store = Store::new(0, 10_000);
    let root = list(&mut store, &sizes);
    let refused = store.mutate(&root, &request(&root, &[change(0, 0, 1)], 80_000, 4));
    let Err(Error::Conflict { what, .. }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("element 12344 has size 2; its size in the fixed list is 4"), "{what}");
}

#[test]
fn a_proof_shows_the_sizes_beside_the_changes_and_no_others() {
    let mut store = Store::new(0, 10_000);
    let root = list(&mut store, &[4, 2, 4]);
    let refused = forged(&mut store, &root, &[sized(0)], 10, 4).expect_err("not 4, 4, 2").to_string();
    assert!(refused.contains("has size 2"), "{refused}");
    // The sum of a subtree that no change touches is all that is shown of it.
    let hidden = list(&mut store, &[4, 4, 2, 6]);
    forged(&mut store, &hidden, &[sized(0)], 16, 4).expect("not shown, as the documentation says");
    let refused = forged(&mut store, &hidden, &[sized(2)], 16, 4).expect_err("shown").to_string();
    assert!(refused.contains("size"), "{refused}");
}
