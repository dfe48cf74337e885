//! A restore: what is planned and refused, and what becomes of honest, forged and interrupted answers.
#![cfg(unix)]

mod restores;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Error, InputCode};
use coregw_folders::metadata::Metadata;
use coregw_folders::restore::{Choices, Restore};
use coregw_folders::top::RestoreFailure;
use coregw_ops::car::payload_car_header;

use restores::{
    Destination, add, add_folder, add_link, add_parts, answer, answer_all, assert_done, block, cid, failed, push,
    request, said, segments,
};

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
        add_folder(&restore, "a/b", Metadata { mode: Some(0o750), mtime: Some(MTIME), ..Metadata::default() });
        add_link(&restore, "a/link", "b/hello", Metadata::default()).expect("added");
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
    for (path, is_refused_at_start) in [("file", false), ("link/a", true), ("there/a", true)] {
        let to = Destination::new();
        fs::write(to.path("file"), "mine").expect("written");
        fs::create_dir(to.path("there")).expect("made");
        symlink(outside.path(), to.path("link")).expect("made");
        let restore = to.restore();
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
    let restore = to.restore();
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
    assert_eq!(restore.work().added(), (0, Some(0)));
    assert!(restore.work().plan_mut().add_folder(7, &segments("a"), Metadata::default()).is_err());

    // More than there is room for: known when a file is added, or when its payload comes.
    let small = Restore::open(to.place(), Choices::default(), 8).map_err(|_| ()).expect("opened");
    add(&small, "a", &[b"hello"], Metadata::default()).expect("added");
    assert!(add(&small, "b", &[b"hello"], Metadata::default()).is_err());
    let small = Restore::open(to.place(), Choices::default(), 4).map_err(|_| ()).expect("opened");
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
    let above = plan.folder(0, &segments("a/b")).expect("added");
    assert_eq!(plan.folder(above, &segments("c")), Ok(deep));
    assert_eq!(
        (plan.folder_in(above, b"c"), plan.folder_in(above, b"d"), plan.folder_in(deep, b"c")),
        (Some(deep), None, None)
    );
    assert_eq!(plan.folder(0, &[]), Ok(0));
    assert!(plan.folder(1000, &segments("a")).is_err());
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

/// What a restore of three files says of an answer.
fn refused(answer: &[u8], most: u64) -> String {
    let long = vec![7; 2 << 20];
    let to = Destination::new();
    let restore = to.restore();
    for (path, bytes) in [("a", &b"first"[..]), ("b", b"second"), ("long", &long)] {
        add_parts(&restore, path, &[(cid(bytes), None)], Metadata::default()).expect("added");
    }
    restore.start().expect("started");
    let lane = restore.request(1 << 30, most).expect("payloads");
    push(&restore, &lane, answer, 100_000);
    restore.work().attempt(|| lane.finish(restore.work()));
    restore.finish(); // another caller may be the one that is heard
    restore.close();
    said(&failed(&restore))
}

#[test]
fn every_answer_but_the_requested_payloads_is_refused() {
    let long = vec![7; 2 << 20];
    let (a, b): (&[u8], &[u8]) = (b"first", b"second");
    let header = payload_car_header();
    let whole = answer(&[a, b, &long]);
    let mut forged = long.clone();
    forged[1 << 20] = 8;
    for answer in [
        answer(&[b, a, &long]),
        answer(&[a, &b[..5]]),
        answer(&[a, b"other"]),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..], b"\0"].concat(),
        [header, &block(&cid(a), b)].concat(),
        [header, &block(&cid(a), a), &block(&cid(b), b), &block(&cid(&long), &forged)].concat(),
        header[..header.len() - 1].to_vec(),
        Vec::new(),
        b"{\"error\":\"internal\"}".to_vec(),
    ] {
        assert!(!refused(&answer, 1 << 30).is_empty());
    }
    assert!(refused(&whole, 1 << 20).contains("the limit is 1048576"));
}

#[test]
fn a_lie_that_was_truncated_leaves_nothing_in_the_file() {
    let long = vec![7; (1 << 20) + 5];
    let to = Destination::new();
    let restore = to.restore();
    add_parts(&restore, "long", &[(cid(&long), None)], Metadata::default()).expect("added");
    restore.start().expect("started");
    let lane = request(&restore);
    let lie = [payload_car_header(), &block(&cid(&long), &[&long[..], b"and more"].concat())].concat();
    push(&restore, &lane, &lie[..lie.len() - 5], 1 << 18);
    lane.restart();
    push(&restore, &lane, &answer(&[&long]), 1 << 18);
    assert_done(&restore, &lane);
    restore.close();
    assert_eq!(fs::read(to.path("long")).expect("read"), long);
}

#[test]
fn a_payload_of_another_size_than_its_file_says_is_refused() {
    let to = Destination::new();
    let restore = to.restore();
    let parts = [(cid(b"first"), Some(5)), (cid(b"second"), Some(7)), (cid(b"first"), None)];
    add_parts(&restore, "d/f", &parts, Metadata::default()).expect("added");
    restore.start().expect("started");
    answer_all(&restore, &[b"first", b"second"]);
    restore.close();
    let why = said(&failed(&restore));
    assert!(why.starts_with("d/f: at byte 5 are 7 bytes, but the payload"), "{why}");
}

#[test]
fn folders_of_any_depth_are_written_to_in_any_order() {
    let to = Destination::new();
    let restore = to.restore();
    let deep = |depth: u32| (0..depth).map(|level| level.to_string()).collect::<Vec<_>>().join("/");
    for depth in [1, 40, 2, 17, 16, 39, 18, 3] {
        add(&restore, &format!("{}/f", deep(depth)), &[deep(depth).as_bytes()], Metadata::default()).expect("added");
    }
    for depth in (1..=40).rev() {
        add_folder(&restore, &deep(depth), Metadata { mode: Some(0o700 + depth), ..Metadata::default() });
    }
    restore.start().expect("started");
    let contents: Vec<_> = (1..=40).map(deep).collect();
    answer_all(&restore, &contents.iter().map(String::as_bytes).collect::<Vec<_>>());
    restore.close();
    assert!(!restore.work().is_stopped() || restore.work().take_failure().is_none());
    for depth in 1..=40 {
        let mode = to.path(&deep(depth)).metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700 + depth);
    }
    assert_eq!(fs::read(to.path(&format!("{}/f", deep(40)))).expect("read"), deep(40).as_bytes());
}

#[test]
fn of_special_bits_the_sticky_one_of_folders_is_set() {
    let to = Destination::new();
    let restore = to.restore();
    let known = |mode| Metadata { mode: Some(mode), mtime: Some(7), ..Metadata::default() };
    let modes = [("read", 0o400), ("run", 0o755), ("setuid", 0o6711), ("none", 0o000)];
    for (name, mode) in modes {
        add(&restore, &format!("d/{name}"), &[b"x"], known(mode)).expect("added");
    }
    add_folder(&restore, "d", known(0o555));
    add_folder(&restore, "d/empty", known(0o1777));
    restore.start().expect("started");
    answer_all(&restore, &[b"x"]);
    restore.close();
    let seen = |path: &str| to.path(path).metadata().expect("there").permissions().mode() & 0o7777;
    assert_eq!(modes.map(|(name, _)| seen(&format!("d/{name}"))), modes.map(|(_, mode)| mode & 0o777));
    assert_eq!((seen("d"), seen("d/empty")), (0o555, 0o1777));
    fs::set_permissions(to.path("d"), fs::Permissions::from_mode(0o700)).expect("set");
}

#[test]
fn a_restore_ends_while_one_payload_is_written_to_all_its_places() {
    let bytes = [b'x'; 100];
    for function in [Function::Sha2_256, Function::Identity] {
        let to = Destination::new();
        let restore = to.restore();
        let part = (payload::cid(&bytes, Codec::RAW, function).expect("a payload"), Some(100));
        let parts = vec![part; 1_000_000];
        add_parts(&restore, "f", &parts, Metadata::default()).expect("added");
        let written = || restore.work().written.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                restore.start().expect("started");
                if let Some(lane) = restore.request(1 << 30, 1 << 30) {
                    push(&restore, &lane, &answer(&[&bytes]), 1 << 20);
                    let _end = lane.finish(restore.work());
                }
            });
            while written() == 0 {
                std::thread::yield_now();
            }
            restore.work().stop();
        });
        restore.close();
        assert!(written() < 100 * 1_000_000);
        assert_eq!(written(), to.path("f").metadata().expect("there").len());
    }
}

#[test]
fn a_restore_that_is_stopped_makes_no_links_and_folders() {
    let to = Destination::new();
    let restore = to.restore();
    restore.start().expect("started");
    add_folder(&restore, "folder", Metadata::default());
    add_link(&restore, "link", "target", Metadata::default()).expect("added");
    restore.work().stop();
    restore.finish();
    assert!(restore.request(1, 1).is_none());
    restore.close();
    assert_eq!(fs::read_dir(to.path("")).expect("read").count(), 0);
}
