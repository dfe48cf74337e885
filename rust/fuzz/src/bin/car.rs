//! Fuzz target: any bytes as a CAR, in chunks of any size. No panic, and an import that succeeds stores complete trees
//! of valid pages.
#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use coregw_core::{Digest, Page, PageCache, RootCid};
use coregw_ops::car::{CarLimits, CarReader};
use coregw_ops::{Need, Operation, Progress};
use libfuzzer_sys::fuzz_target;

/// Runs an import and returns the pages and roots that it stores; `None` if it fails.
fn import(reader: CarReader, car: &[u8]) -> Option<(HashMap<Digest, Vec<u8>>, Vec<RootCid>)> {
    let mut operation = Operation::import_car(Arc::new(PageCache::new(0, 0)), reader);
    let (mut stored, mut recorded) = (HashMap::new(), Vec::new());
    loop {
        match operation.poll(1).ok()? {
            Progress::Done(_) => return Some((stored, recorded)),
            Progress::Needs(Need::Bytes(range)) => {
                let bytes = &car[range.start as usize..(range.end as usize).min(car.len())];
                operation.supply_bytes(bytes.to_vec()).expect("the operation needs bytes");
            }
            Progress::Needs(Need::Store { pages, roots, .. }) => {
                stored.extend(pages);
                recorded.extend(roots);
            }
            Progress::Needs(_) => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&chunk_bytes, car)) = data.split_first() else {
        return;
    };
    let mut reader = CarReader::new(CarLimits { payload_bytes: 1 << 16, blocks: 1000 });
    for chunk in car.chunks(usize::from(chunk_bytes) + 1) {
        if reader.feed(chunk).is_err() {
            return;
        }
    }
    let Some((pages, mut rest)) = import(reader, car) else {
        return;
    };
    let mut seen = 0;
    while let Some(root) = rest.pop() {
        let bytes = &pages[&root.digest];
        let page = Page::parse(bytes, root.kind, root.suite, &root.digest).expect("an imported page is valid");
        assert_eq!(page.to_bytes(), *bytes);
        seen += 1;
        if seen < 1000 {
            rest.extend(page.stubs().map(|digest| RootCid { digest, ..root }));
        }
    }
});
