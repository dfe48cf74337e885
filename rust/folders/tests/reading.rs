//! Files that are read and hashed by threads, and the cache of what was known of them.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, Suite};
use coregw_folders::FolderRoots;
use coregw_folders::changes::{Changes, changes};
use coregw_folders::contents::Chunk;
use coregw_folders::hashed::{Hashed, Recorded};
use coregw_folders::reading::{self, Reading};
use coregw_folders::stat_file::{self, Header, StatFile};
use coregw_folders::survey::{Purpose, SurveyTop};
use coregw_folders::watch::Watch;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

struct Patient;

impl Watch for Patient {
    fn is_interrupted(&self) -> bool {
        false
    }

    fn progress(&self, _: u64) {}
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let top = tempfile::tempdir().expect("a folder");
    for (file, bytes) in files {
        let file = top.path().join(file);
        fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        fs::write(file, bytes).expect("written");
    }
    top
}

/// A survey of a folder of which nothing is read yet.
fn found(top: &Path) -> Arc<Reading> {
    let purpose = Purpose::new("add", None).expect("known");
    let survey = SurveyTop::open(top.to_owned()).expect("opened").survey(&[], false, purpose, &Patient);
    Arc::new(Reading::new(Hashed::new(Arc::new(survey.expect("surveyed")), Suite::Sha2_256), false))
}

fn recorded() -> Recorded {
    Recorded::new("all", false).expect("known")
}

fn roots(reading: &Reading) -> FolderRoots {
    reading.hashed().roots(recorded(), &Patient).expect("roots")
}

/// All payloads that are collected, each of which comes once.
fn collect(reading: &Reading) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut payloads = BTreeMap::new();
    let mut is_flushed = false;
    loop {
        match reading.next(PATIENCE).expect("no failure") {
            Some((number, draft)) => {
                for (cid, frame) in draft.cids().chunks(36).zip(draft.frames()) {
                    let bytes = &frame[frame.len() - coregw_folders::upload::Draft::payload_len(frame) as usize..];
                    assert!(payloads.insert(cid.to_vec(), bytes.to_vec()).is_none());
                }
                let digests: Vec<_> = draft.digests().collect();
                reading.acknowledge(number, &digests);
            }
            None if is_flushed && reading.is_at_end() => return payloads,
            None if reading.is_at_end() => {
                reading.flush();
                is_flushed = true;
            }
            None => {}
        }
    }
}

fn read(reading: &Arc<Reading>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    Reading::start(reading, true).expect("started");
    collect(reading)
}

fn cid(bytes: &[u8]) -> Cid {
    payload::cid(bytes, Codec::RAW, Function::Sha2_256).expect("a payload")
}

fn noise(len: u64) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(n ^ 0x9e37_79b9_7f4a_7c15) >> 17) as u8).collect()
}

#[test]
fn each_payload_is_collected_once_and_lists_have_all_their_chunks() {
    let long = noise(6 << 20);
    let top = folder(&[("a", b"hello"), ("b/again", b"hello"), ("empty", b""), ("long", &long)]);
    let reading = found(top.path());
    let payloads = read(&reading);
    assert!(payloads.iter().all(|(name, bytes)| cid(bytes).as_bytes() == name));
    assert!(payloads.contains_key(cid(b"hello").as_bytes()) && payloads.contains_key(cid(b"").as_bytes()));
    let hashed = reading.hashed();
    let totals = hashed.totals();
    assert_eq!((totals.files, totals.lists, totals.bytes), (4, 1, (6 << 20) + 10));
    assert_eq!(hashed.targets.get(0), Some(cid(b"hello")));
    let lists = reading.take_lists(true).expect("lists");
    assert_eq!(lists.iter().map(|list| Some(list.root().cid())).collect::<Vec<_>>(), [hashed.targets.get(4)]);
    assert_eq!(payloads.values().map(Vec::len).sum::<usize>(), (6 << 20) + 5);
    // The same without payloads.
    let (other, chunks) = read_all(Hashed::new(Arc::clone(&hashed.survey), Suite::Sha2_256));
    assert_eq!(other.roots(recorded(), &Patient), Ok(roots(&reading)));
    assert_eq!(chunks.keys().copied().collect::<Vec<_>>(), [4]);
    assert!(chunks[&4].iter().all(|chunk| payloads[chunk.cid().as_bytes()].len() == chunk.len as usize));
}

fn read_all(hashed: Hashed) -> (Arc<Hashed>, BTreeMap<usize, Vec<Chunk>>) {
    reading::read_all(hashed, false, &Patient).expect("read")
}

#[test]
fn files_whose_targets_are_known_are_not_read() {
    let top = folder(&[("a", b"hello"), ("b", b"hello")]);
    let mut hashed = Hashed::clone(&found(top.path()).hashed());
    let state = hashed.survey.entries.state(0).with_size(7);
    hashed.take(0, &cid(b"another"), state);
    let (hashed, _) = read_all(hashed);
    assert_eq!([0, 1].map(|index| hashed.targets.get(index)), [Some(cid(b"another")), Some(cid(b"hello"))]);
    assert_eq!(hashed.totals().bytes, 12);
}

/// A caller who ends the work, or panics, when it is first asked.
struct Impatient(bool, AtomicU64);

impl Watch for Impatient {
    fn is_interrupted(&self) -> bool {
        assert!(self.0, "of the caller");
        true
    }

    fn progress(&self, bytes: u64) {
        self.1.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn a_caller_ends_the_reading_of_a_file() {
    let top = folder(&[]);
    // Gigabytes without a byte on the disk.
    fs::File::create(top.path().join("long")).and_then(|file| file.set_len(1 << 40)).expect("made");
    let hashed = || Hashed::clone(&found(top.path()).hashed());
    let caller = Impatient(true, AtomicU64::new(0));
    let (ended, chunks) = reading::read_all(hashed(), false, &caller).expect("ended");
    assert!(!ended.targets.is_known(0) && ended.all_skips().is_empty() && chunks.is_empty());
    assert!(caller.1.load(Ordering::Relaxed) < 1 << 40);
    let panicked = catch_unwind(|| reading::read_all(hashed(), false, &Impatient(false, AtomicU64::new(0))));
    assert_eq!(panicked.err().and_then(|panic| panic.downcast_ref::<&str>().copied()), Some("of the caller"));
}

#[test]
fn a_panic_of_a_thread_that_reads_is_raised_in_the_caller() {
    let top = folder(&[("a", b"hello")]);
    let reading = found(top.path());
    Reading::spawn(&reading, |_| panic!("of a reader")).expect("started");
    // Until it was passed on, nobody takes the files for read.
    assert!(!reading.is_at_end());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        while !reading.is_at_end() {
            let _none = reading.next(PATIENCE);
        }
    }));
    let panic = panicked.expect_err("it is raised again");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of a reader"));
    // The others go on, and the locks are of use.
    assert!(reading.is_at_end());
    assert_eq!(read(&reading).len(), 1);
}

#[test]
fn an_error_of_a_thread_that_reads_is_raised_in_the_caller() {
    let top = folder(&[]);
    let reading = found(top.path());
    Reading::spawn(&reading, |_| Err(Error::request("of a reader"))).expect("started");
    let raised = loop {
        match reading.next(PATIENCE) {
            Ok(_) => assert!(!reading.is_at_end()),
            Err(error) => break error,
        }
    };
    assert_eq!(raised, Error::request("of a reader"));
}

#[test]
fn files_that_cannot_be_read_are_skipped_and_named() {
    let top = folder(&[("gone", b"1"), ("here", b"2"), ("replaced", b"3")]);
    let reading = found(top.path());
    fs::remove_file(top.path().join("gone")).expect("removed");
    fs::remove_file(top.path().join("replaced")).expect("removed");
    std::os::unix::fs::symlink("here", top.path().join("replaced")).expect("made");
    assert_eq!(read(&reading).len(), 1);
    let hashed = reading.hashed();
    let skips: Vec<_> = hashed.all_skips().into_iter().map(|skip| (skip.file, skip.why)).collect();
    assert_eq!(skips.len(), 2);
    assert_eq!(skips[1], (top.path().join("replaced"), "a symbolic link".to_owned()));
    assert_eq!([0, 1, 2].map(|index| hashed.targets.is_known(index)), [false, true, false]);
}

/// The cache of a folder that was read, beside it.
fn save(top: &Path, file: &Path, reading: &Reading, before: i64) -> Header {
    let header = Header {
        folder: top.as_os_str().as_bytes().to_vec(),
        options: b"options".to_vec(),
        before,
        root: roots(reading).root.cid().text().into_bytes(),
        attributes: Vec::new(),
        top: Vec::new(),
    };
    stat_file::write(file, &header, &reading.hashed(), recorded()).expect("written");
    header
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

const LATER: i64 = 10_000_000_000;

#[test]
fn a_folder_that_has_not_changed_is_not_read_again() {
    let (top, beside) = (folder(&[("a", b"1"), ("b/c", b"2"), ("b-c", b"3")]), folder(&[]));
    let first = found(top.path());
    read(&first);
    let file = beside.path().join("cache");
    let header = save(top.path(), &file, &first, now() + LATER);
    let cache = Arc::new(StatFile::open(&file, &header.folder, &header.options).expect("it is whole"));
    assert_eq!(cache.header, header);

    let again = found(top.path());
    assert!(again.remember(&cache));
    assert!(read(&again).is_empty());
    assert_eq!((again.files_read(), roots(&again)), (0, roots(&first)));
    assert_eq!(changes(&again.hashed(), &cache, recorded(), 10), Ok(Some(Changes::default())));

    fs::write(top.path().join("b/c"), "changed").expect("written");
    fs::remove_file(top.path().join("a")).expect("removed");
    let changed = found(top.path());
    assert!(changed.remember(&cache));
    assert_eq!((read(&changed).len(), changed.files_read()), (1, 1));
    let found = changes(&changed.hashed(), &cache, recorded(), 10).expect("read").expect("few");
    let Changes { files, records, changed: places } = found;
    let removed = ("a".to_owned(), Some(cid(b"1")), None);
    assert_eq!(files, [removed, ("b/c".to_owned(), Some(cid(b"2")), Some(cid(b"changed")))]);
    assert!(records.iter().all(|(path, before, _)| matches!(&**path, "a" | "b" | "b/c") && before.is_some()));
    let changed_paths: Vec<_> = places.iter().map(|&place| changed.hashed().survey.entries.path(place)).collect();
    let after = records.iter().filter(|(_, _, after)| after.is_some());
    assert_eq!(changed_paths, after.map(|(path, ..)| PathBuf::from(path)).collect::<Vec<_>>());
    assert_eq!(changes(&changed.hashed(), &cache, recorded(), 1), Ok(None));
}

#[test]
fn a_file_that_had_just_changed_is_read_again() {
    let (top, beside) = (folder(&[("a", b"1")]), folder(&[]));
    let first = found(top.path());
    read(&first);
    let file = beside.path().join("cache");
    // It was read in the same moment as it was written: its times would not say so if it were written once more.
    let header = save(top.path(), &file, &first, now() - LATER);
    let cache = StatFile::open(&file, &header.folder, &header.options).expect("it is whole");
    let again = found(top.path());
    assert!(again.remember(&cache));
    read(&again);
    assert_eq!((again.files_read(), roots(&again)), (1, roots(&first)));
}

#[test]
fn a_cache_that_is_damaged_or_of_another_folder_is_ignored() {
    let (top, beside) = (folder(&[("a", b"1"), ("b", b"2")]), folder(&[]));
    let first = found(top.path());
    read(&first);
    let (file, other) = (beside.path().join("cache"), beside.path().join("other"));
    let header = save(top.path(), &file, &first, 0);
    let opened = |file: &Path| StatFile::open(file, &header.folder, &header.options).is_some();
    assert!(opened(&file) && !opened(&other));
    assert!(StatFile::open(&file, b"/another", &header.options).is_none());
    assert!(StatFile::open(&file, &header.folder, b"others").is_none());
    let whole = fs::read(&file).expect("read");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&other, &bytes).expect("written");
        assert!(!opened(&other), "byte {at}");
        fs::write(&other, &whole[..at]).expect("written");
        assert!(!opened(&other), "{at} bytes");
    }
}
