//! An export that continues another one, and a reader that forgets what came after the last whole block.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cars::{LIMITS, arcs, export, frames, list, read};
use crate::store::{Store, payload};
use coregw_core::payload::Function;
use coregw_core::{Cid, Error, RootCid, Suite};
use coregw_ops::Operation;
use coregw_ops::car::{BlockPlace, CarReader, block_head, payload_car_header};

fn continued(store: &mut Store, root: &RootCid, payloads: bool, after: BlockPlace) -> Result<Vec<u8>, Error> {
    store.output.clear();
    let operation = Operation::export_car(Arc::clone(&store.cache), *root, payloads, Some(after), 5000);
    store.serve(operation)?;
    Ok(std::mem::take(&mut store.output))
}

fn place(cid: Cid, occurrence: u64) -> BlockPlace {
    BlockPlace { cid, occurrence }
}

/// A root with a nested list and a nested map, of several outputs.
fn nested(store: &mut Store) -> RootCid {
    let elements = list(store, Suite::Blake3, &(0..300).map(payload).collect::<Vec<_>>());
    let inner = store.build(Suite::Sha2_256, &arcs(200));
    let mut outer = arcs(400);
    outer.extend([("a/list".into(), elements.cid()), ("b".into(), inner.cid())]);
    store.build(Suite::Sha2_256, &outer)
}

#[test]
fn an_export_continues_after_each_of_its_blocks() {
    let mut store = Store::new(1 << 20, 1000);
    let root = nested(&mut store);
    for payloads in [false, true] {
        let car = export(&mut store, &root, payloads).expect("a held root");
        let frames = frames(&car);
        let mut reader = CarReader::new(LIMITS);
        reader.feed(&frames[0]).expect("a header");
        let mut is_repeated = false;
        for (at, frame) in frames.iter().enumerate().skip(1) {
            reader.feed(frame).expect("a block");
            if at % 7 == 0 || at + 1 == frames.len() {
                let after = reader.last_block().expect("a block");
                is_repeated |= after.occurrence > 1;
                let rest = continued(&mut store, &root, payloads, after).expect("the rest");
                let expected = [&frames[0][..], &frames[at + 1..].concat()].concat();
                assert!(rest == expected, "{} {} after block {at}, {after:?}", rest.len(), expected.len());
            }
        }
        assert!(is_repeated, "nested trees share leaves with the outer one");
    }
}

#[test]
fn an_export_after_another_block_is_refused_without_output() {
    let mut store = Store::new(1 << 20, 1000);
    let root = nested(&mut store);
    for other in [payload(9999), store.build(Suite::Sha2_256, &BTreeMap::new()).cid()] {
        let error = continued(&mut store, &root, true, place(other, 1)).expect_err("no such block");
        assert!(matches!(&error, Error::Input { what, .. } if what.contains("no such block")), "{error}");
        assert!(store.output.is_empty());
    }
    // Without payloads, a payload is none of them, and the root is one once.
    assert!(continued(&mut store, &root, false, place(payload(1), 1)).is_err());
    assert!(continued(&mut store, &root, false, place(root.cid(), 2)).is_err());
}

#[test]
fn a_reader_goes_on_after_the_last_whole_block() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(40));
    let car = export(&mut store, &root, true).expect("a held root");
    let mut ends = vec![0];
    for frame in frames(&car) {
        ends.push(ends[ends.len() - 1] + frame.len());
    }
    for cut in (0..car.len()).step_by(5) {
        let mut reader = CarReader::new(LIMITS);
        reader.feed(&car[..cut]).expect("the beginning");
        let whole = ends.iter().rposition(|&end| end <= cut).expect("0");
        assert_eq!(reader.rewind(), ends[whole] as u64);
        assert_eq!((reader.bytes(), reader.blocks() as usize), (ends[whole] as u64, whole.saturating_sub(1)));
        reader.feed(&car[ends[whole]..]).expect("the rest");
        reader.check_end().expect("the end");
        store.car.clone_from(&car);
        let checked = store.serve(Operation::check_car(reader)).expect("complete trees");
        let expected = store.serve(Operation::check_car(read(&car, 999).expect("a CAR"))).expect("complete trees");
        assert_eq!(checked, expected);
    }
}

#[test]
fn a_reader_goes_on_after_a_payload_that_was_wrong() {
    let header = payload_car_header();
    let (good, bad) = ([block_head(&payload(1), 8), 1u64.to_be_bytes().to_vec()].concat(), 7u64.to_be_bytes());
    let mut reader = CarReader::new(LIMITS);
    reader.feed(&[header, &good, &block_head(&payload(2), 8), &bad].concat()).expect_err("another hash");
    assert_eq!(reader.rewind(), (header.len() + good.len()) as u64);
    assert_eq!(reader.last_block().map(|place| place.cid), Some(payload(1)));
    reader.feed(&[block_head(&payload(2), 8), 2u64.to_be_bytes().to_vec()].concat()).expect("the payload");
    assert_eq!((reader.blocks(), reader.last_block().map(|place| place.cid)), (2, Some(payload(2))));
}

#[test]
fn the_last_block_is_counted_among_the_whole_ones_with_its_cid() {
    let one = |i: u64| [block_head(&payload(i), 8), i.to_be_bytes().to_vec()].concat();
    let last = |reader: &CarReader| reader.last_block().map(|place| (place.cid, place.occurrence));
    let mut reader = CarReader::new(LIMITS);
    reader.feed(&[payload_car_header(), &one(1), &one(2), &one(1)].concat()).expect("payloads");
    assert_eq!(last(&reader), Some((payload(1), 2)));
    // The third is not complete.
    reader.feed(&one(1)[..one(1).len() - 1]).expect("a part");
    assert_eq!(last(&reader), Some((payload(1), 2)));
}

#[test]
fn a_payload_in_parts_begins_again() {
    let data = vec![7; 1000];
    let cid = Cid::of_payload(0x55, Function::Sha2_256, &Suite::Sha2_256.digest(&data).0);
    let head = [payload_car_header(), &block_head(&cid, 1000)].concat();
    for part in [200, 500, 999] {
        let mut reader = CarReader::new(LIMITS);
        reader.feed(&head).expect("a head");
        reader.feed(&vec![0xff; part]).expect("a part");
        assert_eq!(reader.unfinished(), Some((&cid, head.len() as u64)));
        reader.restart_unfinished();
        assert_eq!(reader.bytes(), head.len() as u64);
        reader.feed(&data).expect("the payload");
        assert_eq!((reader.unfinished(), reader.blocks()), (None, 1));
    }
}
