//! Fuzz target: any bytes as request and result bodies, CIDs and paths. No panic.
#![no_main]

use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::{Cid, Key, PageCache, Snapshot, Suite};
use coregw_ops::{
    Need, Operation, Progress, verify_map_proof, verify_read, verify_resolve, verify_scan, verify_transition,
};
use libfuzzer_sys::fuzz_target;

/// Drives an operation on a store that holds the record of every root but no pages.
fn drive(operation: coregw_core::Result<Operation>) {
    let Ok(mut operation) = operation else { return };
    for _ in 0..100 {
        match operation.poll(1000) {
            Ok(Progress::Needs(Need::Roots(roots))) => {
                operation.supply_roots(vec![true; roots.len()]).expect("the operation needs roots");
            }
            Ok(Progress::Needs(Need::Pages(_))) | Ok(Progress::Done(_)) | Err(_) => return,
            Ok(Progress::Needs(_)) => {}
        }
    }
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
    let cache = Arc::new(PageCache::new(1 << 20, 0));
    drive(Operation::resolve(Arc::clone(&cache), data, 100));
    drive(Operation::read(Arc::clone(&cache), data));
    drive(Operation::map_proof(Arc::clone(&cache), data));
    drive(Operation::scan(Arc::clone(&cache), data));
    let empty = Snapshot::list(Suite::Sha2_256, &[]).expect("a list").root();
    drive(Operation::mutate(Arc::clone(&cache), &empty.cid(), data));
    drive(Operation::create_root(cache, data));
    let middle = data.iter().position(|b| *b == 0xff).unwrap_or(data.len() / 2);
    let (request, result) = (&data[..middle], data.get(middle + 1..).unwrap_or_default());
    let _ = verify_resolve(request, result);
    let _ = verify_read(request, result);
    let _ = verify_map_proof(request, result);
    let _ = verify_scan(request, result);
    let _ = verify_transition(request, result);
});
