//! What a survey of a folder finds, skips and leaves out.
#![cfg(unix)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use coregw_core::Result;
use coregw_folders::entries::EntryKind;
use coregw_folders::survey::{Purpose, Survey, SurveyTop};
use coregw_folders::watch::Watch;
use tempfile::TempDir;

/// A caller who ends the work at once, or never.
struct Caller(bool);

impl Watch for Caller {
    fn is_interrupted(&self) -> bool {
        self.0
    }

    fn progress(&self, _: u64) {}
}

fn folder(files: &[&str]) -> TempDir {
    let top = tempfile::tempdir().expect("a folder");
    for file in files {
        let file = top.path().join(file);
        fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        fs::write(&file, file.file_name().expect("a name").as_bytes()).expect("written");
    }
    top
}

fn survey(top: &Path, exclude: &[&str], purpose: &str) -> Result<Survey> {
    let exclude: Vec<OsString> = exclude.iter().map(OsString::from).collect();
    let purpose = Purpose::new(purpose, None)?;
    SurveyTop::open(top.to_owned()).expect("opened").survey(&exclude, false, purpose, &Caller(false))
}

fn paths(found: &Survey) -> Vec<String> {
    (0..found.entries.count()).map(|index| found.entries.path(index).to_string_lossy().into_owned()).collect()
}

#[test]
fn entries_are_in_the_order_of_keys() {
    let top = folder(&["b/c", "b-a", "b.a", "a", "b/d/e"]);
    symlink("nowhere", top.path().join("link")).expect("made");
    let found = survey(top.path(), &[], "add").expect("surveyed");
    // What is in a folder comes before the siblings whose names continue the folder's.
    assert_eq!(paths(&found), ["a", "b", "b/c", "b/d", "b/d/e", "b-a", "b.a", "link"]);
    assert_eq!((found.counts.files, found.counts.links, found.counts.folders), (5, 1, 2));
    assert_eq!(found.counts.bytes, 1 + 1 + 1 + 3 + 3);
    assert_eq!(found.entries.link(7), b"nowhere");
    assert!((0..8).all(|index| found.location(index).symlink_metadata().is_ok()));
}

#[test]
fn many_folders_on_all_cores_give_each_entry_once() {
    let files: Vec<String> = (0..3000).map(|n| format!("{:02}/{:02}/{}", n % 31, n % 37, n)).collect();
    let top = folder(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let found = survey(top.path(), &[], "add").expect("surveyed");
    let is_file = |index: &usize| found.entries.kind(*index) == EntryKind::File;
    let all = paths(&found);
    let mut listed: Vec<_> = (0..all.len()).filter(is_file).map(|at| all[at].clone()).collect();
    let mut wanted = files;
    wanted.sort();
    listed.sort();
    assert_eq!(listed, wanted);
}

#[test]
fn links_to_folders_are_not_entered() {
    let outside = folder(&["secret"]);
    let top = folder(&["a"]);
    symlink(outside.path(), top.path().join("link")).expect("made");
    symlink("..", top.path().join("up")).expect("made");
    let found = survey(top.path(), &[], "strict").expect("surveyed");
    assert_eq!(paths(&found), ["a", "link", "up"]);
    assert_eq!(found.entries.kind(1), EntryKind::Link);
    // Nor is a link followed that takes a file's place later.
    fs::remove_file(top.path().join("a")).expect("removed");
    symlink(outside.path().join("secret"), top.path().join("a")).expect("made");
    assert!(found.open(0).is_err());
}

#[test]
fn what_no_map_has_is_refused_skipped_or_left_out() {
    let top = folder(&["a", ".coregw/x", "b/.coregw"]);
    fs::write(top.path().join(OsStr::from_bytes(b"z\xff")), "").expect("written");
    fs::write(top.path().join(OsStr::from_bytes(b"y\xff")), "").expect("written");
    let refused = survey(top.path(), &[], "add").err().expect("refused").to_string();
    assert!(refused.contains(r"y\xff") && refused.contains("not UTF-8"), "{refused}");
    for (purpose, skipped, left_out) in [("keep", 3, 0), ("strict", 3, 0), ("as-added", 2, 1)] {
        let found = survey(top.path(), &[], purpose).expect("surveyed");
        // Only at the top is the name reserved.
        assert_eq!(paths(&found), ["a", "b", "b/.coregw"], "{purpose}");
        assert_eq!((found.skips.len(), found.left_out.len()), (skipped, left_out), "{purpose}");
    }
}

#[test]
fn patterns_leave_out_and_the_nearest_file_of_patterns_counts_first() {
    let top = folder(&["a.o", "b/a.o", "b/keep.o", "c/deep/a.o", "d", ".git/config"]);
    fs::write(top.path().join(".coregwignore"), "*.o\n").expect("written");
    fs::write(top.path().join("b/.coregwignore"), "!keep.o\n").expect("written");
    let found = survey(top.path(), &["d"], "add").expect("surveyed");
    assert_eq!(paths(&found), [".coregwignore", "b", "b/.coregwignore", "b/keep.o", "c", "c/deep"]);
    let left_out: Vec<_> =
        found.left_out.iter().map(|skip| skip.file.strip_prefix(top.path()).expect("below").to_owned()).collect();
    assert_eq!(left_out, [".git", "a.o", "b/a.o", "c/deep/a.o", "d"].map(std::path::PathBuf::from));
    // A strict survey reads no patterns.
    assert_eq!(survey(top.path(), &[], "strict").expect("surveyed").counts.files, 8);
}

#[test]
fn an_interrupt_ends_the_walk() {
    let top = folder(&["a", "b/c"]);
    let opened = SurveyTop::open(top.path().to_owned()).expect("opened");
    let found = opened.survey(&[], false, Purpose::new("add", None).expect("known"), &Caller(true));
    assert_eq!(found.expect("what was found until then").entries.count(), 0);
}

#[test]
fn a_single_file_is_its_name() {
    let top = folder(&["a"]);
    let found = survey(&top.path().join("a"), &[], "add").expect("surveyed");
    assert_eq!(paths(&found), ["a"]);
    let file = found.location(0);
    assert_eq!(file, top.path().canonicalize().expect("resolved").join("a"));
    assert!(survey(Path::new("/dev/null"), &[], "add").is_err());
}
