//! Hot changes: roots and mutations that the front makes, and what becomes of them.
#![cfg(unix)]

use std::sync::{Arc, Mutex};
use std::thread;

use coregw_core::{Cid, RootCid};
use coregw_front::gateway::Writers;
use coregw_front::reads::Failure;
use coregw_front::writes::{NewTrees, SHORT_CHANGE_BYTES, WriteBatch, Written};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

#[path = "support/gateway.rs"]
mod gateway;
#[path = "support/rules.rs"]
mod rules;
#[path = "support/store.rs"]
mod store;

use gateway::{Got, Options, Running, start};
use store::{Stored, target};

/// A gateway that may be written to, and the trees that were.
struct Writable {
    gateway: Arc<Running>,
    written: Arc<Mutex<Vec<NewTrees>>>,
    /// Why the next trees are not stored.
    failures: Arc<Mutex<Vec<Failure>>>,
}

fn options() -> Options {
    Options { is_read_only: false, ..Options::default() }
}

async fn writable(stored: Stored, options: Options) -> Writable {
    let gateway = Arc::new(start(stored, options).await);
    let (written, failures) = <(Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>)>::default();
    let (writes, store) = (Arc::clone(&gateway.writes), Arc::clone(&gateway.store));
    let (trees, refusals) = (Arc::clone(&written), Arc::clone(&failures));
    thread::spawn(move || {
        while let Some(batch) = writes.next() {
            let mut control = store.control();
            let outcome = write(&mut control.stored, &batch, &trees, &refusals);
            drop(control);
            writes.done(batch.id, Ok(outcome));
        }
    });
    Writable { gateway, written, failures }
}

fn write(
    stored: &mut Stored,
    batch: &WriteBatch,
    written: &Mutex<Vec<NewTrees>>,
    failures: &Mutex<Vec<Failure>>,
) -> Written {
    let mut store = |trees: &NewTrees| {
        if let Some(failure) = failures.lock().expect("no panic").pop() {
            return Err(failure);
        }
        if !trees.roots.is_empty() && trees.roots.iter().all(|root| stored.roots.get(root) == Some(&true)) {
            return Ok(1); // they are dated
        }
        stored.pages.extend(trees.pages.iter().cloned());
        stored.roots.extend(trees.roots.iter().map(|root| (*root, true)));
        written.lock().expect("no panic").push(trees.clone());
        Ok(1)
    };
    let trees = batch.trees.iter().map(&mut store).collect();
    let held = |roots: &Vec<RootCid>| Ok(roots.iter().map(|root| stored.roots.contains_key(root)).collect());
    Written { trees, renewals: batch.renewals.iter().map(held).collect(), ..Written::default() }
}

impl Writable {
    fn written(&self) -> Vec<NewTrees> {
        std::mem::take(&mut self.written.lock().expect("no panic"))
    }

    async fn change(&self, root: &RootCid, request: &Value) -> Got {
        self.gateway.post(&format!("/v1/roots/{root}/mutations"), &request.to_string()).await
    }

    async fn target_of(&self, root: &str, path: &str) -> String {
        let segments: Vec<_> = path.split('/').collect();
        let request = json!({"profile": "core.resolve/v0alpha1", "root": root, "segments": segments});
        let got = self.gateway.post("/v1/resolve", &request.to_string()).await;
        assert_eq!(got.status, 200, "{got:?}");
        member(&got, "target")
    }
}

fn member(got: &Got, name: &str) -> String {
    let answer: Value = serde_json::from_slice(&got.body).expect("JSON");
    answer[name].as_str().unwrap_or_else(|| panic!("{name} in {answer}")).to_owned()
}

fn setting(path: &str, to: &Cid) -> Value {
    json!({"deltas": [{"kind": "map", "changes": [{"path": path, "after": {"target": to.text()}}]}]})
}

fn root_of(text: &str) -> RootCid {
    Cid::from_text(text).ok().and_then(|cid| cid.root()).expect("a root")
}

/// A store of one map, and its root.
fn stored_map() -> (Stored, RootCid) {
    let mut stored = Stored::default();
    let root = stored.add(&store::map(1000));
    (stored, root)
}

#[tokio::test]
async fn a_mutation_is_stored_with_what_it_is_based_on_and_is_then_readable() {
    let (stored, base) = stored_map();
    let writable = writable(stored, options()).await;
    let got = writable.change(&base, &setting("d1/new", &target(7777))).await;
    assert_eq!((got.status, got.field("content-type")), (201, "application/json"), "{got:?}");
    let new = member(&got, "new_root");
    assert_eq!(writable.target_of(&new, "d1/new").await, target(7777).text());
    let written = writable.written();
    assert_eq!(written.len(), 1);
    assert_eq!((&written[0].roots, &written[0].requires), (&vec![root_of(&new)], &vec![base]));
    assert!(!written[0].pages.is_empty());
    // The same again changes nothing that is held: it is dated only.
    let again = writable.change(&base, &setting("d1/new", &target(7777))).await;
    assert_eq!((again.status, member(&again, "new_root")), (201, new));
    assert_eq!(writable.written(), []);
}

#[tokio::test]
async fn a_root_is_stored_once_and_dated_after_that() {
    let writable = writable(Stored::default(), options()).await;
    let request = json!({"arcs": {"a/b": target(1).text(), "c": target(2).text()}}).to_string();
    for pages in [1, 0] {
        let got = writable.gateway.post("/v1/roots", &request).await;
        assert_eq!(got.status, 201, "{got:?}");
        assert_eq!(writable.target_of(&member(&got, "root"), "a/b").await, target(1).text());
        assert_eq!(writable.written().len(), pages);
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let (stored, base) = stored_map();
    let absent = store::map(5).root();
    let writable = writable(stored, options()).await;
    let fitting = setting("new", &target(1));
    let unexpected = json!({"deltas": [{"kind": "map", "expected_root": base.cid().text(),
        "changes": [{"path": "new", "after": {"target": target(1).text()}}]}]});
    let payload = target(5);
    for (root, request, outcome) in [
        (base.cid().text(), json!({"deltas": []}), (400, "invalid_request")),
        (base.cid().text(), json!({"changes": []}), (400, "invalid_request")),
        (base.cid().text(), setting("d1/f00001", &target(1)), (409, "before_mismatch")),
        (base.cid().text(), unexpected, (409, "expected_root_mismatch")),
        (absent.cid().text(), fitting.clone(), (404, "root_not_found")),
        (payload.text(), fitting.clone(), (400, "kind_mismatch")),
        ("bafynonsense".to_owned(), fitting.clone(), (400, "invalid_cid")),
    ] {
        let got = writable.gateway.post(&format!("/v1/roots/{root}/mutations"), &request.to_string()).await;
        assert_eq!(got.outcome(), (outcome.0, outcome.1.to_owned()), "{request} {got:?}");
    }
    let (target_cid, target) = (target(1), format!("/v1/roots/{base}/mutations"));
    let typed = [("content-type", "text/plain")];
    let body = fitting.to_string();
    let got = writable.gateway.send("POST", &target, &typed, body.as_bytes()).await;
    assert_eq!(got.outcome(), (415, "unsupported_media_type".to_owned()));
    let got = writable.gateway.post(&format!("{target}?prove=true"), &body).await;
    assert_eq!(got.outcome(), (400, "invalid_request".to_owned()));
    let arcs = json!({"arcs": {"a//b": target_cid.text()}});
    let got = writable.gateway.post("/v1/roots", &arcs.to_string()).await;
    assert_eq!(got.outcome(), (400, "invalid_path".to_owned()));
    assert_eq!(writable.written(), []);
}

#[tokio::test]
async fn why_a_change_was_not_stored_is_said() {
    let (stored, base) = stored_map();
    let writable = writable(stored, options()).await;
    for (failure, status, code) in [
        (Failure::Full("no room".to_owned()), 507, "storage_full"),
        (Failure::Unavailable("later".to_owned()), 503, "unavailable"),
        (Failure::Damaged("a row".to_owned()), 500, "internal"),
        (Failure::Internal, 500, "internal"),
        (Failure::NotFound("it has expired".to_owned()), 404, "root_not_found"),
    ] {
        writable.failures.lock().expect("no panic").push(failure.clone());
        let got = writable.change(&base, &setting("new", &target(1))).await;
        assert_eq!(got.outcome(), (status, code.to_owned()), "{failure:?}");
        let has_expired = matches!(failure, Failure::NotFound(_));
        assert_eq!(writable.gateway.cache.generation() > 0, has_expired, "{failure:?}");
    }
    assert_eq!(writable.written(), []);
    assert_eq!(writable.change(&base, &setting("new", &target(1))).await.status, 201);
}

#[tokio::test]
async fn nothing_is_based_on_a_root_that_has_lost_pages_until_it_is_complete() {
    let (mut stored, base) = stored_map();
    stored.roots.insert(base, false);
    let writable = writable(stored, options()).await;
    let change = setting("new", &target(1));
    assert_eq!(writable.change(&base, &change).await.outcome(), (500, "internal".to_owned()));
    assert_eq!(writable.written(), []);
    writable.gateway.store.control().stored.roots.insert(base, true);
    assert_eq!(writable.change(&base, &change).await.status, 201);
}

#[tokio::test]
async fn a_change_that_leads_to_an_incomplete_root_completes_it() {
    let (mut stored, base) = stored_map();
    let made = writable(stored_map().0, options()).await;
    let new = root_of(&member(&made.change(&base, &setting("new", &target(1))).await, "new_root"));
    stored.roots.insert(new, false);
    let writable = writable(stored, options()).await;
    assert_eq!(writable.change(&base, &setting("new", &target(1))).await.status, 201);
    assert_eq!(writable.written().len(), 1);
    assert_eq!(writable.target_of(&new.cid().text(), "new").await, target(1).text());
}

#[tokio::test]
async fn changes_that_wait_share_a_batch_and_are_stored_although_a_client_has_left() {
    let (stored, base) = stored_map();
    let gateway = Arc::new(start(stored, options()).await);
    let change = |path: &'static str| {
        let (gateway, request) = (Arc::clone(&gateway), setting(path, &target(1)).to_string());
        let (begun, has_begun) = oneshot::channel();
        let sending = tokio::spawn(async move {
            let _ = begun.send(());
            gateway.post(&format!("/v1/roots/{base}/mutations"), &request).await
        });
        (sending, has_begun)
    };
    // One batch is taken first, so that the others gather behind it.
    let (first, _) = change("a");
    let writes = Arc::clone(&gateway.writes);
    let taken = spawn_blocking(move || writes.next()).await.expect("no panic").expect("one waits");
    assert_eq!(taken.trees.len(), 1);
    let (left, _) = change("b");
    let writes = Arc::clone(&gateway.writes);
    let second = spawn_blocking(move || writes.next()).await.expect("no panic").expect("one waits");
    left.abort();
    let _ = left.await;
    let stored = |batch: &WriteBatch| Written { trees: vec![Ok(1); batch.trees.len()], ..Written::default() };
    gateway.writes.done(taken.id, Ok(stored(&taken)));
    assert_eq!(first.await.expect("no panic").status, 201);
    assert_eq!(second.trees.len(), 1, "what was taken is written, whoever waits");
    gateway.writes.done(second.id, Ok(stored(&second)));
}

#[tokio::test]
async fn a_change_has_a_time_limit_until_it_writes() {
    let (stored, base) = stored_map();
    let patience = std::time::Duration::from_millis(100);
    let gateway = Arc::new(start(stored, Options { patience, ..options() }).await);
    gateway.store.control().permits = Some(0);
    let target_url = format!("/v1/roots/{base}/mutations");
    let request = setting("new", &target(1)).to_string();
    assert_eq!(gateway.post(&target_url, &request).await.outcome(), (503, "unavailable".to_owned()));
    gateway.store.control().permits = None;
    gateway.store.permit(0);
    let (sender, url) = (Arc::clone(&gateway), target_url.clone());
    let sending = tokio::spawn(async move { sender.post(&url, &request).await });
    let writes = Arc::clone(&gateway.writes);
    let batch = spawn_blocking(move || writes.next()).await.expect("no panic").expect("one waits");
    tokio::time::sleep(3 * patience).await;
    gateway.writes.done(batch.id, Ok(Written { trees: vec![Ok(1)], ..Written::default() }));
    assert_eq!(sending.await.expect("no panic").status, 201);
}

#[tokio::test]
async fn what_is_long_or_not_known_to_be_allowed_is_the_applications() {
    let (stored, base) = stored_map();
    let writable = writable(stored, options()).await;
    let url = format!("/v1/roots/{base}/mutations");
    let long = format!("{}{}", setting("new", &target(1)), " ".repeat(SHORT_CHANGE_BYTES));
    assert_eq!(writable.gateway.post(&url, &long).await.text(), format!("cold POST {url}"));
    let lines = [("content-type", "application/jsonl")];
    assert_eq!(writable.gateway.send("POST", "/v1/roots", &lines, b"").await.text(), "cold POST /v1/roots");
    assert_eq!(writable.gateway.get(&url).await.text(), format!("cold GET {url}"));
    let (stored, _) = stored_map();
    let closed = start(stored, Options { writers: Writers::Holders(Vec::new()), ..options() }).await;
    let request = setting("new", &target(1)).to_string();
    assert_eq!(closed.post(&url, &request).await.text(), format!("cold POST {url}"));
    assert_eq!(closed.post("/v1/roots", "{}").await.text(), "cold POST /v1/roots");
    let (stored, _) = stored_map();
    let read_only = start(stored, Options::default()).await;
    assert_eq!(read_only.post(&url, &request).await.text(), format!("cold POST {url}"));
}
