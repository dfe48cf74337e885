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

/// Keys looked up in each round.
const LOOKUPS: usize = 2_000;
/// Rounds; the best of each side counts, as all that disturbs a round makes it longer.
const ROUNDS: usize = 25;

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// The best time of each piece of work, their rounds interleaved.
fn best<const N: usize>(rounds: usize, mut works: [&mut dyn FnMut() -> Duration; N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (work, best) in works.iter_mut().zip(&mut best) {
            *best = work().min(*best);
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

fn each(time: Duration, n: usize) -> String {
    format!("{:.2} us", time.as_secs_f64() * 1e6 / n as f64)
}

fn lookups(keys: &Keys, tree: &Snapshot) -> Vec<(Key, Vec<u8>)> {
    let mut numbers = Numbers::new(1);
    let pick = |_| {
        let key = keys.keys[numbers.below(keys.keys.len())].clone();
        let proof = tree.key(&key).expect("a map").1();
        (key, proof)
    };
    (0..LOOKUPS).map(pick).collect()
}

fn prove_and_verify(keys: &Keys, tree: &Snapshot) {
    let (root, picks) = (tree.root(), lookups(keys, tree));
    let mut strings = Strings::default();
    for (key, proof) in &picks {
        let found = verify::key(&root, key, proof, verify::PROOF_LIMIT).expect("a proof").expect("a present key");
        bare::nodes_of_proof(root.suite, key, found.as_bytes(), proof, &mut strings);
    }
    let mut cached = store::Cached::new(tree);
    let requests: Vec<_> = picks.iter().map(|(key, _)| store::map_proof_request(&root, key)).collect();
    let [verifying, hashing, proving, serving] = best(
        ROUNDS,
        [
            &mut || {
                time(|| picks.iter().filter(|(k, p)| verify::key(&root, k, p, verify::PROOF_LIMIT).is_ok()).count())
            },
            &mut || time(|| strings.hash(root.suite)),
            &mut || time(|| picks.iter().map(|(key, _)| tree.key(key).expect("a map").1().len()).sum::<usize>()),
            &mut || time(|| requests.iter().map(|request| cached.serve(request)).sum::<usize>()),
        ],
    );
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    let n = picks.len();
    let note = format!(
        "{} / {} ({} strings of {} bytes)",
        each(verifying, n),
        each(hashing, n),
        strings.len() / n,
        strings.mean()
    );
    line(keys, "verify one key / hash the same strings", ratio(verifying, hashing), Some(1.5), &note);
    let note = format!("{} / {}", each(proving, n), each(verifying, n));
    line(keys, "prove one key, pages in memory / verify it", ratio(proving, verifying), Some(0.8), &note);
    let note = format!("{} (JSON in and out)", each(serving, n));
    line(keys, "serve one map-proof, pages cached / verify", ratio(serving, verifying), None, &note);
}

fn building(keys: &Keys, suite: Suite) {
    let strings = bare::nodes_of_map(suite, &keys.keys);
    let arcs = || data::arcs(&keys.keys);
    let [whole, pages, sorting, hashing] = best(
        3,
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
    println!("coregw-core: {n} arcs, {}, one thread; times are the best of {ROUNDS} rounds", suite.name());
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
