//! CARs: an import stores the exported pages, and a damaged or forged CAR is refused.

#[path = "support/store.rs"]
mod store;

#[path = "support/cars.rs"]
mod cars;

use std::collections::BTreeMap;
use std::sync::Arc;

use cars::{LIMITS, arcs, block, check, export, framed, frames, header, import, list, read, refusal};
use coregw_core::payload::Function;
use coregw_core::{Arcs, Cid, Digest, Error, Kind, RootCid, Snapshot, Suite, varint};
use coregw_ops::car::{CarLimits, CarReader, block_cid, block_head, car_header, lists_car, payload_car_header};
use coregw_ops::{Operation, ReadOutcome, verify_read};
use serde_json::json;
use store::{Store, payload};

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
fn what_is_read_again_is_in_proportion_to_the_car_in_any_order() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(3000));
    let car = export(&mut store, &root, false).expect("a held root");
    let mut frames = frames(&car);
    let blocks = frames.split_off(1);
    let shuffled = {
        // Neighbours get far away from each other.
        let mut order: Vec<_> = (0..blocks.len()).collect();
        order.sort_by_key(|i| i * 7919 % 10_007);
        order.into_iter().map(|i| blocks[i].clone()).collect::<Vec<_>>()
    };
    for (order, blocks, most) in [("exported", &blocks, 3), ("shuffled", &shuffled, 5)] {
        let car = [frames[0].clone(), blocks.concat()].concat();
        let imported = import(&car, 4096).expect("a CAR");
        assert_eq!(imported.pages, store.pages, "{order}");
        let limit = most * car.len() as u64;
        assert!(imported.read_again <= limit, "{order}: {} bytes for {}", imported.read_again, car.len());
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
    // The longest answer across the middle has two deep descents.
    let middle = 1u64 << 51;
    let request = json!({"profile": "core.read/v0alpha1", "root": below.cid().text(),
        "query": {"kind": "list_range", "start": middle - 1000, "end": middle + 9000}});
    let request = request.to_string();
    let operation = Operation::read(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    let result = store.serve(operation).expect("a range");
    let outcome = verify_read(request.as_bytes(), result.as_bytes());
    assert!(matches!(outcome, Ok(ReadOutcome::Range { span, .. }) if span.segments.len() == 10_000));
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

/// CARs of payloads name nothing, or the empty payload, since CARv1 demands a root.
#[test]
fn a_car_of_payloads_names_no_root() {
    let empty = Cid::of_payload(0x55, Function::Identity, b"");
    assert_eq!(payload_car_header(), car_header(&[empty]));
    // A long payload is read in several parts.
    let long = [7; 5000];
    let long_cid = Cid::of_payload(0x55, Function::Sha2_256, &Suite::Sha2_256.digest(&long).0);
    let short = [2, 3].map(|n: u64| framed(&payload(n), &n.to_be_bytes())).concat();
    let blocks = [framed(&long_cid, &long), short].concat();
    for (named, roots) in [
        (vec![], vec![]),
        (vec![empty], vec![]),
        (vec![empty, empty], vec![empty, empty]),
        (vec![payload(2)], vec![payload(2)]),
    ] {
        for chunk_bytes in [1, 7, 1000, 10_000] {
            let mut car = [&car_header(&named)[..], &blocks].concat();
            let reader = read(&car, chunk_bytes).expect("a CAR");
            assert_eq!((reader.roots(), reader.blocks()), (Some(&roots[..]), 3));
            let at = car_header(&named).len() + 4000;
            car[at] ^= 1;
            assert!(refusal(&car).contains("another hash"));
        }
    }
}

#[test]
fn a_reader_counts_the_memory_of_its_index() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(300));
    let held = |car: &[u8]| read(car, 4096).expect("a CAR").held_bytes();
    let [nodes, both] = [false, true].map(|payloads| held(&export(&mut store, &root, payloads).expect("a held root")));
    let blocks = (0..300u64).map(|n| framed(&payload(n), &n.to_be_bytes())).collect::<Vec<_>>().concat();
    let payloads = held(&[payload_car_header(), &blocks].concat());
    assert_eq!(both, nodes + payloads);
    assert!((40 * 599..400 * 599).contains(&nodes) && (40 * 300..400 * 300).contains(&payloads), "{nodes} {payloads}");
}

#[test]
fn lists_in_memory_become_a_car_of_their_nodes() {
    let list = |n: u64, size| {
        let elements: Vec<_> = (0..n).map(|i| (payload(i), size)).collect();
        Snapshot::list(Suite::Blake3, &elements).expect("a list")
    };
    let lists = [list(0, 1), list(1, 7), list(1000, 3)];
    let car = lists_car(&lists).expect("lists");
    let roots = lists.iter().map(Snapshot::root).collect();
    assert_eq!(check(&car, 999), Ok((roots, 1001)));
    let imported = import(&car, 999).expect("a CAR");
    for page in lists.iter().flat_map(Snapshot::pages) {
        assert_eq!(imported.pages.get(&page.digest()), Some(&page.to_bytes()));
    }
    let map = Snapshot::map(Suite::Blake3, Arcs::default()).expect("a map");
    let refused = lists_car(&[list(1, 7), map]).expect_err("not a list").to_string();
    assert!(refused.contains("is not a list"), "{refused}");
}
