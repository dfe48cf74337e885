//! Fuzz target: results, receipts and details that were edited after they were made. Whatever verifies has the honest answer:
//! one root has one answer to each request.
#![no_main]

use std::sync::{Arc, OnceLock};

use coregw_core::{Cid, Error, RootCid, Suite, Window};
use coregw_fuzz::input::Input;
use coregw_fuzz::model::{Arcmap, Elements, list, map, target};
use coregw_fuzz::store::Store;
use coregw_ops::{
    DiffRequest, MapProofForm, Operation, verify_map_proof, verify_read, verify_resolve, verify_scan, verify_transition,
};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

#[derive(Clone, Copy)]
enum Kind {
    Resolve,
    Read,
    MapProof,
    Scan,
    Diff,
    Transition,
}

/// A request, its honest result, and what that proves.
struct Exchange {
    kind: Kind,
    request: Value,
    result: Value,
    proven: String,
}

fn parts(text: &str) -> Vec<String> {
    text.split('/').map(str::to_owned).collect()
}

fn diff_request(request: &Value) -> Option<DiffRequest> {
    let cid = |member: &str| Cid::from_text(request[member].as_str()?).ok();
    let window = Window::new::<&str, &str>(&[], None).ok()?;
    DiffRequest::new(&cid("a")?, &cid("b")?, window, request["limit"].as_u64()?).ok()
}

/// What a result proves, as text; None if it is refused.
fn verify(kind: Kind, request: &Value, result: &[u8]) -> Option<String> {
    let text = request.to_string();
    let request_bytes = text.as_bytes();
    Some(match kind {
        Kind::Resolve => format!("{:?}", verify_resolve(request_bytes, result).ok()?),
        Kind::Read => format!("{:?}", verify_read(request_bytes, result).ok()?),
        Kind::MapProof => format!("{:?}", verify_map_proof(request_bytes, result).ok()?),
        Kind::Scan => format!("{:?}", verify_scan(request_bytes, result).ok()?),
        Kind::Diff => format!("{:?}", diff_request(request)?.verify(result).ok()?),
        Kind::Transition => format!("{:?}", verify_transition(request_bytes, result).ok()?),
    })
}

fn serve(store: &mut Store, kind: Kind, request: &Value) -> Value {
    let (cache, text) = (Arc::clone(&store.cache), request.to_string());
    let operation = match kind {
        Kind::Resolve => Operation::resolve(cache, text.as_bytes()),
        Kind::Read => Operation::read(cache, text.as_bytes()),
        Kind::MapProof => Operation::map_proof(cache, text.as_bytes(), MapProofForm::Result),
        Kind::Scan => Operation::scan(cache, text.as_bytes()),
        Kind::Diff => Ok(Operation::diff(cache, diff_request(request).expect("a request"))),
        Kind::Transition => {
            let base = Cid::from_text(request["root"].as_str().expect("a root")).expect("a CID");
            let body = json!({"deltas": request["deltas"], "prove": true}).to_string();
            Operation::mutate(cache, &base, body.as_bytes())
        }
    };
    let result = match store.serve(operation.expect("a request")) {
        Err(Error::NotFound { details: Some(details), .. }) => details,
        other => other.expect("a result"),
    };
    serde_json::from_str(&result).expect("JSON")
}

fn requests(root: &RootCid, other: &RootCid, list: &RootCid) -> Vec<(Kind, Value)> {
    let [map, other, list] = [root, other, list].map(|root| root.cid().text());
    let cid = |n: u16| target(n).text();
    let read =
        |root: &str, query: Value| (Kind::Read, json!({"profile": "core.read/v0alpha1", "root": root, "query": query}));
    let mut all = vec![
        read(&list, json!({"kind": "list_index", "index": 3})),
        read(&list, json!({"kind": "list_index", "index": 99})),
        read(&list, json!({"kind": "list_range", "start": 3, "end": 17})),
        read(&list, json!({"kind": "list_range", "start": 0})),
        read(&list, json!({"kind": "list_range", "start": 9, "end": 9})),
        (Kind::Diff, json!({"a": map, "b": other, "limit": 2})),
        (Kind::Diff, json!({"a": other, "b": map, "limit": 100})),
        (
            Kind::Transition,
            json!({"root": map, "deltas": [
            {"kind": "map", "changes": [{"path": "new", "after": {"target": cid(3)}}, {"path": "a/b", "before": {"target": cid(1)}}]},
            {"kind": "list", "changes": [{"index": 0, "after": {"target": cid(4), "size": 7}}]}]}),
        ),
        (
            Kind::Transition,
            json!({"root": list, "deltas": [
            {"kind": "list", "changes": [{"index": 4, "before": {"target": cid(4)}, "after": {"target": cid(9), "size": 5}}]}]}),
        ),
    ];
    let keys = json!([["b", "01"], ["a", "02"], ["a", "zz"]]);
    all.push((Kind::MapProof, json!({"profile": "core.map-proof/v0alpha1", "root": map, "keys": keys})));
    for path in ["a/b", "a", "list/3", "nested/a/c", "@payload", "zz"] {
        let segments = parts(path);
        all.push(read(&map, json!({"kind": "map_key", "segments": segments})));
        all.push((Kind::MapProof, json!({"profile": "core.map-proof/v0alpha1", "root": map, "key": segments})));
        all.push((
            Kind::Scan,
            json!({"profile": "core.scan/v0alpha1", "root": map, "prefix": [segments[0]], "limit": 2}),
        ));
        if path != "zz" && path != "a" {
            all.push((Kind::Resolve, json!({"profile": "core.resolve/v0alpha1", "root": map, "segments": segments})));
        }
    }
    all
}

fn exchanges() -> &'static [Exchange] {
    static MADE: OnceLock<Vec<Exchange>> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut store = Store::new(1 << 20, u64::MAX);
        let mut hold = |tree: &coregw_core::Snapshot| {
            store.pages.extend(tree.pages().map(|page| (page.digest(), page.to_bytes())));
            store.roots.insert(tree.root());
            tree.root()
        };
        let elements: Elements = (0..9).map(|i| (target(i), 1 + u64::from(i))).collect();
        let list = hold(&list(Suite::Sha2_256, &elements));
        let arcs: Arcmap =
            (0..20).map(|i| (vec![["a", "b"][i % 2].into(), format!("{i:02}")], target(i as u16))).collect();
        let nested = hold(&map(Suite::Blake3, &[(parts("a/c"), target(8)), (parts("d"), target(7))].into()));
        let mut whole = arcs.clone();
        whole.extend([(parts("a/b"), target(1)), (parts("@payload"), target(2))]);
        whole.extend([(parts("list"), list.cid()), (parts("nested"), nested.cid())]);
        let root = hold(&map(Suite::Sha2_256, &whole));
        let mut changed = whole.clone();
        changed.extend([(parts("a/05"), target(30)), (parts("q"), target(31))]);
        changed.remove(&parts("b/11"));
        let other = hold(&map(Suite::Sha2_256, &changed));
        let exchange = |(kind, request): (Kind, Value)| {
            let result = serve(&mut store, kind, &request);
            let proven = verify(kind, &request, result.to_string().as_bytes());
            Exchange { kind, proven: proven.expect("an honest result verifies"), request, result }
        };
        requests(&root, &other, &list).into_iter().map(exchange).collect()
    })
}

/// A random value inside `value`.
fn pick<'v>(input: &mut Input<'_>, value: &'v mut Value) -> &'v mut Value {
    let count = match &*value {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    };
    if count == 0 || input.byte() < 20 {
        return value;
    }
    let at = input.below(count);
    let inner = match value {
        Value::Array(items) => items.get_mut(at),
        Value::Object(members) => members.values_mut().nth(at),
        _ => None,
    };
    pick(input, inner.expect("one of its items"))
}

/// Edits a result, with pieces of others.
fn edit(input: &mut Input<'_>, result: &mut Value, all: &[Exchange]) {
    let other = all[input.below(all.len())].result.clone();
    match input.byte() % 6 {
        0 => {
            let mut other = other;
            let piece = pick(input, &mut other).clone();
            *pick(input, result) = piece;
        }
        1 => {
            let at = pick(input, result);
            match at {
                Value::Array(items) => drop(items.pop()),
                Value::Object(members) => {
                    let name = members.keys().nth(input.below(members.len())).cloned();
                    name.map(|name| members.remove(&name));
                }
                Value::Bool(is) => *is = !*is,
                Value::Number(_) => *at = json!(input.number()),
                Value::String(text) => change_text(input, text),
                Value::Null => *at = json!({}),
            }
        }
        2 => {
            if let Value::Array(items) = pick(input, result) {
                items.extend(items.last().cloned());
                items.reverse();
            }
        }
        3 => {
            if let (Value::Object(members), Value::Object(more)) = (pick(input, result), other) {
                members.extend(more);
            }
        }
        _ => {
            // Proofs are base64 at any depth; a change of a few bytes there is the most interesting.
            if let Value::String(text) = pick(input, result) {
                change_text(input, text);
            }
        }
    }
}

fn change_text(input: &mut Input<'_>, text: &mut String) {
    let at = input.below(text.len().max(1));
    if text.is_ascii() && at < text.len() {
        let letter = char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="[input.below(65)]);
        text.replace_range(at..=at, &letter.to_string());
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let all = exchanges();
    let exchange = &all[input.below(all.len())];
    let mut result = exchange.result.clone();
    for _ in 0..1 + input.below(3) {
        edit(&mut input, &mut result, all);
    }
    let mut bytes = result.to_string().into_bytes();
    if input.byte() < 40 && !bytes.is_empty() {
        let at = input.below(bytes.len());
        bytes[at] = input.byte();
    }
    if let Some(proven) = verify(exchange.kind, &exchange.request, &bytes) {
        assert_eq!(proven, exchange.proven, "{}: {}", exchange.request, String::from_utf8_lossy(&bytes));
    }
});
