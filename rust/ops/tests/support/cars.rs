//! CARs of stored trees, their checks and imports, and their bytes.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Cid, Error, Kind, RootCid, Suite, varint};
use coregw_ops::Operation;
use coregw_ops::car::{CarLimits, CarReader, block_head};
use serde_json::{Value, json};

use crate::store::{Store, payload, root_of};

pub const LIMITS: CarLimits = CarLimits { payload_bytes: 1 << 20, blocks: 1 << 20 };

pub fn arcs(n: u64) -> BTreeMap<String, Cid> {
    (0..n).map(|i| (format!("logs/{}/2024-{i:06}.txt", i % 7), payload(i))).collect()
}

/// A list of these targets, grown on an empty map of the suite.
pub fn list(store: &mut Store, suite: Suite, targets: &[Cid]) -> RootCid {
    let base = store.build(suite, &BTreeMap::new());
    let change = |(i, cid): (usize, &Cid)| json!({"index": i, "after": {"target": cid.text(), "size": 1 + i % 300}});
    let changes: Vec<_> = targets.iter().enumerate().map(change).collect();
    let receipt = store.mutate(&base, &json!({"deltas": [{"kind": "list", "changes": changes}]})).expect("a list");
    let root = Cid::from_text(receipt["new_root"].as_str().expect("text")).expect("a CID");
    root.root().expect("a root")
}

/// The export of a root, with 8 bytes for each payload.
pub fn export(store: &mut Store, root: &RootCid, payloads: bool) -> Result<Vec<u8>, Error> {
    store.output.clear();
    let operation = Operation::export_car(Arc::clone(&store.cache), *root, payloads, None, 5000);
    store.serve(operation)?;
    Ok(std::mem::take(&mut store.output))
}

pub fn read(car: &[u8], chunk_bytes: usize) -> Result<CarReader, Error> {
    let mut reader = CarReader::new(LIMITS);
    for chunk in car.chunks(chunk_bytes) {
        reader.feed(chunk)?;
    }
    assert_eq!(reader.bytes(), car.len() as u64);
    Ok(reader)
}

/// The result of a check: the complete roots and the number of missing payloads.
pub fn check(car: &[u8], chunk_bytes: usize) -> Result<(Vec<RootCid>, u64), Error> {
    let mut store = Store::new(0, u64::MAX);
    store.car = car.to_vec();
    let checked = store.serve(Operation::check_car(read(car, chunk_bytes)?))?;
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    assert!(store.pages.is_empty() && store.payloads.is_empty());
    let roots = checked["roots"].as_array().expect("roots").iter().map(root_of).collect();
    Ok((roots, checked["missing_payloads"].as_u64().expect("a number")))
}

/// A store into which a CAR was imported.
pub fn import(car: &[u8], chunk_bytes: usize) -> Result<Store, Error> {
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
pub fn frames(car: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut frames) = (0, Vec::new());
    while at < car.len() {
        let (len, n) = varint::read(&car[at..]).expect("a varint");
        frames.push(car[at..at + n + len as usize].to_vec());
        at += n + len as usize;
    }
    frames
}

pub fn refusal(car: &[u8]) -> String {
    match check(car, 777) {
        Err(Error::Input { what, .. }) => what,
        Err(other) => panic!("refused as {other:?}"),
        Ok(_) => panic!("the CAR was accepted"),
    }
}

/// A block of any bytes, named as a root of that kind.
pub fn block(kind: Kind, bytes: &[u8]) -> (RootCid, Vec<u8>) {
    let root = RootCid { kind, suite: Suite::Sha2_256, digest: Suite::Sha2_256.digest(bytes) };
    (root, [&block_head(&root.cid(), bytes.len() as u64), bytes].concat())
}

pub fn header(root: &RootCid) -> Vec<u8> {
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

pub fn framed(cid: &Cid, data: &[u8]) -> Vec<u8> {
    [&block_head(cid, data.len() as u64)[..], data].concat()
}
