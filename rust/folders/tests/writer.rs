//! A restore: what is planned and refused, and what becomes of honest, forged and interrupted answers.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Error, InputCode, Result};
use coregw_folders::lane::{Lane, missing};
use coregw_folders::metadata::{FileIdentity, Metadata};
use coregw_folders::restore::Restore;
use coregw_folders::top::RestoreFailure;
use coregw_ops::car::{block_head, payload_car_header};
use tempfile::TempDir;

/// A destination: the folder, and the one for incomplete files.
struct Destination {
    home: TempDir,
}

impl Destination {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        ["to", "incomplete"].iter().for_each(|name| fs::create_dir(home.path().join(name)).expect("made"));
        Self { home }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.home.path().join("to").join(below)
    }

    fn restore(&self) -> Restore {
        let (to, incomplete) = (self.path(""), self.home.path().join("incomplete"));
        Restore::open(&to, Some(&incomplete), false, u64::MAX).map_err(|_| ()).expect("opened")
    }

    /// One that creates files at their paths.
    fn direct(&self) -> Restore {
        Restore::open(&self.path(""), None, false, u64::MAX).map_err(|_| ()).expect("opened")
    }
}

fn cid(bytes: &[u8]) -> Cid {
    payload::cid(bytes, Codec::RAW, Function::Sha2_256).expect("a payload")
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

fn add(restore: &Restore, path: &str, parts: &[&[u8]], known: Metadata) -> Result<()> {
    let parts: Vec<_> = parts.iter().map(|bytes| (cid(bytes), Some(bytes.len() as u64))).collect();
    add_parts(restore, path, &parts, known)
}

fn add_parts(restore: &Restore, path: &str, parts: &[(Cid, Option<u64>)], known: Metadata) -> Result<()> {
    let (mut files, mut plan) = restore.work().planned();
    let place = restore.placement(false);
    restore.work().add_file((&mut plan, &mut files), (0, &segments(path)), (parts, None), known, place)
}

fn request(restore: &Restore) -> Arc<Lane> {
    restore.request(1 << 30, 1 << 30).expect("payloads")
}

fn block(cid: &Cid, bytes: &[u8]) -> Vec<u8> {
    [&block_head(cid, bytes.len() as u64)[..], bytes].concat()
}

/// The answer with these payloads.
fn answer(payloads: &[&[u8]]) -> Vec<u8> {
    let blocks = payloads.iter().map(|bytes| block(&cid(bytes), bytes));
    [payload_car_header().to_vec()].into_iter().chain(blocks).collect::<Vec<_>>().concat()
}

fn push(restore: &Restore, lane: &Arc<Lane>, answer: &[u8], chunk: usize) {
    for bytes in answer.chunks(chunk) {
        lane.push(vec![Box::new(bytes.to_vec())], restore.work());
    }
}

fn failed(restore: &Restore) -> RestoreFailure {
    assert!(restore.work().is_stopped());
    restore.work().take_failure().expect("why")
}

#[track_caller]
fn assert_done(restore: &Restore, lane: &Lane) {
    restore.work().attempt(|| lane.finish(restore.work()));
    assert!(missing(lane).is_empty());
    assert!(restore.request(1, 1).is_none());
    restore.finish();
    assert!(!restore.work().is_stopped());
}

const MTIME: i64 = 1_700_000_000_123_456_789;

#[test]
fn files_are_written_with_their_attributes_however_the_answer_is_cut() {
    let long = vec![7; 3 << 20];
    for chunk in [1 << 10, 7919, 1 << 22] {
        let to = Destination::new();
        let restore = to.restore();
        let known = Metadata { mode: Some(0o640), mtime: Some(MTIME), ..Metadata::default() };
        add(&restore, "a/b/hello", &[b"hello"], known).expect("added");
        add(&restore, "a/again", &[b"hello", b" ", b"hello"], Metadata::default()).expect("added");
        add(&restore, "long", &[&long, b"!"], Metadata::default()).expect("added");
        {
            let mut plan = restore.work().plan_mut();
            let known = Metadata { mode: Some(0o750), mtime: Some(MTIME), ..Metadata::default() };
            plan.add_folder(0, &segments("a/b"), known, false).expect("added");
            plan.add_link((0, &segments("a/link")), b"b/hello".to_vec(), Metadata::default(), restore.placement(false))
                .expect("added");
        }
        restore.start().expect("the first time");
        assert!(restore.start().is_err());
        let lane = request(&restore);
        // Each payload is requested once.
        let asked: Vec<_> = lane.asked().iter().map(|payload| payload.cid()).collect();
        assert_eq!(asked, [cid(b"hello"), cid(b" "), cid(&long), cid(b"!")]);
        push(&restore, &lane, &answer(&[b"hello", b" ", &long, b"!"]), chunk);
        assert_done(&restore, &lane);

        assert_eq!(fs::read(to.path("a/link")).expect("read"), b"hello");
        assert_eq!(fs::read(to.path("a/again")).expect("read"), b"hello hello");
        assert_eq!(fs::read(to.path("long")).expect("read"), [&long[..], b"!"].concat());
        for (path, mode) in [("a/b/hello", 0o640), ("a/b", 0o750)] {
            let found = to.path(path).metadata().expect("there");
            assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (mode, 1_700_000_000, 123_456_789));
        }
        assert_eq!(fs::read_dir(to.home.path().join("incomplete")).expect("read").count(), 0);
        assert_eq!(restore.work().take_states().files.len(), 3);
        restore.close();
    }
}

#[test]
fn a_payload_that_is_another_stops_the_restore_and_no_file_appears() {
    let to = Destination::new();
    let restore = to.restore();
    add(&restore, "a", &[b"hello"], Metadata::default()).expect("added");
    restore.start().expect("started");
    let lane = request(&restore);
    let forged = [payload_car_header(), &block(&cid(b"hello"), b"HELLO")].concat();
    push(&restore, &lane, &forged, 10);
    let _end = lane.finish(restore.work());
    assert!(matches!(failed(&restore), RestoreFailure::Core(Error::Proof { .. })));
    assert!(!to.path("a").exists());
    restore.close();
}

#[test]
fn an_answer_that_is_truncated_is_followed_by_another() {
    let long = vec![3; 1 << 20];
    let to = Destination::new();
    let restore = to.restore();
    add(&restore, "a", &[b"hello"], Metadata::default()).expect("added");
    add_parts(&restore, "long", &[(cid(&long), None)], Metadata::default()).expect("added");
    restore.start().expect("started");
    let lane = request(&restore);
    let whole = answer(&[b"hello", &long]);
    push(&restore, &lane, &whole[..whole.len() - 1000], 1 << 16);
    assert_eq!(lane.received(), 5);
    // What is complete need not come again.
    lane.restart();
    assert_eq!(lane.asked().iter().map(|payload| payload.cid()).collect::<Vec<_>>(), [cid(&long)]);
    push(&restore, &lane, &answer(&[&long]), 1 << 18);
    assert_done(&restore, &lane);
    assert_eq!(fs::read(to.path("long")).expect("read"), long);
    restore.close();
}

#[test]
fn what_exists_is_not_written_to_and_links_are_not_followed() {
    let outside = tempfile::tempdir().expect("a folder");
    for (path, is_refused_at_start) in [("file", false), ("link/a", true), ("there/link/a", true)] {
        let to = Destination::new();
        fs::write(to.path("file"), "mine").expect("written");
        fs::create_dir(to.path("there")).expect("made");
        ["link", "there/link"].iter().for_each(|link| symlink(outside.path(), to.path(link)).expect("made"));
        let restore = to.restore();
        {
            let mut plan = restore.work().plan_mut();
            plan.add_folder(0, &segments("there"), Metadata::default(), true).expect("added");
        }
        add(&restore, path, &[b"hello"], Metadata::default()).expect("added");
        restore.start().expect("started");
        assert_eq!(restore.work().is_stopped(), is_refused_at_start, "{path}");
        if !is_refused_at_start {
            let lane = request(&restore);
            push(&restore, &lane, &answer(&[b"hello"]), 100);
            let _end = lane.finish(restore.work());
        }
        restore.close();
        assert!(matches!(failed(&restore), RestoreFailure::Path(..)), "{path}");
        assert_eq!(fs::read(to.path("file")).expect("read"), b"mine");
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }
}

/// Restores a long file, and replaces it by `other` after half of it.
fn replaced(other: impl FnOnce(&Path)) -> RestoreFailure {
    let long = vec![1; 4 << 20];
    let to = Destination::new();
    let restore = to.direct();
    add(&restore, "long", &[&long, b"end"], Metadata::default()).expect("added");
    restore.start().expect("started");
    let lane = request(&restore);
    let whole = answer(&[&long, b"end"]);
    push(&restore, &lane, &whole[..2 << 20], 1 << 18);
    assert_eq!(lane.received(), 0);
    assert!(restore.work().written.load(std::sync::atomic::Ordering::Relaxed) > 1 << 20);
    fs::remove_file(to.path("long")).expect("removed");
    other(&to.path("long"));
    push(&restore, &lane, &whole[2 << 20..], 1 << 18);
    let _end = lane.finish(restore.work());
    let failure = failed(&restore);
    restore.close();
    failure
}

#[test]
fn a_file_that_is_replaced_meanwhile_is_refused_and_what_replaces_it_stays() {
    let outside = tempfile::tempdir().expect("a folder");
    let precious = outside.path().join("precious");
    fs::write(&precious, "precious").expect("written");
    for is_hard_link in [true, false] {
        let failure = replaced(|path| match is_hard_link {
            true => fs::hard_link(&precious, path).expect("made"),
            false => symlink(&precious, path).expect("made"),
        });
        assert!(matches!(failure, RestoreFailure::Path(_, why) if why.contains("replaced")));
        assert_eq!(fs::read(&precious).expect("read"), b"precious");
    }
}

#[test]
fn a_kept_file_gets_its_attributes_unless_it_is_another() {
    let to = Destination::new();
    fs::write(to.path("a"), "there").expect("written");
    fs::set_permissions(to.path("a"), fs::Permissions::from_mode(0o200)).expect("set");
    let found = to.path("a").metadata().expect("there");
    let known = Metadata { mode: Some(0o604), mtime: Some(MTIME), ..Metadata::default() };
    for (inode, is_same) in [(found.ino() + 1, false), (found.ino(), true)] {
        let restore = to.restore();
        let identity = FileIdentity { device: found.dev(), inode };
        restore.work().plan_mut().keep((0, &segments("a")), known, Some(Some(identity))).expect("added");
        restore.start().expect("started");
        restore.finish();
        assert_eq!(restore.work().is_stopped(), !is_same);
        let mode = to.path("a").metadata().expect("there").mode() & 0o7777;
        assert_eq!(mode, if is_same { 0o604 } else { 0o200 });
        restore.close();
    }
}

#[test]
fn paths_and_sizes_that_no_file_has_are_refused_when_they_are_added() {
    let to = Destination::new();
    let restore = to.restore();
    for path in ["", ".", "..", "a//b", "a/../b", "a\0", "../a"] {
        let refused = add(&restore, path, &[b"hello"], Metadata::default());
        assert!(matches!(refused, Err(Error::Input { code: InputCode::InvalidPath, .. })), "{path:?}: {refused:?}");
    }
    let parts = |sizes: &[u64]| sizes.iter().map(|&size| (cid(b"hello"), Some(size))).collect::<Vec<_>>();
    for sizes in [&[1 << 63][..], &[1 << 62, 1 << 62], &[u64::MAX, 1]] {
        let refused = add_parts(&restore, "a", &parts(sizes), Metadata::default());
        assert!(matches!(refused, Err(Error::Input { code: InputCode::TooLarge, .. })), "{sizes:?}: {refused:?}");
    }
    assert_eq!(restore.work().planned().0.added(), (0, Some(0)));
    assert!(restore.work().plan_mut().add_folder(7, &segments("a"), Metadata::default(), false).is_err());

    // More than there is room for: known when a file is added, or when its payload comes.
    let small = Restore::open(&to.path(""), None, false, 8).map_err(|_| ()).expect("opened");
    add(&small, "a", &[b"hello"], Metadata::default()).expect("added");
    assert!(add(&small, "b", &[b"hello"], Metadata::default()).is_err());
    let small = Restore::open(&to.path(""), None, false, 4).map_err(|_| ()).expect("opened");
    add_parts(&small, "unknown", &[(cid(b"hello"), None)], Metadata::default()).expect("added");
    small.start().expect("started");
    let lane = request(&small);
    push(&small, &lane, &answer(&[b"hello"]), 100);
    let _end = lane.finish(small.work());
    assert!(matches!(failed(&small), RestoreFailure::Core(Error::Input { code: InputCode::TooLarge, .. })));
    assert!(!to.path("unknown").exists());
}

#[test]
fn a_plan_has_each_folder_once() {
    let to = Destination::new();
    let restore = to.restore();
    let mut plan = restore.work().plan_mut();
    let deep = plan.folder(0, &segments("a/b/c")).expect("added");
    let above = plan.above(deep).expect("known");
    assert_eq!(plan.folder(0, &segments("a/b")), Ok(above));
    assert_eq!(plan.folder(above, &segments("c")), Ok(deep));
    assert_eq!(plan.folder_in(above, "c"), Some(deep));
    assert_eq!((plan.folder_in(above, "d"), plan.folder_in(deep, "c")), (None, None));
    assert_eq!(plan.folder(0, &[]), Ok(0));
    assert!(plan.above(1000).is_err());
}

#[test]
fn payloads_in_their_cids_need_no_answer() {
    let to = Destination::new();
    let restore = to.restore();
    let inline = payload::cid(b"tiny", Codec::RAW, Function::Identity).expect("a payload");
    add_parts(&restore, "tiny", &[(inline, Some(4))], Metadata::default()).expect("added");
    restore.start().expect("started");
    assert!(restore.request(1 << 20, 1 << 20).is_none());
    restore.finish();
    assert!(!restore.work().is_stopped());
    assert_eq!(fs::read(to.path("tiny")).expect("read"), b"tiny");
    restore.close();
}
