//! Maps: one key, a page of a listing, a change, a build, and memory.

use std::time::{Duration, Instant};

use coregw_core::{Cid, Key, MapChange, MapChanges, OneThread, RootCid, Snapshot, Suite, Window, map, verify};

use crate::bare::{self, Strings};
use crate::data::{self, Numbers, target};
use crate::many;
use crate::measure::{Place, best, each, ratio, time};
use crate::store;

/// Keys looked up, and how many of them per row: few enough for a row to fit into a time slice of a busy machine.
const LOOKUPS: usize = 2_000;
const ROW_LENGTH: usize = 200;
/// Changes made in a row.
const CHANGES: usize = 40;
/// Entries on a page of a listing.
const ENTRIES: usize = 1_000;

/// Some keys with their proofs, the strings hashed for these, and requests.
#[derive(Default)]
struct Row {
    picks: Vec<(Key, Vec<u8>)>,
    strings: Strings,
    requests: Vec<Vec<u8>>,
}

impl Row {
    fn new(keys: &[Key], tree: &Snapshot, numbers: &mut Numbers) -> Self {
        let root = tree.root();
        let mut row = Self::default();
        for _ in 0..ROW_LENGTH {
            let key = keys[numbers.below(keys.len())].clone();
            let (target, proof) = tree.key(&key).expect("a map");
            let (target, proof) = (target.expect("a present key"), proof());
            assert_eq!(verify::key(&root, &key, &proof, verify::PROOF_LIMIT), Ok(Some(target)));
            assert_eq!(bare::nodes_of_proof(root.suite, &proof, &mut row.strings), root.digest);
            row.requests.push(store::map_proof_request(&root, &key));
            row.picks.push((key, proof));
        }
        row
    }

    /// The times to verify, to hash in a chain, to prove, to serve, and to hash independently.
    fn measure(&self, tree: &Snapshot, cached: &store::Cached) -> [Duration; 5] {
        let (root, picks) = (tree.root(), &self.picks);
        let mut verify =
            || time(|| picks.iter().filter(|p| verify::key(&root, &p.0, &p.1, usize::MAX).is_ok()).count());
        let mut strings = self.strings.clone();
        strings.link(root.suite);
        let mut hash = || strings.chain(root.suite);
        let mut prove = || self.prove(tree);
        let mut serve = || time(|| self.requests.iter().map(|request| cached.serve(request)).sum::<usize>());
        let mut side_by_side = || self.strings.floor(root.suite);
        best(4, 10, [&mut verify, &mut hash, &mut prove, &mut serve, &mut side_by_side])
    }

    fn prove(&self, tree: &Snapshot) -> Duration {
        time(|| self.picks.iter().map(|(key, _)| tree.key(key).expect("a map").1().len()).sum::<usize>())
    }
}

/// Prints all figures of the map with these keys.
pub fn measure(place: Place, keys: &[Key], suite: Suite) {
    let tree = Snapshot::map(suite, data::arcs(keys)).expect("a map");
    let verifying = one_key(place, keys, &tree);
    many::measure(place, keys, &tree);
    listing(place, &tree);
    change(place, keys, &tree, verifying);
    store::memory(place, &tree);
    store::pages(place, keys, &tree);
    drop(tree);
    building(place, keys, suite);
}

/// Returns the time to verify one key.
fn one_key(place: Place, keys: &[Key], tree: &Snapshot) -> Duration {
    let cached = store::Cached::new(tree);
    let mut numbers = Numbers::new(1);
    let rows: Vec<_> = (0..LOOKUPS / ROW_LENGTH).map(|_| Row::new(keys, tree, &mut numbers)).collect();
    let measured: Vec<_> = rows.iter().map(|row| row.measure(tree, &cached)).collect();
    let all = |i: usize| measured.iter().map(|times| times[i]).sum::<Duration>();
    let [verifying, hashing, proving, serving, side_by_side] = [0, 1, 2, 3, 4].map(all);
    let disturbed = rows.iter().map(|row| row.prove(tree)).sum::<Duration>();
    let strings = rows.iter().map(|row| row.strings.len()).sum::<usize>() / LOOKUPS;
    let note = format!("{strings} strings of {} bytes", rows[0].strings.mean());
    place.line("verify one key / hash the same strings", ratio(verifying, hashing), "x", Some(1.3), &note);
    let note = "as if no string contained another's digest";
    place.line("verify one key / hash them independently", ratio(verifying, side_by_side), "x", None, note);
    place.line("prove one key, pages cached / verify it", ratio(proving, verifying), "x", Some(0.6), "");
    let note = "pages not in the CPU caches";
    place.line("the same, first access", ratio(disturbed, verifying), "x", None, note);
    let note = "JSON in and out";
    place.line("answer a map-proof request / verify", ratio(serving, verifying), "x", None, note);
    place.line("verify one key", each(verifying, LOOKUPS), "us", None, "");
    place.line("prove one key", each(proving, LOOKUPS), "us", None, "");
    let bytes = rows.iter().flat_map(|row| &row.picks).map(|pick| pick.1.len()).sum::<usize>();
    place.line("proof of one key", bytes as f64 / LOOKUPS as f64, "bytes", None, "");
    verifying / LOOKUPS as u32
}

fn listing(place: Place, tree: &Snapshot) {
    let root = tree.root();
    let window = || Window::new::<&str, &str>(&[], None).expect("a window");
    let page = || tree.scan(window(), ENTRIES).expect("a map");
    let (listing, proof) = page();
    let (entries, proof) = (listing.entries.len(), proof());
    let mut strings = Strings::default();
    assert_eq!(bare::nodes_of_proof(root.suite, &proof, &mut strings), root.digest);
    let verify = || verify::scan(&root, window(), ENTRIES, &proof, usize::MAX).expect("a proof");
    assert_eq!(verify(), listing);
    let [verifying, hashing, proving] =
        best(4, 10, [&mut || time(verify), &mut || strings.floor(root.suite), &mut || time(|| page().1().len())]);
    let note = format!("{entries} entries, including their segments");
    place.line("verify a page of a listing / hash the same strings", ratio(verifying, hashing), "x", None, &note);
    place.line("prove a page of a listing / verify it", ratio(proving, verifying), "x", None, "");
    place.line("verify a page of a listing, per entry", each(verifying, entries), "us", None, "");
    place.line("proof of a page of a listing, per entry", proof.len() as f64 / entries as f64, "bytes", None, "");
}

fn change(place: Place, keys: &[Key], tree: &Snapshot, verifying: Duration) {
    let (root, mut numbers) = (tree.root(), Numbers::new(3));
    let changes: Vec<_> = (0..CHANGES)
        .map(|_| {
            let i = numbers.below(keys.len());
            let [before, after] = [i as u64, u64::MAX - i as u64].map(|i| Some(target(i)));
            MapChanges::new(vec![MapChange { key: keys[i].clone(), before, after }]).expect("a change")
        })
        .collect();
    let apply = |change: &MapChanges| tree.change_map(change.clone()).expect("a change that fits");
    let proofs: Vec<_> = changes.iter().map(|change| (apply(change).0.root(), apply(change).1)).collect();
    let check = |(change, (new, proof)): (&MapChanges, &(RootCid, Vec<u8>))| {
        verify::map_changes(&root, change.clone(), proof, usize::MAX).as_ref() == Ok(new)
    };
    assert!(changes.iter().zip(&proofs).all(check));
    let [applying, checking] = best(
        4,
        10,
        [&mut || time(|| changes.iter().map(|change| apply(change).1.len()).sum::<usize>()), &mut || {
            time(|| changes.iter().zip(&proofs).filter(|pair| check(*pair)).count())
        }],
    );
    let of_key = |time: Duration| ratio(time / CHANGES as u32, verifying);
    let note = "a new map, its pages, and the transition proof";
    place.line("change one arc / verify its key", of_key(applying), "x", None, note);
    place.line("verify a change of one arc / verify its key", of_key(checking), "x", None, "two paths are hashed");
    place.line("change one arc", each(applying, CHANGES), "us", None, "");
}

/// The time that `make` takes, without creating or dropping the arcs.
fn from_arcs<T>(keys: &[Key], make: impl Fn(coregw_core::Arcs) -> T) -> Duration {
    let arcs = data::arcs(keys);
    let start = Instant::now();
    let made = make(arcs);
    let time = start.elapsed();
    drop(made);
    time
}

fn building(place: Place, keys: &[Key], suite: Suite) {
    let strings = bare::nodes_of_map(suite, keys);
    let (rounds, repeats) = rounds(keys.len());
    let [whole, pages, sorting, hashing] = best(
        rounds,
        repeats,
        [
            &mut || from_arcs(keys, |arcs| Snapshot::map(suite, arcs).expect("a map")),
            &mut || from_arcs(keys, |arcs| map::build_pages(suite, arcs, &OneThread).expect("a map")),
            &mut || time(|| bare::sort(keys)),
            &mut || strings.floor(suite),
        ],
    );
    let bare = sorting + hashing;
    let note = format!("sort {:.0} %, hash {:.0} %", 100.0 * ratio(sorting, bare), 100.0 * ratio(hashing, bare));
    place.line("build / (sort its keys + hash its nodes)", ratio(whole, bare), "x", Some(1.7), &note);
    place.line("build for a store / the same", ratio(pages, bare), "x", Some(1.7), "");
    place.line("build, per arc", each(whole, keys.len()), "us", None, "");
}

/// Rounds and repeats for this many arcs: at least two rounds.
pub fn rounds(arcs: usize) -> (usize, usize) {
    ((5_000_000 / arcs).clamp(2, 5), (50_000 / arcs).clamp(1, 20))
}

/// The CIDs of `n` elements.
pub fn elements(n: u64) -> Vec<(Cid, u64)> {
    (0..n).map(|i| (target(i), 1)).collect()
}
