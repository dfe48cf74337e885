//! The queue of reads, step by step: which requests a visit of the store is for, and what each gets.

use std::sync::Arc;
use std::thread;

use coregw_core::{Digest, PageCache, PageSource, RootCid};
use coregw_front::reads::{Batch, Failure, Found, FoundPage, HeldPayload, MAX_MERGED_PAGES, Reads, Reply};
use coregw_ops::{Lookahead, WantedPage};
use futures_util::FutureExt;

#[path = "support/store.rs"]
mod store;

use store::{Stored, map, target};

/// A queue, what it puts pages into, a store of three maps with one page each, and their roots.
fn queue() -> (Arc<Reads>, Arc<PageCache>, Stored, Vec<RootCid>) {
    let cache = Arc::new(PageCache::new(1 << 20, 100));
    let mut stored = Stored::default();
    let roots = (1..4).map(|count| stored.add(&map(count))).collect();
    (Reads::new(Arc::clone(&cache), true), cache, stored, roots)
}

fn wanted(root: RootCid) -> WantedPage {
    WantedPage { root, digest: root.digest }
}

fn next(reads: &Reads) -> Batch {
    reads.next().expect("a batch")
}

fn outcome<T>(reply: Reply<T>) -> Option<Result<T, Failure>> {
    reply.found().now_or_never()
}

fn is_page(found: &FoundPage, digest: Digest) -> bool {
    matches!(found, FoundPage::Parsed(Ok(page)) if page.digest() == digest)
}

/// Checks that a reply has these pages, None for a missing one.
fn check(reply: Reply<Vec<FoundPage>>, expected: &[Option<RootCid>]) {
    let found = outcome(reply).expect("an answer").expect("no failure");
    assert_eq!(found.len(), expected.len());
    for (page, root) in found.iter().zip(expected) {
        match root {
            Some(root) => assert!(is_page(page, root.digest), "{page:?}"),
            None => assert!(matches!(page, FoundPage::Missing), "{page:?}"),
        }
    }
}

#[test]
fn pages_of_several_requests_are_read_once_and_kept() {
    let (reads, cache, stored, roots) = queue();
    let [a, b, c] = [roots[0], roots[1], roots[2]];
    let first = reads.pages(&[wanted(a), wanted(b)]);
    let second = reads.pages(&[wanted(b), wanted(c), wanted(a)]);
    let raw = reads.stored_pages(&[c.digest]);
    let batch = next(&reads);
    assert_eq!(batch.pages, [a.digest, b.digest, c.digest]);
    reads.supply(batch.id, stored.read(&batch));
    check(first, &[Some(a), Some(b)]);
    check(second, &[Some(b), Some(c), Some(a)]);
    match &outcome(raw).expect("an answer").expect("no failure")[..] {
        [FoundPage::Bytes(bytes)] => assert_eq!(bytes[..], stored.pages[&c.digest][..]),
        other => panic!("{other:?}"),
    }
    assert!(cache.page(&a.digest).is_some());
    assert_eq!(reads.figures(), (1, 3));
}

#[test]
fn a_page_in_flight_is_shared_but_not_that_it_was_missing() {
    let (reads, _, mut stored, roots) = queue();
    let [a, b] = [roots[0], roots[1]];
    let page = stored.pages.remove(&b.digest).expect("a page");
    let first = reads.pages(&[wanted(a), wanted(b)]);
    let batch = next(&reads);
    let found = stored.read(&batch);
    let early = reads.pages(&[wanted(a), wanted(b)]);
    stored.pages.insert(b.digest, page);
    reads.supply(batch.id, found);
    check(first, &[Some(a), None]);
    let again = next(&reads);
    assert_eq!(again.pages, [b.digest]);
    reads.supply(again.id, stored.read(&again));
    check(early, &[Some(a), Some(b)]);
}

#[test]
fn a_failure_is_told_to_the_request_that_it_concerns() {
    let (reads, _, mut stored, roots) = queue();
    let [a, b] = [roots[0], roots[1]];
    let (first, second) = (reads.pages(&[wanted(a)]), reads.pages(&[wanted(b)]));
    let sizes = reads.sizes(vec![vec![1]]);
    let shared = next(&reads);
    reads.supply(shared.id, Err(Failure::Damaged("a row".to_owned())));
    let mut failed = 0;
    for _ in 0..3 {
        let alone = next(&reads);
        let is_bad = alone.pages == [b.digest];
        assert_eq!(alone.pages.len() + alone.sizes.len(), 1);
        failed += usize::from(is_bad);
        let found = if is_bad { Err(Failure::Damaged("a row".to_owned())) } else { stored.read(&alone) };
        reads.supply(alone.id, found);
    }
    assert_eq!(failed, 1);
    check(first, &[Some(a)]);
    assert_eq!(outcome(second).map(|found| found.is_err()), Some(true));
    assert_eq!(outcome(sizes), Some(Ok(vec![None])));
    // That the store does not answer concerns all.
    stored.failure = Some(Failure::Unavailable("away".to_owned()));
    let (first, second) = (reads.pages(&[wanted(a)]), reads.pages(&[wanted(b)]));
    let batch = next(&reads);
    reads.supply(batch.id, stored.read(&batch));
    for reply in [first, second] {
        assert_eq!(outcome(reply).and_then(Result::err), stored.failure);
    }
    // So is an answer of another length.
    let reply = reads.pages(&[wanted(a)]);
    let batch = next(&reads);
    reads.supply(batch.id, Ok(Found::default()));
    assert_eq!(outcome(reply).and_then(Result::err), Some(Failure::Internal));
}

#[test]
fn large_requests_are_alone() {
    let (reads, _, mut stored, roots) = queue();
    let tree = map(20_000);
    let root = stored.add(&tree);
    let all: Vec<WantedPage> = tree.pages().map(|page| WantedPage { root, digest: page.digest() }).collect();
    assert!(all.len() > MAX_MERGED_PAGES);
    let (large, small) = (reads.pages(&all), reads.pages(&[wanted(roots[0])]));
    let mut sizes = Vec::new();
    for _ in 0..2 {
        let batch = next(&reads);
        sizes.push(batch.pages.len());
        reads.supply(batch.id, stored.read(&batch));
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [1, all.len()]);
    check(small, &[Some(roots[0])]);
    let found = outcome(large).expect("an answer").expect("no failure");
    assert!(found.iter().zip(&all).all(|(page, wanted)| is_page(page, wanted.digest)));
}

#[test]
fn a_damaged_page_is_an_error_of_its_own() {
    let (reads, cache, mut stored, roots) = queue();
    let [a, b] = [roots[0], roots[1]];
    stored.pages.insert(b.digest, stored.pages[&a.digest].clone());
    let reply = reads.pages(&[wanted(a), wanted(b)]);
    let batch = next(&reads);
    reads.supply(batch.id, stored.read(&batch));
    let found = outcome(reply).expect("an answer").expect("no failure");
    assert!(is_page(&found[0], a.digest));
    assert!(matches!(&found[1], FoundPage::Parsed(Err(coregw_core::Error::Damaged { .. }))));
    assert!(cache.page(&b.digest).is_none());
}

#[test]
fn requests_that_nobody_waits_for_are_not_read() {
    let (reads, _, stored, roots) = queue();
    let [a, b] = [roots[0], roots[1]];
    drop(reads.pages(&[wanted(a)]));
    drop(reads.pages(&[wanted(b), wanted(a)]));
    drop(reads.sizes(vec![vec![1]]));
    drop(reads.chunk(vec![1], 0..1));
    let reply = reads.pages(&[wanted(b)]);
    let batch = next(&reads);
    assert_eq!(batch, Batch { id: batch.id, pages: vec![b.digest], ..Batch::default() });
    reads.supply(batch.id, stored.read(&batch));
    check(reply, &[Some(b)]);
}

#[test]
fn records_of_roots_are_kept_unless_they_expire_while_they_are_read() {
    let (reads, cache, mut stored, roots) = queue();
    let [a, b, c] = [roots[0], roots[1], roots[2]];
    stored.roots.insert(b, false);
    stored.roots.remove(&c);
    let mut asked = Box::pin(reads.roots(vec![a, b, c], Vec::new()));
    let mut others = Box::pin(reads.roots(vec![a], Vec::new()));
    assert!(asked.as_mut().now_or_never().is_none() && others.as_mut().now_or_never().is_none());
    let batch = next(&reads);
    assert_eq!(batch.roots, [a, b, c]);
    reads.supply(batch.id, stored.read(&batch));
    assert_eq!(asked.now_or_never(), Some(Ok(vec![Some(true), Some(false), None])));
    assert_eq!(others.now_or_never(), Some(Ok(vec![Some(true)])));
    assert_eq!([a, b, c].map(|root| cache.is_held(&root)), [Some(true), None, None]);
    cache.expire();
    let mut asked = Box::pin(reads.roots(vec![a], Vec::new()));
    assert!(asked.as_mut().now_or_never().is_none());
    let batch = next(&reads);
    let found = stored.read(&batch);
    cache.expire();
    reads.supply(batch.id, found);
    assert_eq!(asked.now_or_never(), Some(Ok(vec![Some(true)])));
    assert_eq!(cache.is_held(&a), None);
}

#[test]
fn pages_are_read_early_together_with_the_records() {
    let (reads, cache, stored, roots) = queue();
    let [a, b] = [roots[0], roots[1]];
    let lookahead = vec![Lookahead { root: a, keys: vec![b"key".to_vec()] }, Lookahead { root: b, keys: Vec::new() }];
    let mut asked = Box::pin(reads.roots(vec![a, b], lookahead));
    assert!(asked.as_mut().now_or_never().is_none());
    let batch = next(&reads);
    assert_eq!((&batch.roots[..], &batch.pages[..]), (&[a, b][..], &[b.digest][..]));
    assert_eq!(batch.descents, [(a.digest, vec![b"key".to_vec()])]);
    let early = vec![(a.digest, stored.pages[&a.digest].clone()), (b.digest, b"no page".to_vec())];
    let found = stored.read(&batch).map(|found| Found { early, ..found });
    reads.supply(batch.id, found);
    assert_eq!(asked.now_or_never(), Some(Ok(vec![Some(true); 2])));
    assert!(cache.page(&a.digest).is_some() && cache.page(&b.digest).is_some());
}

#[test]
fn payloads_come_whole_if_they_are_small_and_else_in_chunks() {
    let (reads, _, mut stored, _) = queue();
    let small = stored.add_payload(1, b"small".to_vec()).multihash().to_vec();
    let large = stored.add_payload(2, vec![7; 100 << 10]).multihash().to_vec();
    let absent = target(3).multihash().to_vec();
    let first = reads.payloads(vec![small.clone(), large.clone()]);
    let second = reads.payloads(vec![absent.clone()]);
    let sizes = reads.sizes(vec![absent, small]);
    // Many payloads are read beside nothing else, as chunks are.
    for expected in [(2, 0), (1, 2)] {
        let batch = next(&reads);
        assert_eq!((batch.payloads.len(), batch.sizes.len()), expected);
        reads.supply(batch.id, stored.read(&batch));
    }
    let found = outcome(first).expect("an answer").expect("no failure");
    assert_eq!(
        found,
        [
            Some(HeldPayload { size: 5, bytes: Some(b"small".to_vec().into()) }),
            Some(HeldPayload { size: 100 << 10, bytes: None }),
        ]
    );
    assert_eq!(outcome(second), Some(Ok(vec![None])));
    assert_eq!(outcome(sizes), Some(Ok(vec![None, Some(5)])));
    let chunk = reads.chunk(large, 10..20);
    let batch = next(&reads);
    reads.supply(batch.id, stored.read(&batch));
    assert_eq!(outcome(chunk), Some(Ok(vec![7; 10].into())));
}

#[test]
fn chunks_delay_no_pages_and_pages_no_chunks() {
    let (reads, _, mut stored, roots) = queue();
    let large = stored.add_payload(2, vec![7; 100 << 10]).multihash().to_vec();
    let chunks: Vec<_> = (0..9).map(|at| reads.chunk(large.clone(), at..at + 1)).collect();
    let mut shapes = Vec::new();
    for root in roots.iter().chain(&roots) {
        let page = reads.pages(&[wanted(*root)]);
        let batch = next(&reads);
        shapes.push((batch.pages.len(), batch.chunks.len()));
        reads.supply(batch.id, stored.read(&batch));
        drop(page);
    }
    assert_eq!(shapes, [(0, 4), (1, 0), (0, 4), (1, 0), (0, 1), (1, 0)]);
    assert!(chunks.into_iter().all(|chunk| outcome(chunk) == Some(Ok(vec![7].into()))));
}

#[test]
fn threads_share_what_waits_and_end_when_the_queue_does() {
    let (reads, _, stored, roots) = queue();
    let waiting = reads.pages(&[wanted(roots[0])]);
    let in_flight = next(&reads);
    let gathered = reads.pages(&[wanted(roots[1])]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(batch) = reads.next() {
                    reads.supply(batch.id, stored.read(&batch));
                }
            });
        }
        let found = wait_for(gathered);
        assert!(is_page(&found.expect("no failure")[0], roots[1].digest));
        reads.close();
    });
    reads.supply(in_flight.id, stored.read(&in_flight));
    let closed = Failure::Unavailable("the store is closed".to_owned());
    assert_eq!(outcome(waiting).and_then(Result::err), Some(closed.clone()));
    assert_eq!(outcome(reads.pages(&[wanted(roots[2])])).and_then(Result::err), Some(closed.clone()));
    assert_eq!(outcome(reads.chunk(vec![1], 0..1)), Some(Err(closed)));
    assert_eq!(reads.next(), None);
}

/// Waits for a reply that another thread gives.
fn wait_for<T>(reply: Reply<T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(reply.found())
}
