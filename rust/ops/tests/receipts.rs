//! Receipts of mutations with proofs: what a client accepts and refuses.

use coregw_core::{Arcs, Cid, Error, Snapshot, Suite};
use coregw_ops::verify_transition;
use serde_json::{Value, json};

#[path = "support/store.rs"]
mod store;

use store::{Store, chunk, many, payload};

/// A mutation of several deltas, its request with the base root, and its receipt with proofs.
fn proven_mutation() -> (Value, Value) {
    let mut store = Store::new(0, u64::MAX);
    let arcs = many(500);
    let base = store.build(Suite::Sha2_256, &arcs);
    let (first, old) = arcs.iter().next().expect("arcs");
    let deltas = json!([
        {"kind": "list", "changes": [chunk(0), chunk(1), chunk(2)]},
        {"kind": "map", "changes": [{"path": "new", "after": {"target": payload(7).text()}}]},
        {"kind": "map", "changes": [{"path": first, "before": {"target": old.text()}}]},
    ]);
    let receipt = store.mutate(&base, &json!({"deltas": deltas, "prove": true})).expect("they fit");
    (json!({"root": base.cid().text(), "deltas": deltas}), receipt)
}

fn transition(request: &Value, receipt: &Value) -> Result<Cid, Error> {
    verify_transition(request.to_string().as_bytes(), receipt.to_string().as_bytes())
}

#[test]
fn a_client_derives_the_new_root_from_its_own_changes() {
    let (request, receipt) = proven_mutation();
    assert_eq!(
        transition(&request, &receipt).map(|cid| cid.text()),
        Ok(receipt["new_root"].as_str().expect("a CID").into())
    );
}

#[test]
fn forged_receipts_are_refused() {
    let (request, receipt) = proven_mutation();
    let other = Snapshot::map(Suite::Sha2_256, Arcs::default()).expect("a map").root().cid().text();
    type Forge = fn(&mut Value, &mut Value, &str);
    let forgeries: [(&str, Forge); 13] = [
        ("another new root", |_, receipt, other| receipt["new_root"] = json!(other)),
        ("another result", |_, receipt, other| receipt["deltas"][1]["result"] = json!(other)),
        ("another base in the receipt", |_, receipt, other| receipt["base_root"] = json!(other)),
        ("another base in the request", |request, _, other| request["root"] = json!(other)),
        ("another object", |_, receipt, other| receipt["deltas"][1]["object"] = json!(other)),
        ("a change that was not requested", |request, _, _| {
            request["deltas"][1]["changes"][0]["path"] = json!("newer");
        }),
        ("a change left out", |request, _, _| {
            request["deltas"][0]["changes"].as_array_mut().expect("changes").pop();
        }),
        ("a delta left out", |_, receipt, _| {
            receipt["deltas"].as_array_mut().expect("deltas").pop();
        }),
        ("a before that lies", |request, _, _| {
            request["deltas"][2]["changes"][0]["before"]["target"] = json!(payload(99_999).text());
        }),
        ("no proof", |_, receipt, _| {
            receipt["deltas"][2].as_object_mut().expect("a delta").remove("proof");
        }),
        ("a proof of fewer changes", |_, receipt, _| {
            receipt["deltas"][2]["proof"] = receipt["deltas"][0]["proof"].clone()
        }),
        ("another count", |_, receipt, _| receipt["arc_count"] = json!(4)),
        ("an unknown member", |_, receipt, _| receipt["note"] = json!("trust me")),
    ];
    for (name, forge) in forgeries {
        let (mut request, mut receipt) = (request.clone(), receipt.clone());
        forge(&mut request, &mut receipt, &other);
        let refused = transition(&request, &receipt);
        assert!(matches!(refused, Err(Error::Proof { .. })), "{name}: {refused:?}");
    }
}
