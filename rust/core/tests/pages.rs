//! Pages: what is refused as one, and that the cut depends on content alone at every size on the way up and down.

mod support;

use coregw_core::{Error, Kind, Page, Snapshot, Suite, list, map};
use support::{Arcmap, Path, pages, target};

/// Makes one change and checks that the tree is the same as built anew, page for page.
fn step(tree: &Snapshot, arcs: &mut Arcmap, path: &Path, after: Option<u16>) -> Snapshot {
    let before = arcs.get(path).copied();
    let after = after.map(target);
    match after {
        Some(target) => drop(arcs.insert(path.clone(), target).is_some()),
        None => drop(arcs.remove(path).is_some()),
    }
    let changes = map::Changes::new(vec![map::Change { key: support::key(path), before, after }]).expect("a change");
    let (changed, _) = tree.change_map(changes).expect("the change fits");
    let anew = support::map(tree.root().suite, arcs);
    assert_eq!(changed.root(), anew.root());
    assert!(pages(&changed) == pages(&anew), "another cut at {} arcs, {path:?}", arcs.len());
    changed
}

fn up_and_down(paths: &[Path]) {
    let mut arcs = Arcmap::new();
    let mut tree = support::map(Suite::Sha2_256, &arcs);
    let empty = tree.root();
    for (i, path) in paths.iter().enumerate() {
        tree = step(&tree, &mut arcs, path, Some(i as u16));
    }
    assert!(pages(&tree).len() > 4);
    for (i, path) in paths.iter().enumerate() {
        // Another order down than up.
        let path = if i % 3 == 0 { path } else { &paths[i / 3 * 3 + 3 - i % 3] };
        tree = step(&tree, &mut arcs, path, None);
    }
    assert_eq!((tree.root(), pages(&tree).len()), (empty, 1));
}

#[test]
fn numbered_files_cut_the_same_at_every_count() {
    let paths: Vec<_> = (0..450).map(|i| vec!["logs".to_owned(), format!("2024-{i:06}.txt")]).collect();
    up_and_down(&paths);
}

#[test]
fn scattered_keys_cut_the_same_at_every_count() {
    let hex = |i: u32| Suite::Blake3.digest(&i.to_be_bytes()).to_string()[..24].to_owned();
    let paths: Vec<_> = (0..450).map(|i| vec![hex(i)]).collect();
    up_and_down(&paths);
}

#[test]
fn long_keys_cut_the_same_at_every_count() {
    let name = |i: usize| format!("{:02}{}", i * 7 % 90, "x".repeat(i * 40));
    let paths: Vec<_> = (0..90).map(|i| vec!["d".repeat(400), name(i)]).collect();
    up_and_down(&paths);
}

#[test]
fn a_list_cuts_the_same_at_every_count() {
    let mut elements = Vec::new();
    let mut tree = support::list(Suite::Blake3, &elements);
    for n in (1..500).chain((0..498).rev().step_by(3)) {
        let next: support::Elements = (0..n).map(|i| (target(i as u16), 1 + i * i * i)).collect();
        let changes = list::Changes::new(support::list_changes(&elements, &next)).expect("changes");
        (tree, _) = tree.change_list(changes).expect("the changes fit");
        elements = next;
        let anew = support::list(Suite::Blake3, &elements);
        assert_eq!((tree.root(), tree.measure()), (anew.root(), anew.measure()));
        assert!(pages(&tree) == pages(&anew), "another cut at {n} elements");
    }
}

/// A map of several pages.
fn several() -> Snapshot {
    let arcs = (0..600).map(|i| (vec![format!("{i:05}")], target(i)));
    support::map(Suite::Sha2_256, &arcs.collect())
}

#[test]
fn a_page_that_shows_no_node_is_refused() {
    let tree = several();
    let top = tree.pages().next().expect("a page");
    for stub in top.stubs() {
        // A stub of the wanted digest, as bytes that "are" that page.
        let bytes = [&[3, 1][..], &stub.0, &[0, 0, 0]].concat();
        let refused = Page::parse(&bytes, Kind::Map, Suite::Sha2_256, &stub).expect_err("a stub is no page");
        assert!(matches!(&refused, Error::Damaged { what } if what.contains(&stub.to_string())), "{refused}");
        let bytes = [&[0x13, 1, 1][..], &stub.0, &[0, 0, 0]].concat();
        Page::parse(&bytes, Kind::List, Suite::Sha2_256, &stub).expect_err("a stub is no page");
    }
}

#[test]
fn a_page_is_read_under_its_own_digest_kind_and_suite_only() {
    let tree = several();
    for page in tree.pages() {
        let (bytes, digest) = (page.to_bytes(), page.digest());
        assert_eq!(Page::parse(&bytes, Kind::Map, Suite::Sha2_256, &digest).expect("a page").to_bytes(), bytes);
        let mut other = digest;
        other.0[31] ^= 1;
        for (kind, suite, digest) in [
            (Kind::Map, Suite::Sha2_256, other),
            (Kind::Map, Suite::Blake3, digest),
            (Kind::List, Suite::Sha2_256, digest),
        ] {
            let refused = Page::parse(&bytes, kind, suite, &digest).expect_err("another page");
            assert!(matches!(&refused, Error::Damaged { what } if what.contains(&digest.to_string())), "{refused}");
        }
    }
}

#[test]
fn a_spoilt_page_is_refused_or_shows_the_same_tree() {
    let tree = several();
    let page = tree.pages().min_by_key(|page| page.to_bytes().len() + 9999 * usize::from(page.stubs().count() == 0));
    let page = page.expect("a page with stubs");
    let (bytes, digest) = (page.to_bytes(), page.digest());
    let stubs: Vec<_> = page.stubs().collect();
    let mut spoilt = bytes.clone();
    let mut refused = 0;
    for i in 0..8 * bytes.len() {
        spoilt[i / 8] ^= 0x80 >> (i % 8);
        // Only what a page notes of its stubs is not hashed.
        match Page::parse(&spoilt, Kind::Map, Suite::Sha2_256, &digest) {
            Ok(page) => assert_eq!(page.stubs().collect::<Vec<_>>(), stubs),
            Err(_) => refused += 1,
        }
        spoilt[i / 8] ^= 0x80 >> (i % 8);
    }
    assert!(refused > 7 * bytes.len());
    for n in 0..bytes.len() {
        Page::parse(&bytes[..n], Kind::Map, Suite::Sha2_256, &digest).expect_err("a piece of a page");
    }
    Page::parse(&[&bytes[..], &[0]].concat(), Kind::Map, Suite::Sha2_256, &digest).expect_err("more than a page");
}
