//! The contract of `poll` and `supply`: what a caller may rely on, and which misuse is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::{Cid, Error, RootCid, Snapshot, Suite, Window};
use coregw_ops::{DiffRequest, Need, Operation, Progress, WantedPage};
use serde_json::{Value, json};

#[path = "support/store.rs"]
mod store;

use store::{Store, payload};

fn arcs(n: u64) -> BTreeMap<String, Cid> {
    (0..n).map(|i| (format!("d{}/f{i:05}", i % 10), payload(i))).collect()
}

fn resolve_request(root: &str) -> String {
    json!({"profile": "core.resolve/v0alpha1", "root": root, "segments": ["d7", "f00007"]}).to_string()
}

fn one_thread(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

fn batch(store: &Store, root: &RootCid, paths: &[Vec<String>], max_bytes: usize) -> Operation {
    let request = json!({"root": root.cid().text(), "paths": paths}).to_string();
    Operation::resolve_batch(Arc::clone(&store.cache), request.as_bytes(), max_bytes, one_thread).expect("a batch")
}

const MAX_BYTES: usize = 1 << 20;

#[test]
fn an_unanswered_need_is_returned_again() {
    let mut store = Store::new(0, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(10));
    let request = resolve_request(&root.cid().text());
    let mut operation = Operation::resolve(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    let roots = Ok(Progress::Needs(Need::Roots(vec![root])));
    assert_eq!(operation.poll(1000), roots);
    assert_eq!(operation.poll(1000), roots);
    operation.supply_roots(vec![true]).expect("the operation needs roots");
    assert!(matches!(operation.poll(1000), Ok(Progress::Needs(Need::Pages(_)))));
}

#[test]
fn an_answer_of_another_kind_or_number_is_refused_and_changes_nothing() {
    let mut store = Store::new(0, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(10));
    let request = resolve_request(&root.cid().text());
    let mut operation = Operation::resolve(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    assert!(matches!(operation.supply_roots(vec![true]), Err(Error::Input { .. })), "the operation needs nothing");
    let need = operation.poll(1000);
    assert!(matches!(operation.supply_pages(vec![]), Err(Error::Input { .. })));
    assert!(matches!(operation.supply_bytes(vec![]), Err(Error::Input { .. })));
    assert!(matches!(operation.supply_roots(vec![]), Err(Error::Input { .. })));
    assert!(matches!(operation.supply_roots(vec![true, true]), Err(Error::Input { .. })));
    assert_eq!(operation.poll(1000), need);
    assert!(store.serve(operation).is_ok());
}

#[test]
fn an_operation_that_has_ended_cannot_be_polled() {
    let mut store = Store::new(1 << 20, 1000);
    let root = store.build(Suite::Sha2_256, &arcs(1)).cid().text();
    for segments in [vec![], vec!["missing"]] {
        let request = json!({"profile": "core.resolve/v0alpha1", "root": root, "segments": segments}).to_string();
        let mut operation = Operation::resolve(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
        while let Ok(Progress::Needs(need)) = operation.poll(1000) {
            match need {
                Need::Roots(_) => operation.supply_roots(vec![true]).expect("one root"),
                Need::Pages(_) => {
                    let pages = operation.wanted_pages().iter().map(|page| {
                        page.parse(store.pages.get(&page.digest).map(Vec::as_slice)).expect("a valid page")
                    });
                    let pages = pages.collect();
                    operation.supply_pages(pages).expect("as many pages");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(operation.poll(1000), Err(Error::Input { .. })));
    }
}

#[test]
fn a_diff_asks_for_both_roots_and_the_pages_of_both_trees_at_once() {
    let mut store = Store::new(0, u64::MAX);
    let [a, b] = [100, 101].map(|n| store.build(Suite::Sha2_256, &arcs(n)));
    let window = Window::new::<String, String>(&[], None).expect("a window");
    let request = DiffRequest::new(&a.cid(), &b.cid(), window, 10).expect("a request");
    let mut operation = Operation::diff(Arc::clone(&store.cache), request);
    assert_eq!(operation.poll(1000), Ok(Progress::Needs(Need::Roots(vec![a, b]))));
    operation.supply_roots(vec![true, true]).expect("both roots");
    let Ok(Progress::Needs(Need::Pages(wanted))) = operation.poll(1000) else { panic!("it needs pages") };
    let mut digests: Vec<_> = wanted.iter().map(|page| page.digest).collect();
    digests.sort();
    let mut tops = [a.digest, b.digest];
    tops.sort();
    assert_eq!(digests, tops);
}

#[test]
fn a_batch_asks_for_each_root_and_page_once() {
    let mut store = Store::new(0, u64::MAX);
    let inner = store.build(Suite::Sha2_256, &arcs(2000));
    let outer = store.build(Suite::Blake3, &[("a".to_owned(), inner.cid()), ("b".to_owned(), inner.cid())].into());
    let path = |i: u64| {
        let map = if i.is_multiple_of(2) { "a" } else { "b" };
        vec![map.to_owned(), format!("d{}", i % 10), format!("f{i:05}")]
    };
    let operation = batch(&store, &outer, &(0..200).map(path).collect::<Vec<_>>(), MAX_BYTES);
    (store.loads, store.rounds) = (0, 0);
    let response = store.serve(operation).expect("outcomes");
    assert_eq!(response.matches("{\"result\":").count(), 200);
    assert!(store.loads <= store.pages.len() as u64, "{} loads of {} pages", store.loads, store.pages.len());
    // As many as one path needs: the pages on the way down both maps.
    assert!(store.rounds <= 5, "{} round trips", store.rounds);
}

#[test]
fn the_outcomes_of_a_batch_do_not_depend_on_its_budget() {
    let mut responses = Vec::new();
    for budget in [1, 50, u64::MAX] {
        let mut store = Store::new(0, budget);
        let root = store.build(Suite::Sha2_256, &arcs(500));
        let path = |i: u64| vec![format!("d{}", i % 10), format!("f{i:05}")];
        let mut paths: Vec<_> = (0..500).step_by(7).map(path).collect();
        paths.extend([vec!["missing".to_owned()], vec![]]);
        let operation = batch(&store, &root, &paths, MAX_BYTES);
        responses.push(store.serve(operation).expect("outcomes"));
    }
    let outcomes: Value = serde_json::from_str(&responses[0]).expect("JSON");
    let outcomes = outcomes["results"].as_array().expect("results");
    let (errors, found): (Vec<_>, Vec<_>) = outcomes.iter().partition(|item| item["result"].is_null());
    assert_eq!((found.len(), errors.len(), &errors[0]["error"]["error"]), (73, 1, &json!("path_not_found")));
    let mut store = Store::new(0, u64::MAX);
    let unheld = Snapshot::list(Suite::Sha2_256, &[]).expect("a list").root();
    let operation = batch(&store, &unheld, &[vec!["0".to_owned()]], MAX_BYTES);
    assert!(store.serve(operation).expect("an outcome").contains(r#"{"error":{"error":"root_not_found","#));
    assert!(responses.iter().all(|response| *response == responses[0]));
}

#[test]
fn a_batch_whose_outcomes_are_too_long_is_refused() {
    let mut store = Store::new(0, u64::MAX);
    let root = store.build(Suite::Sha2_256, &arcs(10));
    let paths = vec![vec!["d7".to_owned(), "f00007".to_owned()]; 2];
    let alone = batch(&store, &root, &paths[..1], MAX_BYTES);
    let alone = store.serve(alone).expect("an outcome");
    let max_bytes = 2 * (alone.len() - "{\"results\":[]}".len() + 1);
    let fits = batch(&store, &root, &paths, max_bytes);
    assert!(store.serve(fits).is_ok());
    let refused = batch(&store, &root, &paths, max_bytes - 1);
    assert!(matches!(store.serve(refused), Err(Error::Input { .. })));
}

#[test]
fn a_root_that_is_held_is_not_stored_again() {
    let mut store = Store::new(0, u64::MAX);
    let root = store.build(Suite::Sha2_256, &arcs(3000));
    let records = store.recorded.len();
    assert_eq!(store.build(Suite::Sha2_256, &arcs(3000)), root);
    assert_eq!(store.recorded.len(), records);
}

/// Polls until the operation needs neither roots nor pages, with this budget.
fn with_all_pages(store: &Store, operation: &mut Operation, budget: u64) -> Progress {
    loop {
        match operation.poll(budget).expect("a held root") {
            Progress::Needs(Need::Roots(roots)) => operation.supply_roots(vec![true; roots.len()]).expect("roots"),
            Progress::Needs(Need::Pages(_)) => {
                let parse = |page: &WantedPage| page.parse(store.pages.get(&page.digest).map(Vec::as_slice));
                let pages = operation.wanted_pages().iter().map(|page| parse(page).expect("a valid page")).collect();
                operation.supply_pages(pages).expect("as many pages");
            }
            other => return other,
        }
    }
}

#[test]
fn a_long_answer_waits_for_more_budget_before_it_is_written() {
    const BUDGET: u64 = 4096;
    let mut store = Store::new(1 << 30, u64::MAX);
    for (key_bytes, is_long) in [(1, false), (4000, true)] {
        let arcs = (0..500).map(|i| (format!("{i}{}", "\u{1}".repeat(key_bytes)), payload(i))).collect();
        let root = store.build(Suite::Sha2_256, &arcs).cid().text();
        let request = json!({"profile": "core.scan/v0alpha1", "root": root, "prefix": []}).to_string();
        let mut operation = Operation::scan(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
        let progress = with_all_pages(&store, &mut operation, BUDGET);
        assert_eq!(progress == Progress::Needs(Need::Budget), is_long, "{key_bytes} bytes");
    }
}

#[test]
fn a_listing_of_long_paths_reads_some_of_them_at_a_time() {
    const BUDGET: u64 = 2000;
    let mut store = Store::new(1 << 30, u64::MAX);
    let arcs = (0..500).map(|i| (format!("{i}{}", "\0".repeat(4000)), payload(i))).collect();
    let root = store.build(Suite::Sha2_256, &arcs).cid().text();
    let request = json!({"profile": "core.scan/v0alpha1", "root": root, "prefix": []}).to_string();
    let start = |store: &Store| Operation::scan(Arc::clone(&store.cache), request.as_bytes()).expect("a request");
    // What is paid when keys are listed is not paid again when the response is written.
    let nodes = 2 * 500 + (0..500).map(|i: u64| 256 + 4 * (i.to_string().len() as u64 + 4000)).sum::<u64>() / 64;
    let mut operation = start(&store);
    operation.limit_nodes(nodes);
    let whole = with_all_pages(&store, &mut operation, u64::MAX);
    assert!(matches!(whole, Progress::Done(_)));
    let (mut operation, mut slices) = (start(&store), 0);
    let result = loop {
        match with_all_pages(&store, &mut operation, BUDGET) {
            Progress::Needs(Need::Budget) => slices += 1,
            other => break other,
        }
    };
    assert_eq!(result, whole);
    assert!(slices > 500 * 8000 / 64 / BUDGET, "{slices} slices");
    let mut first = start(&store);
    assert_eq!(with_all_pages(&store, &mut first, BUDGET), Progress::Needs(Need::Budget));
    assert!(first.held_bytes() < 1 << 20, "{} bytes", first.held_bytes());
}

#[test]
fn long_paths_of_a_batch_cost_more_budget_than_short_ones() {
    let mut store = Store::new(1 << 20, u64::MAX);
    let root = store.build(Suite::Sha2_256, &arcs(10));
    let polls = |store: &Store, path: Vec<String>| {
        let mut operation = batch(store, &root, &vec![path; 100], MAX_BYTES);
        let mut polls = 0;
        while with_all_pages(store, &mut operation, 1000) == Progress::Needs(Need::Budget) {
            polls += 1;
        }
        polls
    };
    let [short, long] = [1, 2048].map(|segments| polls(&store, vec!["a".to_owned(); segments]));
    assert!(long > short, "{short} and {long} polls");
}
