//! Any bytes as a CAR, in pieces of any size: never a panic, and what is taken has whole trees with sound pages.
#![no_main]

use std::collections::HashMap;

use coregw_ops::car::{Limits, Reader};
use coregw_core::{Digest, Page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, car)) = data.split_first() else {
        return;
    };
    let mut reader = Reader::new(Limits { payload_bytes: 1 << 16, blocks: 1000 });
    for piece in car.chunks(usize::from(piece) + 1) {
        if reader.feed(piece).is_err() {
            return;
        }
    }
    let Ok(mut archive) = reader.finish() else {
        return;
    };
    let part = |start: u64, end: u64| car[start as usize..(end as usize).min(car.len())].to_vec();
    loop {
        match archive.check() {
            Err(_) => return,
            Ok(None) => break,
            Ok(Some(span)) => archive.supply(span.start, part(span.start, span.end)),
        }
    }
    let mut pages: HashMap<Digest, Vec<u8>> = HashMap::new();
    loop {
        match archive.next_pages(1).expect("a checked CAR has pages") {
            Err(span) => archive.supply(span.start, part(span.start, span.end)),
            Ok(next) if next.is_empty() => break,
            Ok(next) => pages.extend(next),
        }
    }
    let mut rest: Vec<_> = archive.found().collect();
    let mut seen = 0;
    while let Some(root) = rest.pop() {
        let bytes = &pages[&root.digest];
        let page = Page::parse(bytes, root.kind, root.suite, &root.digest).expect("a page made here is one");
        assert_eq!(page.to_bytes(), *bytes);
        seen += 1;
        if seen < 1000 {
            rest.extend(page.stubs().map(|digest| coregw_core::RootCid { digest, ..root }));
        }
    }
});
