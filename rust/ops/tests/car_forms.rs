//! CARs in other forms than an export: with other headers, of version 2, of payloads, and of lists in memory.

#[path = "support/store.rs"]
mod store;

#[path = "support/cars.rs"]
mod cars;

use cars::{LIMITS, arcs, block, check, export, framed, frames, header, import, read, refusal};
use coregw_core::payload::Function;
use coregw_core::{Arcs, Cid, Error, InputCode, Kind, Snapshot, Suite};
use coregw_ops::car::{CarLimits, CarReader, block_head, car_header, lists_car, payload_car_header};
use store::{Store, payload};

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
