//! CARs: an import stores the exported pages, and a damaged or forged CAR is refused.

#[path = "support/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::payload::Function;
use coregw_core::{Cid, Digest, Error, InputCode, Kind, RootCid, Suite, varint};
use coregw_ops::Operation;
use coregw_ops::car::{CarLimits, CarReader, block_cid, block_head, car_header};
use serde_json::{Value, json};
use store::{Store, payload, root_of};

const LIMITS: CarLimits = CarLimits { payload_bytes: 1 << 20, blocks: 1 << 20 };

fn arcs(n: u64) -> BTreeMap<String, Cid> {
    (0..n).map(|i| (format!("logs/{}/2024-{i:06}.txt", i % 7), payload(i))).collect()
}

/// A list of these targets, grown on an empty map of the suite.
fn list(store: &mut Store, suite: Suite, targets: &[Cid]) -> RootCid {
    let base = store.build(suite, &BTreeMap::new());
    let change = |(i, cid): (usize, &Cid)| json!({"index": i, "after": {"target": cid.text(), "size": 1 + i % 300}});
    let changes: Vec<_> = targets.iter().enumerate().map(change).collect();
    let receipt = store.mutate(&base, &json!({"deltas": [{"kind": "list", "changes": changes}]})).expect("a list");
    let root = Cid::from_text(receipt["new_root"].as_str().expect("text")).expect("a CID");
    root.root().expect("a root")
}

/// The export of a root, with 8 bytes for each payload.
fn export(store: &mut Store, root: &RootCid, payloads: bool) -> Result<Vec<u8>, Error> {
    store.output.clear();
    let operation = Operation::export_car(Arc::clone(&store.cache), *root, payloads, 5000);
    store.serve(operation)?;
    Ok(std::mem::take(&mut store.output))
}

fn read(car: &[u8], chunk_bytes: usize) -> Result<CarReader, Error> {
    let mut reader = CarReader::new(LIMITS);
    for chunk in car.chunks(chunk_bytes) {
        reader.feed(chunk)?;
    }
    assert_eq!(reader.bytes(), car.len() as u64);
    Ok(reader)
}

/// The result of a check: the complete roots and the number of missing payloads.
fn check(car: &[u8], chunk_bytes: usize) -> Result<(Vec<RootCid>, u64), Error> {
    let mut store = Store::new(0, u64::MAX);
    store.car = car.to_vec();
    let checked = store.serve(Operation::check_car(read(car, chunk_bytes)?))?;
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert!(store.pages.is_empty() && store.payloads.is_empty());
    let roots = checked["roots"].as_array().expect("roots").iter().map(root_of).collect();
    Ok((roots, checked["missing_payloads"].as_u64().expect("a number")))
}

/// A store into which a CAR was imported.
fn import(car: &[u8], chunk_bytes: usize) -> Result<Store, Error> {
    let mut store = Store::new(0, u64::MAX);
    store.car = car.to_vec();
    let reader = read(car, chunk_bytes)?;
    let blocks = reader.blocks();
    let operation = Operation::import_car(Arc::clone(&store.cache), reader);
    let result: Value = serde_json::from_str(&store.serve(operation)?).expect("JSON");
    assert_eq!((&result["blocks"], &result["bytes"]), (&json!(blocks), &json!(car.len())));
    let first = Cid::from_text(result["roots"][0].as_str().expect("a CID")).expect("a CID");
    assert!(first.root().is_none_or(|root| store.recorded.contains(&root)));
    Ok(store)
}

/// The frames of a CAR: the header, then the blocks.
fn frames(car: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut frames) = (0, Vec::new());
    while at < car.len() {
        let (len, n) = varint::read(&car[at..]).expect("a varint");
        frames.push(car[at..at + n + len as usize].to_vec());
        at += n + len as usize;
    }
    frames
}

fn refusal(car: &[u8]) -> String {
    match check(car, 777) {
        Err(Error::Input { what, .. }) => what,
        Err(other) => panic!("refused as {other:?}"),
        Ok(_) => panic!("the CAR was accepted"),
    }
}

/// A block of any bytes, named as a root of that kind.
fn block(kind: Kind, bytes: &[u8]) -> (RootCid, Vec<u8>) {
    let root = RootCid { kind, suite: Suite::Sha2_256, digest: Suite::Sha2_256.digest(bytes) };
    (root, [&block_head(&root.cid(), bytes.len() as u64), bytes].concat())
}

fn header(root: &RootCid) -> Vec<u8> {
    let cid = root.cid();
    let cbor = [
        &b"\xa2\x65roots\x81\xd8\x2a\x58"[..],
        &[cid.as_bytes().len() as u8 + 1, 0],
        cid.as_bytes(),
        b"\x67version\x01",
    ]
    .concat();
    [&[cbor.len() as u8][..], &cbor].concat()
}

#[test]
fn import_stores_the_pages_that_were_exported() {
    for suite in Suite::ALL {
        for n in [0, 1, 2, 3, 100, 1000, 5000] {
            let mut store = Store::new(1 << 16, 1000);
            let map = store.build(suite, &arcs(n));
            let stored = store.pages.clone();
            let car = export(&mut store, &map, false).expect("a held root");
            assert_eq!(check(&car, 1 + n as usize), Ok((vec![map], n)));
            let imported = import(&car, 1 + n as usize).expect("a CAR");
            assert_eq!(imported.recorded, [map]);
            assert!(imported.pages == stored, "{n} arcs");

            let mut store = Store::new(1 << 16, 1000);
            let list = list(&mut store, suite, &(0..n.max(1)).map(payload).collect::<Vec<_>>());
            let car = export(&mut store, &list, false).expect("a held root");
            for (digest, page) in import(&car, 4096).expect("a CAR").pages {
                assert_eq!(store.pages.get(&digest), Some(&page), "{n} elements");
            }
        }
    }
}

#[test]
fn held_nested_roots_are_exported_once() {
    let mut store = Store::new(1 << 20, 1000);
    let inner = store.build(Suite::Sha2_256, &arcs(300));
    let list = list(&mut store, Suite::Blake3, &[inner.cid(), payload(1), inner.cid()]);
    let unheld = RootCid { kind: Kind::Map, suite: Suite::Sha2_256, digest: Digest([9; 32]) };
    let mut outer = arcs(10);
    outer.extend([("a/list".into(), list.cid()), ("b".into(), inner.cid()), ("c".into(), unheld.cid())]);
    let root = store.build(Suite::Sha2_256, &outer);
    let car = export(&mut store, &root, true).expect("a held root");
    assert_eq!(check(&car, 999), Ok((vec![root, list, inner], 0)));
    let imported = import(&car, 999).expect("a CAR");
    assert_eq!((&imported.recorded[..], imported.payloads.len()), (&[root, list, inner][..], 300));
    for block in &imported.payloads {
        assert_eq!(block.end - block.start, 36 + 8);
        assert_eq!(car[block.start as usize..][..2], [1, 0x55]);
    }
    for (digest, page) in &imported.pages {
        assert_eq!(store.pages.get(digest), Some(page));
    }
    for held in [root, list, inner] {
        assert!(imported.pages.contains_key(&held.digest));
    }
}

#[test]
fn identity_payloads_need_no_block_and_are_never_missing() {
    let mut store = Store::new(1 << 20, 1000);
    let held = Cid::of_payload(0x55, Function::Identity, b"hello");
    let root = store.build(Suite::Sha2_256, &BTreeMap::from([("a".into(), held), ("b".into(), payload(1))]));
    for payloads in [false, true] {
        let car = export(&mut store, &root, payloads).expect("a held root");
        assert_eq!(check(&car, 64), Ok((vec![root], u64::from(!payloads))));
        assert_eq!(import(&car, 64).expect("a CAR").payloads.len(), usize::from(payloads));
        let with_block = [&car[..], &block_head(&held, 5), b"hello"].concat();
        assert_eq!(import(&with_block, 64).expect("a CAR").payloads.len(), usize::from(payloads));
        let wrong = [&car[..], &block_head(&held, 5), b"hullo"].concat();
        assert!(refusal(&wrong).contains("another hash"));
    }
}

#[test]
fn blocks_may_be_in_any_order_and_repeated() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(400));
    let car = export(&mut store, &root, true).expect("a held root");
    let mut frames = frames(&car);
    let count = frames.len() - 1;
    frames[1..].reverse();
    frames.extend_from_within(5..50);
    let shuffled = frames.concat();
    assert_eq!(check(&shuffled, 100).map(|(_, missing)| missing), Ok(0));
    let imported = import(&shuffled, 100).expect("a CAR");
    assert_eq!(imported.payloads.len() + 799, count);
    assert_eq!(imported.pages, store.pages);
}

#[test]
fn a_truncated_car_is_refused_with_its_place() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(3));
    let car = export(&mut store, &root, true).expect("a held root");
    for cut in 0..car.len() {
        let message = refusal(&car[..cut]);
        assert!(
            ["the header: the CAR ends", "block ", "root 0"].iter().any(|p| message.starts_with(p)),
            "{cut}: {message}"
        );
    }
    let message = refusal(&car[..car.len() - 1]);
    let last = format!("block 7 at byte {}", car.len() - frames(&car)[8].len());
    assert!(message.starts_with(&last) && message.contains("ends inside it"), "{message}");
}

#[test]
fn any_flipped_bit_of_a_block_is_refused() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Blake3, &arcs(3));
    let car = export(&mut store, &root, true).expect("a held root");
    let mut at = frames(&car)[0].len();
    for (number, frame) in frames(&car).iter().enumerate().skip(1) {
        for i in at..at + frame.len() {
            for bit in [1, 0x80] {
                let mut bad = car.clone();
                bad[i] ^= bit;
                // A payload's codec is no part of what is hashed.
                let codec = frame[1..4] == [1, 0x55, 0x12] && i == at + 2;
                assert!(codec || check(&bad, 50).is_err(), "byte {i}, in block {}", number - 1);
            }
        }
        at += frame.len();
    }
}

#[test]
fn missing_or_stray_node_is_refused_and_named() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(20));
    let car = export(&mut store, &root, false).expect("a held root");
    let all = frames(&car);
    for gone in 1..all.len() {
        let mut frames = all.clone();
        let (_, n) = varint::read(&frames[gone]).expect("a varint");
        let (cid, _) = block_cid(&frames[gone][n..]).expect("a root CID");
        frames.remove(gone);
        let message = refusal(&frames.concat());
        assert!(message.contains(&format!("{cid}, is not among the blocks")), "{message}");
    }
    let (_, stray) = block(Kind::List, &[0x10]);
    let message = refusal(&[&car[..], &stray].concat());
    assert!(message.starts_with("block 39 (") && message.contains("not reachable from any root"), "{message}");
}

#[test]
fn misplaced_node_is_refused() {
    let leaf = |key: &[u8], n| {
        let target = payload(n);
        block(Kind::Map, &[&[1, key.len() as u8], key, &[36], target.as_bytes()].concat())
    };
    let inner = |bit: u8, prefix: &[u8], l: (u8, &RootCid), r: (u8, &RootCid)| {
        let node = [&[2, bit], prefix, &[l.0], &l.1.digest.0, &[r.0], &r.1.digest.0].concat();
        block(Kind::Map, &node)
    };
    let ((a, a_bytes), (b, b_bytes)) = (leaf(b"a\0\0", 1), leaf(b"b\0\0", 2));
    let car = |(root, top): (RootCid, Vec<u8>)| [header(&root), top, a_bytes.clone(), b_bytes.clone()].concat();
    assert!(check(&car(inner(6, &[0x60], (1, &a), (1, &b))), 9).is_ok());
    let refused = [
        (inner(6, &[0x60], (1, &b), (1, &a)), "do not belong"),
        (inner(6, &[0x70], (1, &a), (1, &b)), "do not belong"),
        (inner(5, &[0x60], (1, &a), (1, &b)), "do not belong"),
        (inner(7, &[0x60], (1, &a), (1, &b)), "do not belong"),
        (inner(6, &[0x60], (2, &a), (1, &b)), "its count or measure differs"),
        (inner(6, &[0x60], (1, &a), (1, &a)), "do not belong"),
        (inner(6, &[0x62], (1, &a), (1, &b)), "stray bit"),
    ];
    for (top, why) in refused {
        let message = refusal(&car(top));
        assert!(message.contains(why), "{why}: {message}");
    }
}

#[test]
fn a_list_of_another_shape_or_measure_is_refused() {
    let leaf = |n| block(Kind::List, &[&[0x11, 5, 36], payload(n).as_bytes()].concat());
    let inner = |l: [u8; 2], left: &RootCid, r: [u8; 2], right: &RootCid| {
        block(Kind::List, &[&[0x12][..], &l, &left.digest.0, &r, &right.digest.0].concat())
    };
    let (a, a_bytes) = leaf(1);
    let (two, two_bytes) = inner([1, 5], &a, [1, 5], &a);
    let car = |(root, top): (RootCid, Vec<u8>)| [header(&root), top, two_bytes.clone(), a_bytes.clone()].concat();
    assert!(check(&car(inner([2, 10], &two, [1, 5], &a)), 9).is_ok());
    for (top, why) in [
        (inner([1, 5], &a, [2, 10], &two), "another shape"),
        (inner([2, 11], &two, [1, 5], &a), "its count or measure differs"),
        (inner([2, 10], &a, [1, 5], &a), "its count or measure differs"),
        (inner([2, 10], &two, [1, 0], &a), "of 0"),
    ] {
        let message = refusal(&car(top));
        assert!(message.contains(why), "{why}: {message}");
    }
}

#[test]
fn a_few_blocks_can_represent_a_list_of_2_to_the_52_elements() {
    let (mut below, mut bytes) = block(Kind::List, &[&[0x11, 1, 36], payload(1).as_bytes()].concat());
    let mut blocks = bytes;
    for height in 0..52 {
        let mut count = Vec::new();
        varint::write(&mut count, 1 << height);
        let half = [&count[..], &count, &below.digest.0].concat();
        (below, bytes) = block(Kind::List, &[&[0x12][..], &half, &half].concat());
        blocks.extend(bytes);
    }
    let car = [header(&below), blocks].concat();
    let mut store = import(&car, 4096).expect("a CAR");
    assert!(store.pages.len() < 53, "{} pages", store.pages.len());
    let again = export(&mut store, &below, true).expect("a held root");
    assert!(again.len() < 1 << 20, "{} bytes", again.len());
    assert_eq!(import(&again, 4096).expect("a CAR").pages, store.pages);
}

#[test]
fn bad_headers_and_frames_are_refused() {
    let (root, empty) = block(Kind::Map, &[0]);
    let good = [header(&root), empty.clone()].concat();
    assert!(check(&good, 1).is_ok());
    let node = RootCid { digest: Suite::Sha2_256.digest(&[0, 0]), ..root }.cid();
    let big = RootCid { digest: Digest([1; 32]), ..root }.cid();
    let cidv0 = [&[0x12, 32][..], &[7; 32]].concat();
    for (car, why) in [
        (vec![], "the header: the CAR ends inside it, after 0 bytes"),
        (vec![0], "the header: it has no bytes"),
        (vec![0xff; 9], "the header: its length: a varint is longer"),
        (vec![0x80, 0x80, 0x05], "longer than 64 KiB"),
        ([&header(&root)[..], &[0]].concat(), "block 0 at byte 62: it has no bytes"),
        ([&good[..], &[0x80, 0x00]].concat(), "not in minimal form"),
        ([&good[..], &[0xff; 9]].concat(), "longer than 9 bytes"),
        ([&good[..], &[34], &cidv0].concat(), "its bytes have another hash"),
        ([&good[..], &[20], &cidv0[..20]].concat(), "block 1 at byte 103: its CID: it ends inside its digest"),
        ([&good[..], &block_head(&node, 2), &[0, 0]].concat(), "bytes follow the node"),
        ([&good[..], &block_head(&big, 9000), &[0; 141]].concat(), "no tree node has more than"),
        ([&good[..], &block_head(&payload(1), (1 << 20) + 1), &[0; 141]].concat(), "is the limit"),
        ([&good[..], &block_head(&payload(1), 0)].concat(), "another hash"),
    ] {
        let message = refusal(&car);
        assert!(message.contains(why), "{why}: {message}");
    }
    assert!(refusal(&car_header(&[payload(1)])).contains("root 0, "));
    let mut few = CarReader::new(CarLimits { blocks: 1, ..LIMITS });
    let message = few.feed(&[&good[..], &empty].concat()).expect_err("two blocks");
    assert!(message.to_string().contains("more than 1 blocks"));
}

/// A CARv2 of a CARv1, with bytes before and after it.
fn second_version(car: &[u8], before: &[u8], after: &[u8]) -> Vec<u8> {
    let begin = 51 + before.len() as u64;
    let offsets = [begin, car.len() as u64, begin + car.len() as u64].map(u64::to_le_bytes).concat();
    [b"\x0a\xa1\x67version\x02", &[0; 16][..], &offsets, before, car, after].concat()
}

#[test]
fn cars_of_others_are_read() {
    let datas = [&b"\x0a\x02\x08\x01"[..], b"a leaf", b"another"];
    let cid = |data: &[u8], codec: u64| Cid::of_payload(codec, Function::Sha2_256, &Suite::Sha2_256.digest(data).0);
    let named = [cid(datas[0], 0x70), cid(datas[1], 0x55), cid(datas[2], 0x71)];
    let v0 = &named[0].as_bytes()[2..];
    let folder = [&[34 + datas[0].len() as u8][..], v0, datas[0]].concat();
    let blocks = [folder, framed(&named[1], datas[1]), framed(&named[2], datas[2])].concat();
    let first = [&car_header(&named[..2])[..], &blocks].concat();
    let mut with_v0 = [b"\x2a\xa2\x65roots\x81\xd8\x2a\x58\x23\0", v0, b"\x67version\x01"].concat();
    with_v0[0] = with_v0.len() as u8 - 1;
    let (mut store, map) = (Store::new(0, u64::MAX), arcs(30));
    let root = store.build(Suite::Sha2_256, &map);
    let tree = frames(&export(&mut store, &root, false).expect("a held root"))[1..].concat();
    for (car, roots) in [
        (first.clone(), named[..2].to_vec()),
        ([&with_v0[..], &blocks].concat(), vec![named[0]]),
        ([&car_header(&[named[2], root.cid()])[..], &tree, &blocks].concat(), vec![named[2], root.cid()]),
    ] {
        let held = usize::from(roots.contains(&root.cid()));
        for car in [car.clone(), second_version(&car, b"", b""), second_version(&car, &[0; 77], b"an index")] {
            for chunk_bytes in [1, 7, 4096] {
                assert_eq!(read(&car, chunk_bytes).expect("a CAR").roots(), Some(&roots[..]));
                let imported = import(&car, chunk_bytes).expect("a CAR");
                assert_eq!((imported.payloads.len(), imported.recorded.len()), (3, held));
            }
        }
    }
    for (car, why) in [
        (second_version(&first[..first.len() - 1], b"", b"6"), "longer than what is left of the CARv1"),
        (second_version(&first, b"", b"")[..90].to_vec(), "ends inside it"),
        (second_version(&first, b"", b"")[..51].to_vec(), "ends inside it"),
        (second_version(&second_version(&first, b"", b""), b"", b""), "it is not {\"roots\""),
        ([&b"\x0a\xa1\x67version\x02"[..], &[0; 40]].concat(), "begins inside the header"),
        ([&b"\x0a\xa1\x67version\x02"[..], &[0; 16], &[51], &[0; 23]].concat(), "was not finished"),
    ] {
        let message = refusal(&car);
        assert!(message.contains(why), "{why}: {message}");
    }
}

fn framed(cid: &Cid, data: &[u8]) -> Vec<u8> {
    [&block_head(cid, data.len() as u64)[..], data].concat()
}

#[test]
fn block_of_4_gib_is_too_large_even_if_its_payload_is_not() {
    let (root, _) = block(Kind::Map, &[0]);
    let cid = payload(1);
    let data = u64::from(u32::MAX) - 1;
    let mut reader = CarReader::new(CarLimits { payload_bytes: u32::MAX, ..LIMITS });
    reader.feed(&header(&root)).expect("a header");
    let start = [block_head(&cid, data), vec![0; 200]].concat();
    let error = reader.feed(&start).expect_err("a block whose length needs 33 bits");
    assert!(matches!(error, Error::Input { code: InputCode::TooLarge, .. }), "{error}");
}

#[test]
fn export_names_a_missing_or_damaged_page() {
    let mut store = Store::new(1, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(1000));
    let digests: Vec<_> = store.pages.keys().copied().collect();
    for digest in digests {
        let page = store.pages.remove(&digest).expect("a page");
        let missing = export(&mut store, &root, false).expect_err("a page is missing");
        assert!(matches!(missing, Error::Damaged { .. }) && missing.to_string().contains(&digest.to_string()));
        let mut bad = page.clone();
        *bad.last_mut().expect("bytes") ^= 1;
        store.pages.insert(digest, bad);
        assert!(matches!(export(&mut store, &root, false), Err(Error::Damaged { .. })));
        store.pages.insert(digest, page);
    }
    store.roots.clear();
    assert!(matches!(export(&mut store, &root, false), Err(Error::NotFound { .. })));
}
