//! Forged results and receipts: each differs from an honest one in one place, and is refused.

#[path = "support/store.rs"]
mod store;

use std::sync::Arc;

use coregw_core::{Cid, Error, RootCid, Suite, Window};
use coregw_ops::{
    DiffRequest, MapProofForm, Operation, verify_map_proof, verify_read, verify_resolve, verify_scan, verify_transition,
};
use serde_json::{Value, json};
use store::{Store, payload, root_of};

/// A request, its honest result, and the verifier of both; on acceptance, what is proven.
struct Exchange {
    name: &'static str,
    request: Value,
    result: String,
    verify: fn(&Value, &[u8]) -> Result<String, Error>,
}

impl Exchange {
    fn verify(&self, result: &str) -> Result<String, Error> {
        (self.verify)(&self.request, result.as_bytes())
    }

    /// Asserts that a result is refused as a forgery, not as a malformed request.
    #[track_caller]
    fn assert_refused(&self, result: &str) {
        let verdict = self.verify(result);
        assert!(matches!(verdict, Err(Error::Proof { .. })), "{}: {verdict:?}: {result}", self.name);
    }
}

fn text<T: std::fmt::Debug>(verdict: Result<T, Error>) -> Result<String, Error> {
    verdict.map(|proven| format!("{proven:?}"))
}

fn bytes(request: &Value) -> Vec<u8> {
    request.to_string().into_bytes()
}

fn diff_request(request: &Value) -> DiffRequest {
    let [a, b] = ["a", "b"].map(|side| Cid::from_text(request[side].as_str().expect("a CID")).expect("a CID"));
    DiffRequest::new(&a, &b, Window::new::<&str, &str>(&[], None).expect("a window"), 2).expect("a request")
}

fn resolve(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(verify_resolve(&bytes(request), result))
}

fn read(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(verify_read(&bytes(request), result))
}

fn map_proof(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(verify_map_proof(&bytes(request), result))
}

fn scan(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(verify_scan(&bytes(request), result))
}

fn diff(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(diff_request(request).verify(result))
}

fn transition(request: &Value, result: &[u8]) -> Result<String, Error> {
    text(verify_transition(&bytes(request), result))
}

/// A store with two maps, the first of which has a nested map and a nested list.
struct World {
    store: Store,
    map: RootCid,
    other: RootCid,
    list: RootCid,
}

fn world() -> World {
    let mut store = Store::new(1 << 20, u64::MAX);
    let nested = store.build(Suite::Blake3, &[("c".into(), payload(7)), ("@payload".into(), payload(8))].into());
    let empty = store.build(Suite::Sha2_256, &[].into());
    let element = |i: u64| json!({"index": i, "after": {"target": payload(i).text(), "size": 1 + i % 3}});
    let elements: Vec<_> = (0..9).map(element).collect();
    let receipt = store.mutate(&empty, &json!({"deltas": [{"kind": "list", "changes": elements}]})).expect("a list");
    let list = root_of(&receipt["new_root"]);
    let mut arcs: std::collections::BTreeMap<_, _> = (0..6).map(|i| (format!("f/{i}"), payload(i))).collect();
    arcs.extend([("nested".into(), nested.cid()), ("list".into(), list.cid())]);
    let map = store.build(Suite::Sha2_256, &arcs);
    arcs.insert("f/3".into(), payload(30));
    arcs.remove("f/1");
    arcs.insert("g".into(), payload(9));
    let other = store.build(Suite::Sha2_256, &arcs);
    World { store, map, other, list }
}

impl World {
    fn exchange(
        &mut self,
        name: &'static str,
        request: Value,
        operation: Result<Operation, Error>,
        verify: fn(&Value, &[u8]) -> Result<String, Error>,
    ) -> Exchange {
        let result = match self.store.serve(operation.expect("a request")) {
            Err(Error::NotFound { details: Some(details), .. }) => details,
            other => other.expect("a result"),
        };
        let exchange = Exchange { name, request, result, verify };
        exchange.verify(&exchange.result).expect("an honest result verifies");
        exchange
    }

    fn resolve(&mut self, name: &'static str, path: &[&str]) -> Exchange {
        let request = json!({"profile": "core.resolve/v0alpha1", "root": self.map.cid().text(), "segments": path});
        let operation = Operation::resolve(Arc::clone(&self.store.cache), &bytes(&request));
        self.exchange(name, request, operation, resolve)
    }

    fn read(&mut self, name: &'static str, root: RootCid, query: Value) -> Exchange {
        let request = json!({"profile": "core.read/v0alpha1", "root": root.cid().text(), "query": query});
        let operation = Operation::read(Arc::clone(&self.store.cache), &bytes(&request));
        self.exchange(name, request, operation, read)
    }

    fn map_proof(&mut self, name: &'static str, key: &[&str]) -> Exchange {
        let request = json!({"profile": "core.map-proof/v0alpha1", "root": self.map.cid().text(), "key": key});
        let operation = Operation::map_proof(Arc::clone(&self.store.cache), &bytes(&request), MapProofForm::Result);
        self.exchange(name, request, operation, map_proof)
    }

    fn multiproof(&mut self) -> Exchange {
        let keys = json!([["f", "4"], ["f", "z"], ["f", "1"]]);
        let request = json!({"profile": "core.map-proof/v0alpha1", "root": self.map.cid().text(), "keys": keys});
        let operation = Operation::map_proof(Arc::clone(&self.store.cache), &bytes(&request), MapProofForm::Result);
        self.exchange("a multiproof", request, operation, map_proof)
    }

    fn scan(&mut self, limit: u64) -> Exchange {
        let request = json!({"profile": "core.scan/v0alpha1", "root": self.map.cid().text(), "prefix": ["f"],
            "after": ["f", "0"], "limit": limit});
        let operation = Operation::scan(Arc::clone(&self.store.cache), &bytes(&request));
        self.exchange("a scan", request, operation, scan)
    }

    fn diff(&mut self) -> Exchange {
        let request = json!({"a": self.map.cid().text(), "b": self.other.cid().text()});
        let operation = Operation::diff(Arc::clone(&self.store.cache), diff_request(&request));
        self.exchange("a diff", request, Ok(operation), diff)
    }

    fn transition(&mut self) -> Exchange {
        let side = |n| json!({"target": payload(n).text()});
        let deltas = json!([
            {"kind": "map", "changes": [{"path": "f/3", "before": side(3), "after": side(4)}, {"path": "h", "after": side(5)}]},
            {"kind": "list", "object": self.list.cid().text(), "changes": [{"index": 9, "after": side(1)}]},
        ]);
        let operation = Operation::mutate(
            Arc::clone(&self.store.cache),
            &self.map.cid(),
            &bytes(&json!({"deltas": deltas, "prove": true})),
        );
        let request = json!({"root": self.map.cid().text(), "deltas": deltas});
        self.exchange("a mutation", request, operation, transition)
    }

    /// An exchange of every kind.
    fn all(&mut self) -> Vec<Exchange> {
        let (map, list) = (self.map, self.list);
        vec![
            self.resolve("a resolve through maps", &["nested", "c"]),
            self.resolve("a resolve to a payload", &["nested", "@payload"]),
            self.resolve("a resolve through a list", &["list", "4"]),
            self.read("a read of a key", map, json!({"kind": "map_key", "segments": ["f", "2"]})),
            self.read("a read of an absent key", map, json!({"kind": "map_key", "segments": ["f", "9"]})),
            self.read("a read of an index", list, json!({"kind": "list_index", "index": 4})),
            self.read("a read of an absent index", list, json!({"kind": "list_index", "index": 40})),
            self.read("a read of a range", list, json!({"kind": "list_range", "start": 3, "end": 9})),
            self.read("a read of an empty range", list, json!({"kind": "list_range", "start": 90})),
            self.map_proof("a map proof", &["f", "2"]),
            self.map_proof("a map proof of an absent key", &["f", "z"]),
            self.multiproof(),
            self.scan(2),
            self.scan(100),
            self.diff(),
            self.transition(),
        ]
    }
}

/// Every value of a JSON text, as pointers.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, inner)| pointers(inner, &format!("{at}/{}", name.replace('/', "~1")), out));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, inner)| pointers(inner, &format!("{at}/{i}"), out));
        }
        _ => {}
    }
    out.push(at.to_owned());
}

fn without(result: &Value, pointer: &str) -> Option<Value> {
    let (above, name) = pointer.rsplit_once('/')?;
    let mut result = result.clone();
    match result.pointer_mut(above)? {
        Value::Object(members) => drop(members.remove(&name.replace("~1", "/"))?),
        Value::Array(items) => drop(items.remove(name.parse().ok()?)),
        _ => return None,
    }
    Some(result)
}

#[test]
fn result_without_one_of_its_members_or_items_is_refused() {
    for exchange in world().all() {
        let honest: Value = serde_json::from_str(&exchange.result).expect("JSON");
        let mut all = Vec::new();
        pointers(&honest, "", &mut all);
        for pointer in &all {
            let Some(forged) = without(&honest, pointer) else { continue };
            if is_optional(pointer, &honest) {
                assert_eq!(exchange.verify(&forged.to_string()), exchange.verify(&exchange.result), "{pointer}");
            } else {
                exchange.assert_refused(&forged.to_string());
            }
        }
    }
}

/// Whether a member of a range follows from the proof: MALT has neither sizes nor an offset, and leaves empty arrays out.
fn is_optional(pointer: &str, result: &Value) -> bool {
    let Some((above, name)) = pointer.rsplit_once('/') else { return false };
    let is_range = result.pointer("/prooflist/steps/0/kind") == Some(&json!("list_range"));
    let is_empty = result.pointer(pointer) == Some(&json!([]));
    is_range
        && match (above, name) {
            ("/prooflist/steps/0", "sizes" | "offset") => true,
            ("/prooflist/steps/0", "segments") | ("", "range_segments") => is_empty,
            _ => false,
        }
}

#[test]
fn result_has_the_spelling_of_its_request() {
    let mut world = world();
    let list = world.list;
    let queries = [
        world.resolve("a resolve", &["f", "4"]),
        world.read("a read of a range", list, json!({"kind": "list_range", "start": 3, "end": 9})),
        world.map_proof("a map proof", &["f", "4"]),
        world.scan(2),
    ];
    for Exchange { name, request, result, verify } in queries {
        let malt = |text: &str| text.replacen("\"core.", "\"malt.", 1);
        let (asked, answered) = (malt(&request.to_string()), malt(&result));
        let operation = match name {
            "a resolve" => Operation::resolve(Arc::clone(&world.store.cache), asked.as_bytes()),
            "a read of a range" => Operation::read(Arc::clone(&world.store.cache), asked.as_bytes()),
            "a map proof" => {
                Operation::map_proof(Arc::clone(&world.store.cache), asked.as_bytes(), MapProofForm::Result)
            }
            _ => Operation::scan(Arc::clone(&world.store.cache), asked.as_bytes()),
        };
        assert_eq!(world.store.serve(operation.expect("a request")), Ok(answered.clone()), "{name}");
        let asked = serde_json::from_str(&asked).expect("JSON");
        assert_eq!(verify(&asked, answered.as_bytes()), verify(&request, result.as_bytes()), "{name}");
        assert!(verify(&asked, result.as_bytes()).is_err() && verify(&request, answered.as_bytes()).is_err());
    }
}

#[test]
fn result_with_another_value_is_refused() {
    for exchange in world().all() {
        let honest: Value = serde_json::from_str(&exchange.result).expect("JSON");
        let mut all = Vec::new();
        pointers(&honest, "", &mut all);
        let other_cid = payload(77).text();
        for pointer in &all {
            let value = honest.pointer(pointer).expect("a value");
            let others = match value {
                Value::Bool(is) => vec![json!(!is)],
                Value::Number(n) => vec![json!(n.as_u64().expect("an integer") + 1), json!(n.to_string())],
                Value::String(text) => vec![json!(format!("{text}A")), json!(other_cid), json!("")],
                Value::Null => vec![json!(0), json!({"/": other_cid})],
                Value::Array(items) => vec![json!([&items[..], &items[..]].concat()), json!({})]
                    .into_iter()
                    .filter(|other| other != value)
                    .collect(),
                Value::Object(_) => vec![json!([]), json!("")],
            };
            for other in others.into_iter().chain((!value.is_null()).then_some(Value::Null)) {
                if other == *value || value.as_array().is_some_and(|items| items.is_empty() && other.is_array()) {
                    continue;
                }
                let mut forged = honest.clone();
                *forged.pointer_mut(pointer).expect("a value") = other;
                exchange.assert_refused(&forged.to_string());
            }
        }
    }
}

#[test]
fn result_with_an_unknown_or_duplicate_member_is_refused() {
    for exchange in world().all() {
        let inner = exchange.result.strip_prefix('{').expect("an object");
        exchange.assert_refused(&format!("{{\"unknown\":1,{inner}"));
        let (first, _) = inner.split_once(':').expect("a member");
        exchange.assert_refused(&format!("{{{first}:null,{inner}"));
        exchange.assert_refused(&format!("{{\"\\u{:04x}{},{inner}", u32::from(first.as_bytes()[1]), &first[2..]));
    }
}

#[test]
fn result_that_is_not_strict_json_is_refused() {
    for exchange in world().all() {
        let honest = &exchange.result;
        for forged in [
            format!("{honest}1"),
            format!("\u{feff}{honest}"),
            honest[..honest.len() - 1].to_owned(),
            format!("[{honest}]"),
        ] {
            exchange.assert_refused(&forged);
        }
    }
}

#[test]
fn proof_that_is_not_canonical_base64_is_refused() {
    for exchange in world().all() {
        let at = exchange.result.find("\"proof\":\"").map(|at| at + 9);
        let at = at.or_else(|| exchange.result.find("\"a\":\"").map(|at| at + 5)).expect("a proof");
        let (head, rest) = exchange.result.split_at(at);
        let (proof, rest) = rest.split_once('"').expect("its end");
        for forged in [
            format!("{proof}="),
            format!("{proof}AA=="),
            proof.replacen('A', "\\n", 1),
            format!(" {proof}"),
            format!("{proof}A"),
        ] {
            exchange.assert_refused(&format!("{head}{forged}\"{rest}"));
        }
    }
}

#[test]
fn result_of_another_request_is_refused() {
    let all = world().all();
    for (i, exchange) in all.iter().enumerate() {
        for (_, other) in all.iter().enumerate().filter(|(j, _)| *j != i) {
            exchange.assert_refused(&other.result);
        }
    }
}

#[test]
fn claimed_absence_of_a_present_key_is_refused() {
    let mut world = world();
    let map = world.map;
    let present = world.read("a read of a key", map, json!({"kind": "map_key", "segments": ["f", "2"]}));
    for absent in ["f", "f/9", "f/2/x", "a", "zz"] {
        let segments: Vec<_> = absent.split('/').collect();
        let absence = world.read("an absence", map, json!({"kind": "map_key", "segments": segments}));
        present.assert_refused(&absence.result);
        // The same proof, presented as one of the key that was asked for.
        let mut forged: Value = serde_json::from_str(&absence.result).expect("JSON");
        forged["prooflist"]["query"] = json!("f/2");
        forged["prooflist"]["steps"][0]["path"] = json!("f/2");
        present.assert_refused(&forged.to_string());
    }
}

#[test]
fn steps_that_end_early_or_lead_elsewhere_are_refused() {
    let mut world = world();
    let whole = world.resolve("a resolve", &["nested", "c"]);
    let first = world.resolve("its first step", &["nested"]);
    let (honest, first): (Value, Value) =
        (serde_json::from_str(&whole.result).expect("JSON"), serde_json::from_str(&first.result).expect("JSON"));
    let mut early = honest.clone();
    early["prooflist"]["steps"] = first["prooflist"]["steps"].clone();
    whole.assert_refused(&early.to_string());
    early["target"] = first["target"].clone();
    whole.assert_refused(&early.to_string());
    let mut elsewhere = honest.clone();
    elsewhere["prooflist"]["steps"][1] = honest["prooflist"]["steps"][0].clone();
    whole.assert_refused(&elsewhere.to_string());
    let mut reversed = honest.clone();
    reversed["prooflist"]["steps"].as_array_mut().expect("steps").reverse();
    whole.assert_refused(&reversed.to_string());
}

#[test]
fn receipt_of_other_changes_is_refused() {
    let mut world = world();
    let exchange = world.transition();
    let side = |n| json!({"target": payload(n).text()});
    for (member, value) in [
        ("changes", json!([{"path": "f/3", "before": side(3), "after": side(5)}, {"path": "h", "after": side(5)}])),
        ("changes", json!([{"path": "f/3", "before": side(3), "after": side(4)}])),
        ("changes", json!([{"path": "f/4", "before": side(4), "after": side(5)}, {"path": "h", "after": side(5)}])),
        ("object", json!(world.other.cid().text())),
        ("expected_root", json!(world.other.cid().text())),
    ] {
        let mut request = exchange.request.clone();
        request["deltas"][0][member] = value;
        let verdict = transition(&request, exchange.result.as_bytes());
        assert!(matches!(verdict, Err(Error::Proof { .. })), "{request}: {verdict:?}");
    }
    let mut request = exchange.request.clone();
    request["root"] = json!(world.other.cid().text());
    assert!(matches!(transition(&request, exchange.result.as_bytes()), Err(Error::Proof { .. })));
}

#[test]
fn receipt_with_sizes_that_are_not_fixed_is_refused() {
    let mut world = world();
    let (list, change) = (
        world.list,
        json!({"index": 0, "before": {"target": payload(0).text()}, "after": {"target": payload(5).text(), "size": 2}}),
    );
    let deltas = json!([{"kind": "list", "changes": [change]}]);
    let receipt = world.store.mutate(&list, &json!({"deltas": deltas, "prove": true})).expect("it fits").to_string();
    let mut request = json!({"root": list.cid().text(), "deltas": deltas});
    transition(&request, receipt.as_bytes()).expect("without a commit, any sizes are valid");
    request["deltas"][0]["commit"] = json!({"fixed_list": {"total_size": 18, "chunk_size": 2}});
    let verdict = transition(&request, receipt.as_bytes());
    assert!(matches!(verdict, Err(Error::Proof { .. })), "{verdict:?}");
}
