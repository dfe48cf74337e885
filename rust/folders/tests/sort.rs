//! Arcs in any order, sorted in memory or by runs in a temporary file.

use coregw_core::{Arcs, Cid, Key, Snapshot, Suite};
use coregw_folders::sort::Sorter;
use coregw_folders::watch::Watch;
use coregw_ops::json::{LineFormat, write_line};

struct Patient;

impl Watch for Patient {
    fn is_interrupted(&self) -> bool {
        false
    }

    fn progress(&self, _: u64) {}
}

fn arcs(count: u64) -> Vec<(Key, Cid)> {
    let target = Cid::from_text("bafkqaaa").expect("a CID");
    let path = |n: u64| format!("{}/{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50, n);
    (0..count).map(|n| (Key::from_text(&path(n)).expect("a path"), target)).collect()
}

fn lines(arcs: &[(Key, Cid)]) -> Vec<u8> {
    let mut out = Vec::new();
    arcs.iter().for_each(|(key, target)| write_line(key.as_bytes(), target.as_bytes(), &mut out).expect("a line"));
    out
}

#[test]
fn runs_of_any_size_give_the_same_map() {
    let arcs = arcs(5000);
    let mut all = Arcs::default();
    arcs.iter().for_each(|(key, target)| all.push(key, target));
    let root = Snapshot::map(Suite::Sha2_256, all).expect("a map").root();
    for run_bytes in [1, 20_000, 1 << 30] {
        let mut sorter = Sorter::new(None, LineFormat::Json, run_bytes);
        for chunk in lines(&arcs).chunks(10_007) {
            sorter.feed(chunk).map_err(|_| ()).expect("read");
        }
        assert!(sorter.reader().is_err());
        sorter.finish().map_err(|_| ()).expect("sorted");
        assert_eq!((sorter.count(), sorter.spooled_bytes() > 0), (5000, run_bytes < 1 << 30));
        for _ in 0..2 {
            assert_eq!(sorter.reader().expect("sorted").root(Suite::Sha2_256, &Patient), Ok(root));
        }
    }
}

#[test]
fn a_path_that_occurs_twice_is_refused_in_one_run_and_in_two() {
    let arcs = arcs(3000);
    let twice = [&arcs[..], &arcs[..1]].concat();
    for run_bytes in [20_000, 1 << 30] {
        let mut sorter = Sorter::new(None, LineFormat::Json, run_bytes);
        let ended = sorter.feed(&lines(&twice)).and_then(|()| sorter.finish());
        let is_refused = ended.is_err() || sorter.reader().expect("sorted").root(Suite::Sha2_256, &Patient).is_err();
        assert!(is_refused, "{run_bytes}");
    }
}
