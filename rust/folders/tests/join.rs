//! The two listings of a folder, joined: what is accepted, and what each refusal says.

use std::collections::BTreeMap;
use std::sync::Arc;

use coregw_core::map::MapBuilder;
use coregw_core::{Cid, Kind, Result, RootCid, Suite};
use coregw_folders::{ATTRIBUTES_PATH, Attributes, Entry, FolderEntry, FolderJoin, PathKind, RESERVED_NAME, Records};

fn path(text: &str) -> Vec<String> {
    text.split('/').map(str::to_owned).collect()
}

fn record(entry: Entry) -> Cid {
    let size = (entry == Entry::File).then_some(7);
    Attributes { entry, size, ..Attributes::default() }.record().expect("valid").target
}

fn empty_map() -> RootCid {
    MapBuilder::new(Suite::Sha2_256).finish().expect("valid").root
}

fn payload() -> Cid {
    Cid::from_text("bafkqaaa").expect("valid")
}

/// Joins pages of these sizes, taking what is joined after each page.
fn joined(files: &[(&str, Cid)], records: &[(&str, Cid)], sizes: (usize, usize)) -> Result<Vec<FolderEntry>> {
    let (mut join, mut known) = (FolderJoin::new(empty_map()), Records::new(true));
    let pages = |entries: &[(&str, Cid)], size: usize| -> Vec<Vec<_>> {
        entries.chunks(size).map(|page| page.iter().map(|(name, cid)| (path(name), *cid)).collect()).collect()
    };
    let (files, records) = (pages(files, sizes.0), pages(records, sizes.1));
    let (mut taken, last) = (Vec::new(), (files.len(), records.len()));
    let mut records = records.into_iter().enumerate();
    for (number, page) in files.into_iter().enumerate() {
        join.add_files(page, number + 1 < last.0)?;
        if !join.may_have_attributes()
            && let Some((number, page)) = records.next()
        {
            join.add_records(&mut known, page, number + 1 < last.1)?;
        }
        while let Some(entry) = join.next_entry()? {
            taken.push(entry);
        }
    }
    for (number, page) in records {
        join.add_records(&mut known, page, number + 1 < last.1)?;
        while let Some(entry) = join.next_entry()? {
            taken.push(entry);
        }
    }
    assert_eq!(join.waiting(), (0, 0));
    Ok(taken)
}

#[test]
fn pages_of_any_size_give_the_same_entries() {
    let mut model = BTreeMap::new();
    for number in 0..40 {
        let kind = [PathKind::File, PathKind::File, PathKind::Link, PathKind::Folder][number % 4];
        model.insert(path(&format!("{}/{number:02}", ["!", "a", "z"][number % 3])), (kind, number % 5 == 0));
    }
    let names: Vec<String> = model.keys().map(|path| path.join("/")).collect();
    let (mut files, mut records) = (Vec::new(), Vec::new());
    for (name, (kind, is_bare)) in names.iter().zip(model.values()) {
        if *kind == PathKind::File {
            files.push((name.as_str(), payload()));
        }
        match kind {
            PathKind::File if *is_bare => (),
            PathKind::File => records.push((name.as_str(), record(Entry::File))),
            PathKind::Link => records.push((name.as_str(), record(Entry::Link(b"go".to_vec())))),
            _ => records.push((name.as_str(), record(Entry::Folder))),
        }
    }
    files.push((ATTRIBUTES_PATH, empty_map().cid()));
    files.sort_by_key(|(name, _)| path(name));
    for sizes in [(1, 1), (2, 7), (7, 2), (1, 99), (99, 1), (99, 99)] {
        let entries = joined(&files, &records, sizes).expect("valid");
        let kinds: Vec<_> = entries.iter().map(|entry| (entry.segments.clone(), entry.kind)).collect();
        assert_eq!(kinds, model.iter().map(|(path, (kind, _))| (path.clone(), *kind)).collect::<Vec<_>>());
        for entry in entries {
            let is_bare = model[&entry.segments].1 && entry.kind == PathKind::File;
            assert_eq!(entry.attributes.is_none(), is_bare);
            assert_eq!(entry.target.is_some(), entry.kind == PathKind::File);
        }
    }
}

#[test]
fn entries_of_a_folder_without_attributes_do_not_wait_for_its_end() {
    let mut join = FolderJoin::new(empty_map());
    join.add_files(vec![(path("!"), payload())], true).expect("valid");
    assert!(join.may_have_attributes());
    assert_eq!(join.next_entry().expect("valid"), None);
    // The reserved path is not the only one that may follow its first segment.
    let mut other = FolderJoin::new(empty_map());
    other.add_files(vec![(path(".coregw/a"), payload())], true).expect("valid");
    assert_eq!((other.may_have_attributes(), other.attributes_root()), (true, None));
    other.add_files(vec![(path(ATTRIBUTES_PATH), empty_map().cid())], true).expect("valid");
    assert_eq!((other.may_have_attributes(), other.attributes_root()), (false, Some(empty_map())));
    join.add_files(vec![(path("a"), payload())], true).expect("valid");
    assert!(!join.may_have_attributes());
    assert_eq!(join.next_entry().expect("valid").expect("valid").segments, path("!"));
    assert_eq!(join.next_entry().expect("valid").expect("valid").segments, path("a"));
    assert_eq!(join.next_entry().expect("valid"), None);
}

#[test]
fn contradictions_are_refused_and_named() {
    let link = record(Entry::Link(b"go".to_vec()));
    let (map, attributes) = (empty_map().cid(), (ATTRIBUTES_PATH, empty_map().cid()));
    for (file, records, why) in [
        (None, vec![("a", record(Entry::File))], "a: it has a file's attributes, and no file"),
        (Some(("a", payload())), vec![("a", link)], "a: it is a file with the attributes of a link"),
        (Some(("a", payload())), vec![("a", record(Entry::Folder))], "a: it is a file with the attributes of a folder"),
        (Some(("a", map)), vec![("a", record(Entry::File))], "a: it is a map with the attributes of a file"),
        (Some(("a", map)), vec![("a", link)], "a: it is a map with the attributes of a link"),
        (Some(("a/b", payload())), vec![("a", link)], "a/b: it is below a symbolic link"),
        (Some(("a", payload())), vec![("a", payload())], "the attributes of a: "),
        (None, vec![(".coregw", link)], ".coregw: it is reserved"),
        (None, vec![(".coregw", record(Entry::File))], ".coregw: it is reserved"),
    ] {
        let files: Vec<_> = [attributes].into_iter().chain(file).collect();
        let error = joined(&files, &records, (1, 1)).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    }
    for target in [map, payload()] {
        let files = [(RESERVED_NAME, target), attributes];
        let error = joined(&files, &[(RESERVED_NAME, record(Entry::Folder))], (1, 1)).expect_err("refused").to_string();
        assert!(error.contains(".coregw: it is reserved"), "{error}");
    }
    let others = [RootCid { kind: Kind::List, ..empty_map() }, RootCid { suite: Suite::Blake3, ..empty_map() }];
    for target in others.iter().map(RootCid::cid).chain([payload()]) {
        let error = joined(&[(ATTRIBUTES_PATH, target)], &[], (1, 1)).expect_err("refused").to_string();
        assert!(error.contains("is not a map of the folder's suite"), "{error}");
    }
}

#[test]
fn the_record_of_the_folder_itself_is_no_entry() {
    let files = [("!", payload()), (ATTRIBUTES_PATH, empty_map().cid()), ("a", payload())];
    let records = [(RESERVED_NAME, record(Entry::Folder)), ("a", record(Entry::File))];
    for sizes in [(1, 1), (9, 9)] {
        let entries = joined(&files, &records, sizes).expect("valid");
        let names: Vec<_> = entries.iter().map(|entry| entry.segments.join("/")).collect();
        assert_eq!(names, ["!", "a"]);
    }
    let (mut join, mut known) = (FolderJoin::new(empty_map()), Records::new(true));
    join.add_files(vec![(path(ATTRIBUTES_PATH), empty_map().cid())], false).expect("valid");
    join.add_records(&mut known, vec![(path(RESERVED_NAME), record(Entry::Folder))], false).expect("valid");
    assert!(join.top().is_none());
    assert_eq!(join.next_entry(), Ok(None));
    assert_eq!(join.top().expect("recorded").entry, Entry::Folder);
}

#[test]
fn nested_maps_are_maps_with_the_attributes_of_a_folder_or_none() {
    let map = empty_map().cid();
    let files = [(ATTRIBUTES_PATH, map), ("a", map), ("b", map)];
    let entries = joined(&files, &[("b", record(Entry::Folder))], (1, 1)).expect("valid");
    let found: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.attributes.is_some())).collect();
    assert_eq!(found, [(PathKind::Map, false), (PathKind::Map, true)]);
}

#[test]
fn records_that_are_payloads_are_waited_for() {
    let long = Attributes { entry: Entry::Link(vec![b'x'; 200]), ..Attributes::default() }.record().expect("valid");
    let (mut join, mut known) = (FolderJoin::new(empty_map()), Records::new(true));
    join.add_files(vec![(path(ATTRIBUTES_PATH), empty_map().cid()), (path("b"), payload())], false).expect("valid");
    join.add_records(&mut known, vec![(path("a"), long.target)], false).expect("valid");
    assert_eq!(join.next_entry().expect("valid"), None);
    assert_eq!(join.missing_records().collect::<Vec<_>>(), [&long.target]);
    assert_eq!(join.waiting(), (1, 1));
    assert!(join.supply_record(&mut known, &long.target, b"another").is_err());
    join.supply_record(&mut known, &long.target, &long.bytes).expect("valid");
    assert_eq!(join.next_entry().expect("valid").expect("valid").kind, PathKind::Link);
    assert_eq!(join.next_entry().expect("valid").expect("valid").segments, path("b"));
}

#[test]
fn a_record_that_many_paths_share_is_wanted_and_kept_once() {
    let xattrs = BTreeMap::from([("user.a".to_owned(), vec![b'x'; 4000])]);
    let long = Attributes { entry: Entry::Folder, xattrs, ..Attributes::default() };
    let record = long.record().expect("valid");
    for has_xattrs in [true, false] {
        let mut known = Records::new(has_xattrs);
        let mut found = Vec::new();
        for number in 0..2 {
            // Another map of the same tree wants nothing more.
            let mut join = FolderJoin::new(empty_map());
            join.add_files(vec![(path(ATTRIBUTES_PATH), empty_map().cid())], false).expect("valid");
            for page in 0..2 {
                let entries = (0..50).map(|at| (path(&format!("{page}{at:02}")), record.target)).collect();
                join.add_records(&mut known, entries, page == 0).expect("valid");
                let missing: Vec<_> = join.missing_records().copied().collect();
                assert_eq!(missing.len(), usize::from((number, page) == (0, 0)));
                for target in missing {
                    join.supply_record(&mut known, &target, &record.bytes).expect("valid");
                }
            }
            while let Some(entry) = join.next_entry().expect("valid") {
                found.push(entry.attributes.expect("recorded"));
            }
        }
        assert_eq!(found.len(), 200);
        assert!(found.iter().all(|each| Arc::ptr_eq(each, &found[0])));
        assert_eq!(found[0].xattrs.is_empty(), !has_xattrs);
    }
}

#[test]
fn decoded_records_are_joined_one_by_one_and_the_reserved_path_is_left_out() {
    let known = |entry: Entry| Arc::new(Attributes { entry, ..Attributes::default() });
    let mut join = FolderJoin::of_decoded();
    join.add_files(vec![(path(ATTRIBUTES_PATH), payload())], true).expect("not a root, and not asked for");
    assert_eq!((join.waiting(), join.attributes_root()), ((0, 0), None));
    join.add_files(vec![(path("b"), payload())], true).expect("valid");
    join.add_decoded(vec![(path("a"), known(Entry::Folder))], true);
    assert_eq!(join.next_entry().expect("valid").expect("joined").kind, PathKind::Folder);
    // That of the folder itself is none of them, and a file waits for the record that it may have.
    join.add_decoded(vec![(path(RESERVED_NAME), known(Entry::Folder))], true);
    assert_eq!(join.next_entry(), Ok(None));
    join.add_decoded(vec![(path("b"), known(Entry::File))], true);
    let file = join.next_entry().expect("valid").expect("joined");
    assert!(file.kind == PathKind::File && file.attributes.is_some());
    join.add_files(vec![(path("c"), payload())], false).expect("valid");
    join.add_decoded(Vec::new(), false);
    assert_eq!(join.next_entry().expect("valid").expect("joined").attributes, None);
    assert_eq!(join.next_entry(), Ok(None));
}
