//! The stat cache of a restored folder: files in any order come back in key order, and doubtful ones not at all.
#![cfg(unix)]

use std::path::Path;

use coregw_core::Cid;
use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_folders::stat_file::{Header, Stat, StatFile, StatSorter};

fn target(number: u64) -> Cid {
    payload::cid(&number.to_le_bytes(), Codec::RAW, Function::Sha2_256).expect("a payload")
}

fn stat(inode: u64, mtime: i64, ctime: i64) -> Stat {
    Stat { inode, size: 5, mtime, ctime }
}

fn header(before: i64) -> Header {
    Header { folder: b"/folder".to_vec(), options: b"restored".to_vec(), before, ..Header::default() }
}

/// The paths and inodes of the files that are known.
fn known(file: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let opened = StatFile::open(file, b"/folder", b"restored").expect("whole");
    let read = opened.each_final(|path, stat, cid| {
        assert_eq!(*cid, target(stat.inode));
        found.push((String::from_utf8_lossy(path).into_owned(), stat.inode));
    });
    read.expect("read");
    found
}

#[test]
fn files_come_back_in_key_order_with_a_temporary_file_and_without() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("cache");
    let path = |number: u64| match number {
        0 => "a".to_owned(),
        1 => "a-b".to_owned(),
        2 => "a/b".to_owned(),
        _ => format!("d{}/{number}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60),
    };
    for run_files in [None, Some(1), Some(7), Some(500)] {
        let mut sorter = StatSorter::new(home.path().to_path_buf(), run_files);
        for number in 0..500 {
            sorter.add(path(number).as_bytes(), stat(number, 7, 7), &target(number)).expect("added");
        }
        // No path of the format is as long as that.
        sorter.add(&vec![b'x'; 1 << 17], stat(1, 7, 7), &target(1)).expect("left out");
        sorter.write(&file, &header(100)).expect("written");
        let mut expected: Vec<_> = (0..500).map(|number| (path(number), number)).collect();
        expected.sort_by_key(|(path, _)| path.split('/').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(known(&file), expected, "{run_files:?}");
        assert_eq!(home.path().read_dir().expect("read").count(), 1);
    }
    StatSorter::new(home.path().to_path_buf(), None).write(&file, &header(100)).expect("written");
    assert_eq!(known(&file), []);
}

#[test]
fn a_file_whose_times_a_later_change_could_have_is_not_known() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("cache");
    let (second, before) = (1_000_000_000, 1_000_000_000_000_000_007);
    for (mtime, ctime, is_known) in [
        (before - 1, before - 1, true),
        (before, before - 1, false),
        (before - 1, before, false),
        (before - 1, before + second, false),     // the clock was set back meanwhile
        (before - 1, before - 7 - second, false), // a file system that counts in two seconds
        (before - 1, before - 7 - 2 * second, true), // the same, but long enough ago
    ] {
        let mut sorter = StatSorter::new(home.path().to_path_buf(), None);
        sorter.add(b"f", stat(1, mtime, ctime), &target(1)).expect("added");
        sorter.write(&file, &header(before)).expect("written");
        assert_eq!(known(&file).len(), usize::from(is_known), "{mtime} {ctime}");
    }
}

#[test]
fn entries_that_are_longer_than_what_is_read_at_once_come_back() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("cache");
    let path = |number: u64| format!("{number:03}{}", "x".repeat(number as usize * 400));
    for run_files in [None, Some(9)] {
        let mut sorter = StatSorter::new(home.path().to_path_buf(), run_files);
        for number in (0..160).rev() {
            sorter.add(path(number).as_bytes(), stat(number, 7, 7), &target(number)).expect("added");
        }
        sorter.write(&file, &header(100)).expect("written");
        assert_eq!(known(&file), (0..160).map(|number| (path(number), number)).collect::<Vec<_>>(), "{run_files:?}");
    }
}
