//! What the core costs, next to the bare work that no implementation can do without. All ratios come from one run.
//!
//! `COREGW_BENCH_ARCS` sets the number of arcs (a million), `COREGW_BENCH_SUITE` the suite (sha2-256).

mod bare;
mod data;
mod store;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bare::Strings;
use coregw_core::{Build, Key, Snapshot, Suite, verify};
use data::{Keys, Numbers};

/// Keys looked up, and how many of them in a row: so few that a row fits between two turns of a busy machine.
const LOOKUPS: usize = 2_000;
const IN_A_ROW: usize = 200;

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// The best time of each piece of work, as all that disturbs it makes it longer. Rounds of all of them alternate; in
/// a round each is done `repeats` times.
fn best<const N: usize>(rounds: usize, repeats: usize, mut works: [&mut dyn FnMut() -> Duration; N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (work, best) in works.iter_mut().zip(&mut best) {
            (0..repeats).for_each(|_| *best = work().min(*best));
        }
    }
    best
}

/// One line of the table.
fn line(keys: &Keys, what: &str, value: f64, bar: Option<f64>, note: &str) {
    let verdict = match bar {
        Some(bar) if value <= bar => format!("<= {bar}  ok"),
        Some(bar) => format!("<= {bar}  MISSED"),
        None => String::new(),
    };
    println!("{:<16}{what:<44}{value:>9.2}  {verdict:<18}{note}", keys.name);
}

/// Some keys, their proofs, the strings that these consist of, and requests for them.
struct Row {
    picks: Vec<(Key, Vec<u8>)>,
    strings: Strings,
    requests: Vec<Vec<u8>>,
}

impl Row {
    fn new(keys: &Keys, tree: &Snapshot, numbers: &mut Numbers) -> Self {
        let root = tree.root();
        let mut row = Self { picks: Vec::new(), strings: Strings::default(), requests: Vec::new() };
        for _ in 0..IN_A_ROW {
            let key = keys.keys[numbers.below(keys.keys.len())].clone();
            let (target, proof) = tree.key(&key).expect("a map");
            let (target, proof) = (target.expect("a present key"), proof());
            assert_eq!(verify::key(&root, &key, &proof, verify::PROOF_LIMIT), Ok(Some(target)));
            bare::nodes_of_proof(root.suite, &key, target.as_bytes(), &proof, &mut row.strings);
            row.requests.push(store::map_proof_request(&root, &key));
            row.picks.push((key, proof));
        }
        row
    }

    /// How long it takes to verify, to hash, to prove and to answer.
    fn measure(&self, tree: &Snapshot, cached: &store::Cached) -> [Duration; 4] {
        let (root, picks) = (tree.root(), &self.picks);
        let mut verify =
            || time(|| picks.iter().filter(|p| verify::key(&root, &p.0, &p.1, usize::MAX).is_ok()).count());
        let mut hash = || time(|| self.strings.hash(root.suite));
        let mut prove = || self.prove(tree);
        let mut serve = || time(|| self.requests.iter().map(|request| cached.serve(request)).sum::<usize>());
        best(4, 10, [&mut verify, &mut hash, &mut prove, &mut serve])
    }

    fn prove(&self, tree: &Snapshot) -> Duration {
        time(|| self.picks.iter().map(|(key, _)| tree.key(key).expect("a map").1().len()).sum::<usize>())
    }
}

fn prove_and_verify(keys: &Keys, tree: &Snapshot) {
    let cached = store::Cached::new(tree);
    let mut numbers = Numbers::new(1);
    let rows: Vec<_> = (0..LOOKUPS / IN_A_ROW).map(|_| Row::new(keys, tree, &mut numbers)).collect();
    let measured: Vec<_> = rows.iter().map(|row| row.measure(tree, &cached)).collect();
    let all = |i: usize| measured.iter().map(|times| times[i]).sum::<Duration>();
    let [verifying, hashing, proving, serving] = [0, 1, 2, 3].map(all);
    let disturbed = rows.iter().map(|row| row.prove(tree)).sum::<Duration>();
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let each = |time: Duration| format!("{:.2} us", time.as_secs_f64() * 1e6 / LOOKUPS as f64);
    let strings = rows.iter().map(|row| row.strings.len()).sum::<usize>() / LOOKUPS;
    let note =
        format!("{} / {} ({strings} strings of {} bytes)", each(verifying), each(hashing), rows[0].strings.mean());
    line(keys, "verify one key / hash the same strings", ratio(verifying, hashing), Some(1.5), &note);
    let note = format!("{} / {}", each(proving), each(verifying));
    line(keys, "prove one key, pages cached / verify it", ratio(proving, verifying), Some(0.8), &note);
    let note = format!("{}, pages not in the processor's caches", each(disturbed));
    line(keys, "the same, the first time", ratio(disturbed, verifying), None, &note);
    let note = format!("{} (JSON in and out)", each(serving));
    line(keys, "answer a map-proof request / verify", ratio(serving, verifying), None, &note);
}

fn building(keys: &Keys, suite: Suite) {
    let strings = bare::nodes_of_map(suite, &keys.keys);
    let arcs = || data::arcs(&keys.keys);
    let [whole, pages, sorting, hashing] = best(
        5,
        1,
        [
            &mut || {
                let arcs = arcs();
                let start = Instant::now();
                let tree = Snapshot::map(suite, arcs).expect("a map");
                let time = start.elapsed();
                drop(tree);
                time
            },
            &mut || {
                let arcs = arcs();
                let start = Instant::now();
                let build = Build::arcs(suite, arcs).expect("a map");
                let time = start.elapsed();
                drop(build);
                time
            },
            &mut || time(|| bare::sort(&keys.keys)),
            &mut || time(|| strings.hash(suite)),
        ],
    );
    let bare = sorting + hashing;
    let note = format!("{whole:.2?} / ({sorting:.2?} + {hashing:.2?})");
    line(keys, "build / (sort its keys + hash its nodes)", whole.as_secs_f64() / bare.as_secs_f64(), Some(2.0), &note);
    let note = format!("{pages:.2?}");
    line(keys, "build for a store / the same", pages.as_secs_f64() / bare.as_secs_f64(), Some(2.0), &note);
}

fn main() {
    // `cargo test` and `cargo bench` pass flags of the usual harness; there is nothing to choose here.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let setting = |name: &str| std::env::var(name).ok();
    let n = setting("COREGW_BENCH_ARCS").map_or(1_000_000, |n| n.parse().expect("COREGW_BENCH_ARCS is a number"));
    let suite = setting("COREGW_BENCH_SUITE").map_or(Suite::default(), |s| Suite::from_name(&s).expect("a suite"));
    println!("coregw-core: {n} arcs, {}, one thread; the best time of each counts", suite.name());
    let sets = data::all(n);
    println!("{:<16}{:<44}{:>9}  {:<18}", "keys", "what", "value", "bar");
    for keys in &sets {
        let tree = Snapshot::map(suite, data::arcs(&keys.keys)).expect("a map");
        prove_and_verify(keys, &tree);
        store::pages(keys, &tree);
        drop(tree);
        building(keys, suite);
    }
}
