//! Exceeded limits are refused by name.

#[path = "support/store.rs"]
mod store;

use coregw_core::{Error, InputCode, Suite};
use serde_json::json;
use store::{Store, payload};

#[test]
fn a_change_whose_proof_is_too_long_is_refused_unless_made_without_proof() {
    let mut store = Store::new(0, u64::MAX);
    let paths: Vec<_> = (0..4200).map(|i| format!("{i:04}{}", "x".repeat(4092))).collect();
    let arcs = paths.iter().map(|path| (path.clone(), payload(1))).collect();
    let base = store.build(Suite::Sha2_256, &arcs);
    let change = |path: &String| json!({"path": path, "before": {"target": payload(1).text()}, "after": {"target": payload(2).text()}});
    let deltas = |paths: &[String]| json!([{"kind": "map", "changes": paths.iter().map(change).collect::<Vec<_>>()}]);
    let kept = store.pages.len();
    let refused = store.mutate(&base, &json!({"deltas": deltas(&paths), "prove": true}));
    let Err(Error::Input { code: InputCode::TooLarge, what }) = &refused else { panic!("{refused:?}") };
    assert!(what.starts_with("delta 0: the proof is "), "{what}");
    assert_eq!(store.pages.len(), kept);
    store.mutate(&base, &json!({"deltas": deltas(&paths)})).expect("it fits");
    let fewer = json!({"root": base.cid().text(), "deltas": deltas(&paths[..4000]), "prove": true});
    let receipt = store.mutate(&base, &json!({"deltas": fewer["deltas"], "prove": true})).expect("it fits");
    coregw_ops::verify_transition(fewer.to_string().as_bytes(), receipt.to_string().as_bytes()).expect("a proof");
}
