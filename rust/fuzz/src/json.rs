//! Any bytes as the bodies of requests and results, as CIDs and as paths: never a panic.
#![no_main]

use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::{Cid, Key, PageCache, Snapshot, Suite};
use coregw_ops::{Build, Mutation, Need, Operation, prooflist};
use libfuzzer_sys::fuzz_target;

/// Runs an operation on a store that has the record of every root and no page.
fn run(op: coregw_core::Result<Operation>) {
    let Ok(mut op) = op else { return };
    for _ in 0..100 {
        match op.run(1000) {
            Ok(Some(Need::Roots(roots))) => drop(op.supply_roots(&vec![true; roots.len()])),
            Ok(Some(Need::Pages(pages))) => drop(op.supply_pages(&vec![None::<Vec<u8>>; pages.len()])),
            Ok(Some(Need::Budget)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    let _ = op.result();
}

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Codec::parse(text);
        if let Ok(cid) = Cid::from_text(text) {
            assert_eq!(Cid::from_text(&cid.text()), Ok(cid));
            assert_eq!(Cid::from_bytes(cid.as_bytes()), Ok(cid));
        }
        if let Ok(key) = Key::from_text(text) {
            assert_eq!(key.text(), text);
            assert_eq!(Key::from_segments(&text.split('/').collect::<Vec<_>>()), Ok(key));
        }
    }
    let _ = Build::request(data);
    let cache = Arc::new(PageCache::new(1 << 20, 0));
    run(Operation::resolve(Arc::clone(&cache), data, 100));
    run(Operation::read(Arc::clone(&cache), data));
    run(Operation::map_proof(Arc::clone(&cache), data));
    run(Operation::scan(Arc::clone(&cache), data));
    let empty = Snapshot::list(Suite::Sha2_256, &[]).expect("a list").root();
    let _ = Mutation::new(cache, &empty.cid(), data);
    let middle = data.iter().position(|b| *b == 0xff).unwrap_or(data.len() / 2);
    let (request, result) = (&data[..middle], data.get(middle + 1..).unwrap_or_default());
    let _ = prooflist::verify_resolve(request, result);
    let _ = prooflist::verify_read(request, result);
    let _ = prooflist::verify_map_proof(request, result);
    let _ = prooflist::verify_scan(request, result);
});
