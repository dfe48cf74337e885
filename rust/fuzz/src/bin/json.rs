//! Fuzz target: any bytes as request and result bodies. They are strict JSON exactly where a second checker says so, and
//! nothing else is a request. No panic.
#![no_main]

use std::sync::Arc;

use coregw_core::{Arcs, Cid, OneThread, PageCache, RootCid, Snapshot, Suite, Window};
use coregw_fuzz::strict_json::is_strict;
use coregw_ops::json::{self, Integers};
use coregw_ops::{
    DiffRequest, MapProofForm, Need, Operation, Progress, read_get_batch, read_has_batch, verify_map_proof,
    verify_read, verify_resolve, verify_scan, verify_transition,
};
use libfuzzer_sys::fuzz_target;

/// Drives an operation on a store that holds the record of every root but no pages.
fn drive(strict: bool, operation: coregw_core::Result<Operation>) {
    let Ok(mut operation) = operation else { return };
    assert!(strict, "a request that is not strict JSON");
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
    let strict = is_strict(data, false);
    assert_eq!(json::check(data, Integers::Unsigned53).is_ok(), strict, "{data:02x?}");
    assert_eq!(json::check(data, Integers::Signed64).is_ok(), is_strict(data, true), "{data:02x?}");
    if let Ok((request, result)) = json::envelope(data) {
        assert!(!request.is_empty() && !result.is_empty() && data.len() > request.len() + result.len());
    }
    let cache = Arc::new(PageCache::new(1 << 20, 0));
    drive(strict, Operation::resolve(Arc::clone(&cache), data));
    drive(strict, Operation::read(Arc::clone(&cache), data));
    drive(strict, Operation::map_proof(Arc::clone(&cache), data, MapProofForm::Result));
    drive(strict, Operation::scan(Arc::clone(&cache), data));
    let empty = Snapshot::list(Suite::Sha2_256, &[]).expect("a list").root();
    drive(strict, Operation::mutate(Arc::clone(&cache), &empty.cid(), data));
    let one_thread: fn(usize, &(dyn Fn(usize) + Sync)) = |count, work| (0..count).for_each(work);
    let batch = Operation::resolve_batch(Arc::clone(&cache), data, 1 << 20, one_thread);
    drive(strict, batch.map_err(|error| error.error));
    drive(strict, Operation::create_root(cache, data, &OneThread));
    if let Ok(cids) = read_has_batch(data) {
        assert!(strict && cids.len() <= 4096);
    }
    if let Ok(cids) = read_get_batch(data) {
        assert!(strict && cids.len() <= 4096 && cids.iter().all(|cid| cid.root().is_none()));
    }
    let middle = data.iter().position(|b| *b == 0xff).unwrap_or(data.len() / 2);
    let (request, result) = (&data[..middle], data.get(middle + 1..).unwrap_or_default());
    let _ = verify_resolve(request, result);
    let _ = verify_read(request, result);
    let _ = verify_map_proof(request, result);
    let _ = verify_scan(request, result);
    let _ = verify_transition(request, result);
    let maps =
        [Suite::Sha2_256, Suite::Blake3].map(|suite| Snapshot::map(suite, Arcs::default()).expect("a map").root());
    let maps: Vec<Cid> = maps.iter().map(RootCid::cid).collect();
    let everything = Window::new::<&str, &str>(&[], None).expect("a window");
    assert!(DiffRequest::new(&maps[0], &maps[1], everything.clone(), 10).is_err());
    let diff = DiffRequest::new(&maps[0], &maps[0], everything, 10).expect("a request");
    // Two empty maps have no difference, so nothing else is a result.
    if let Ok(found) = diff.verify(result) {
        assert!(found.entries.is_empty() && !found.more);
    }
});
