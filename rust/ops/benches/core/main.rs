//! The cost of the core, compared with the bare work that no implementation can avoid. All ratios come from one run.
//!
//! `cargo bench -p coregw-ops --bench core -- [--json] [ARCS]...`: the sizes of the trees (a million); with `--json` each
//! figure is a line of JSON. `COREGW_BENCH_SUITE` sets the suite (sha2-256).

mod bare;
mod data;
mod lists;
mod many;
mod maps;
mod measure;
mod store;

use coregw_core::Suite;
use measure::Place;

fn main() {
    // `cargo test` and `cargo bench` pass flags of the usual harness.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let json = args.iter().any(|arg| arg == "--json");
    let suite = std::env::var("COREGW_BENCH_SUITE").ok();
    let suite = suite.map_or(Suite::default(), |name| Suite::from_name(&name).expect("a suite"));
    let mut sizes: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if sizes.is_empty() {
        sizes.push(1_000_000);
    }
    eprintln!("coregw: {}, one thread; best times", suite.name());
    for arcs in sizes {
        for kind in data::KINDS {
            let keys = data::keys(kind, arcs);
            maps::measure(Place { keys: kind, arcs, json }, &keys, suite);
        }
        lists::measure(Place { keys: "list", arcs, json }, suite);
    }
}
