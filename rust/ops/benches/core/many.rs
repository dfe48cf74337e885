//! Many keys of a map: single proofs verified together, and multiproofs of random and of adjacent keys.

use coregw_core::{Key, Keys, Snapshot, verify};

use crate::data::Numbers;
use crate::measure::{Place, best, each, ratio, time};
use crate::store;

/// Keys asked at once.
const KEYS: usize = 1_000;

/// Prints all figures of many keys of this map.
pub fn measure(place: Place, keys: &[Key], tree: &Snapshot) {
    let mut numbers = Numbers::new(5);
    let random = (0..KEYS).map(|_| numbers.below(keys.len())).collect::<std::collections::BTreeSet<_>>();
    let random: Vec<Key> = random.into_iter().map(|i| keys[i].clone()).collect();
    let mut adjacent = keys.to_vec();
    adjacent.sort_unstable();
    let start = numbers.below(keys.len() - KEYS + 1);
    side_by_side(place, &random, tree);
    // The bars of a million random keys; other trees are shallower, or their keys longer.
    let is_barred = place.keys == "random hex" && place.arcs == 1_000_000;
    let bar = |most| Some(most).filter(|_| is_barred);
    multiproof(place, "random", &random, tree, [bar(0.6), bar(0.6)]);
    multiproof(place, "adjacent", &adjacent[start..start + KEYS], tree, [bar(0.08), None]);
}

fn proofs(keys: &[Key], tree: &Snapshot) -> Vec<Vec<u8>> {
    keys.iter().map(|key| tree.prove(key).expect("a map")).collect()
}

fn side_by_side(place: Place, keys: &[Key], tree: &Snapshot) {
    let (root, proofs) = (tree.root(), proofs(keys, tree));
    let pairs: Vec<_> = keys.iter().zip(&proofs).map(|(key, proof)| (key, &proof[..])).collect();
    let [together, alone] = best(
        4,
        10,
        [&mut || time(|| verify::each_key(&root, &pairs, usize::MAX).expect("a map")), &mut || {
            time(|| pairs.iter().filter(|(key, proof)| verify::key(&root, key, proof, usize::MAX).is_ok()).count())
        }],
    );
    let note = format!("{} proofs, one thread", pairs.len());
    place.line("verify single proofs together / one by one", ratio(together, alone), "x", None, &note);
}

fn multiproof(place: Place, what: &str, keys: &[Key], tree: &Snapshot, [most_bytes, most_time]: [Option<f64>; 2]) {
    let (root, singles) = (tree.root(), proofs(keys, tree));
    let all = Keys::new(keys.iter().cloned().collect()).expect("distinct keys");
    let prove = || tree.keys(all.clone()).expect("a map").1();
    let proof = prove();
    let (cached, request) = (store::Cached::new(tree), store::map_proof_request_of(&root, keys));
    let verify_singles = || {
        time(|| {
            keys.iter().zip(&singles).filter(|(key, proof)| verify::key(&root, key, proof, usize::MAX).is_ok()).count()
        })
    };
    let [verifying, one_by_one, proving, proving_singles, serving] = best(
        4,
        10,
        [
            &mut || time(|| verify::keys(&root, &all, &proof, usize::MAX).expect("a proof")),
            &mut || verify_singles(),
            &mut || time(prove),
            &mut || time(|| proofs(keys, tree).len()),
            &mut || time(|| cached.serve(&request)),
        ],
    );
    let bytes = proof.len() as f64 / singles.iter().map(Vec::len).sum::<usize>() as f64;
    let name = |verb: &str| format!("{verb} a multiproof of {what} keys / single proofs");
    place.line(&name("size of"), bytes, "x", most_bytes, &format!("{} keys", keys.len()));
    place.line(&name("verify"), ratio(verifying, one_by_one), "x", most_time, "");
    place.line(&name("prove"), ratio(proving, proving_singles), "x", None, "");
    let per_key = |verb: &str| format!("{verb} a multiproof of {what} keys, per key");
    place.line(&per_key("verify"), each(verifying, keys.len()), "us", None, "");
    place.line(&per_key("prove"), each(proving, keys.len()), "us", None, "");
    place.line(&per_key("answer a request for"), each(serving, keys.len()), "us", None, "JSON in and out");
}
