//! An update of a folder that has content: what stays, what is replaced, what is refused, and what is never touched.
#![cfg(unix)]

mod restores;

use std::cell::Cell;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coregw_core::Result;
use coregw_folders::attributes::Attributes;
use coregw_folders::metadata::{Extras, Metadata};
use coregw_folders::removal;
use coregw_folders::restore::{Choices, Restore};
use coregw_folders::update::{Done, Preview};
use coregw_folders::writer::time_after;

use restores::{Destination, add, add_folder, add_link, answer, answer_all, assert_done, failed, push, request, said};

const FREE: u64 = 1 << 40;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().expect("there").permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

fn with_mode(mode: u32) -> Metadata {
    Metadata { mode: Some(mode), ..Metadata::default() }
}

/// Surveys, compares and decides.
fn decide(restore: &Restore, delete: Option<&[PathBuf]>) -> Result<(), String> {
    restore.survey();
    while restore.compare().is_some() {}
    restore.decide(delete);
    if restore.work().is_stopped() { Err(said(&failed(restore))) } else { Ok(()) }
}

/// Decides, and writes these payloads.
fn update(restore: &Restore, delete: Option<&[PathBuf]>, payloads: &[&[u8]]) -> Result<Done, String> {
    let decided = decide(restore, delete).map(|()| {
        restore.apply(FREE).expect("the first time");
        answer_all(restore, payloads);
    });
    restore.close();
    decided?;
    restore.work().take_failure().map_or_else(|| Ok(restore.done()), |failure| Err(said(&failure)))
}

/// A destination with these files, folders (`/` at the end) and links.
fn destination(files: &[(&str, &str)], links: &[(&str, &str)]) -> Destination {
    let to = Destination::new();
    for (path, text) in files {
        let is_folder = path.ends_with('/');
        let file = to.path(path);
        fs::create_dir_all(if is_folder { &file } else { file.parent().expect("a folder") }).expect("made");
        if !is_folder {
            fs::write(file, text).expect("written");
        }
    }
    links.iter().for_each(|(path, target)| symlink(target, to.path(path)).expect("made"));
    to
}

#[test]
fn what_an_update_would_do_is_what_it_does() {
    let files =
        [("same", "same"), ("changed", "old"), ("d/e/same", "also the same"), ("d/extra", "x"), ("extra/deep/f", "")];
    let wanted =
        [("same", "same"), ("changed", "new"), ("d/added", "added"), ("d/e/same", "also the same"), ("link", "f")];
    for deletes in [false, true] {
        let to = destination(&files, &[("link", "../outside")]);
        fs::write(to.home.path().join("outside"), "mine").expect("written");
        let restore = || {
            let restore = to.update(Choices::default());
            for (path, text) in wanted {
                add(&restore, path, &[text.as_bytes()], Metadata::default()).expect("added");
            }
            add_folder(&restore, "n/empty", Metadata::default());
            restore
        };
        let delete: Option<&[PathBuf]> = deletes.then_some(&[]);
        let planned = restore();
        decide(&planned, delete).expect("allowed");
        let paths = |paths: &[&str]| -> Vec<Vec<Vec<u8>>> {
            paths.iter().map(|path| path.split('/').map(|name| name.as_bytes().to_vec()).collect()).collect()
        };
        let deleted = paths(if deletes { &["d/extra", "extra"] } else { &[] });
        let (created, replaced) = (paths(&["d/added", "n/empty"]), paths(&["changed", "link"]));
        assert_eq!(planned.preview(), Preview { created, replaced, deleted, kept: 2 });

        let payloads: Vec<_> = wanted.iter().map(|(_, text)| text.as_bytes()).collect();
        let done = update(&restore(), delete, &payloads);
        assert_eq!(done, Ok(Done { files: 3, kept: 2, deleted: if deletes { 2 } else { 0 }, replaced: 2 }));
        wanted.iter().for_each(|(path, text)| assert_eq!(fs::read(to.path(path)).expect("read"), text.as_bytes()));
        assert!(to.path("link").symlink_metadata().expect("there").is_file());
        assert_eq!(fs::read(to.home.path().join("outside")).expect("read"), b"mine");
        assert_eq!([to.path("d/extra"), to.path("extra")].map(|path| path.exists()), [!deletes; 2]);
        let done = update(&restore(), delete, &[]);
        assert_eq!(done, Ok(Done { kept: 5, ..Done::default() }));
    }
}

#[test]
fn what_is_spared_stays_and_so_do_the_folders_that_it_is_in() {
    let to = destination(&[("a/b/mine", "x"), ("a/b/other", "x"), ("a/c/f", "x"), ("g", "x")], &[]);
    let restore = to.update(Choices::default());
    add(&restore, "g", &[b"x"], Metadata::default()).expect("added");
    let done = update(&restore, Some(&["a/b/mine".into()]), &[]);
    assert_eq!(done, Ok(Done { kept: 1, deleted: 2, ..Done::default() }));
    assert_eq!(["a/b/mine", "a/b/other", "a/c"].map(|path| to.path(path).exists()), [true, false, false]);
    // Not even for what the tree has in its place.
    for path in ["a/b/mine/f", "a/b"] {
        let restore = to.update(Choices::default());
        add(&restore, path, &[b"x"], Metadata::default()).expect("added");
        let refused = update(&restore, Some(&["a/b/mine".into()]), &[b"x"]).expect_err("refused");
        assert!(refused.ends_with("it is excluded, and --delete-excluded replaces it"), "{refused}");
    }
}

#[test]
fn a_link_that_takes_the_place_of_a_folder_is_not_entered() {
    for swaps_before_the_survey in [true, false] {
        let to = destination(&[("d/old", "x")], &[]);
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("old"), "mine").expect("written");
        let restore = to.update(Choices::default());
        add(&restore, "d/f", &[b"new"], Metadata::default()).expect("added");
        let swap = || {
            fs::remove_dir_all(to.path("d")).expect("removed");
            symlink(outside.path(), to.path("d")).expect("made");
        };
        if swaps_before_the_survey {
            swap();
            assert!(update(&restore, None, &[]).expect_err("refused").contains("--delete replaces it"));
        } else {
            decide(&restore, Some(&[])).expect("allowed");
            swap();
            restore.apply(FREE).expect("the first time");
            answer_all(&restore, &[b"new"]);
            restore.close();
            assert_eq!(said(&failed(&restore)), "d: is not a folder");
        }
        assert_eq!(fs::read(outside.path().join("old")).expect("read"), b"mine");
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 1);
    }
}

#[test]
fn a_path_occurs_once_in_a_tree() {
    let both = "a/b: it is both a file and a folder";
    for (paths, why) in
        [(["a/b", "a/b"], "a/b: the tree has this path twice"), (["a/b", "a/b/c"], both), (["a/b/c", "a/b"], both)]
    {
        let restore = Destination::new().update(Choices::default());
        add(&restore, paths[0], &[b"x"], Metadata::default()).expect("added");
        let refused = add(&restore, paths[1], &[b"x"], Metadata::default()).expect_err("refused");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

#[test]
fn a_kept_file_gets_its_attributes_unless_it_is_another() {
    let own = |path: &Path| path.metadata().map(|found| (found.uid(), found.gid())).expect("there");
    for swaps in [false, true] {
        let to = destination(&[("kept", "x"), ("d/", "")], &[("link", "kept")]);
        let victim = to.home.path().join("victim");
        fs::write(&victim, "x").expect("written");
        chmod(&victim, 0o600);
        chmod(&to.path("kept"), 0o200);
        let extras = Extras { owners: true, xattrs: true, ..Extras::default() };
        let known = Attributes { xattrs: [("user.a".to_owned(), b"a".to_vec())].into(), ..Attributes::default() };
        let (owner, xattrs) = (Some(own(&victim)), Some(Arc::new(known)));
        let restore = to.update(Choices { extras, ..Choices::default() });
        let known = Metadata { mode: Some(0o444), mtime: Some(7), owner, xattrs, ..Metadata::default() };
        add(&restore, "kept", &[b"x"], known.clone()).expect("added");
        add_link(&restore, "link", "kept", Metadata { mtime: Some(9), owner, ..Metadata::default() }).expect("added");
        add_folder(&restore, "d", Metadata { mode: Some(0o555), ..known });
        decide(&restore, None).expect("allowed");
        if swaps {
            fs::remove_file(to.path("kept")).expect("removed");
            fs::hard_link(&victim, to.path("kept")).expect("made");
        }
        restore.apply(FREE).expect("the first time");
        answer_all(&restore, &[b"x"]);
        restore.close();
        if swaps {
            assert_eq!(said(&failed(&restore)), "kept: was replaced by something else while it was written");
            assert_eq!(mode(&victim), 0o600);
            assert_eq!(xattr::list(&victim).expect("listed").count(), 0);
            continue;
        }
        assert!(restore.work().take_failure().is_none());
        assert_eq!((mode(&to.path("kept")), to.path("kept").metadata().expect("there").mtime_nsec()), (0o444, 7));
        assert_eq!(mode(&to.path("d")), 0o555);
        assert_eq!(to.path("link").symlink_metadata().expect("there").mtime_nsec(), 9);
        for path in ["kept", "d"] {
            assert_eq!(xattr::get(to.path(path), "user.a").expect("read"), Some(b"a".to_vec()));
        }
        chmod(&to.path("d"), 0o755);
    }
}

#[test]
fn executable_bits_of_kept_files_follow_a_tree_that_records_nothing_else() {
    let to = destination(&[("new", "x"), ("old", "x")], &[]);
    chmod(&to.path("new"), 0o640);
    let executable = Metadata { is_executable: true, ..Metadata::default() };
    let restore = to.update(Choices::default());
    add(&restore, "new", &[b"x"], executable).expect("added");
    add(&restore, "old", &[b"x"], Metadata::default()).expect("added");
    assert_eq!(update(&restore, None, &[]).map(|done| done.kept), Ok(2));
    assert_eq!(mode(&to.path("new")), 0o750);
}

#[test]
fn folders_are_never_more_open_than_before_and_afterwards() {
    // Others who may enter a folder could read what is written before it gets its mode.
    let to = destination(&[("closes/", ""), ("shared/", "")], &[]);
    chmod(&to.path("closes"), 0o755);
    chmod(&to.path("shared"), 0o2777);
    let modes = [("new", 0o750), ("new/secret", 0o700), ("read-only", 0o555), ("closes", 0o710), ("shared", 0o1777)];
    let restore = to.update(Choices::default());
    for (path, mode) in modes {
        add_folder(&restore, path, with_mode(mode));
        add(&restore, &format!("{path}/file"), &[b"x"], with_mode(0o644)).expect("added");
    }
    decide(&restore, None).expect("allowed");
    restore.apply(FREE).expect("the first time");
    let found = || modes.map(|(path, _)| mode(&to.path(path)));
    assert_eq!(found(), [0o750, 0o700, 0o755, 0o710, 0o3777]);
    answer_all(&restore, &[b"x"]);
    restore.close();
    assert_eq!(found(), [0o750, 0o700, 0o555, 0o710, 0o3777]);
}

#[test]
fn a_file_that_is_swapped_while_it_is_written_is_not_written_to() {
    let long = vec![1; 3 << 20];
    for (swapped, is_staged) in
        [("hard link", true), ("hard link", false), ("other file", true), ("pipe", true), ("pipe", false)]
    {
        let to = Destination::new();
        let victim = to.home.path().join("victim");
        fs::write(&victim, "mine").expect("written");
        let restore = if is_staged { to.update(Choices::default()) } else { to.restore() };
        add(&restore, "f", &[&long], Metadata::default()).expect("added");
        if is_staged {
            decide(&restore, None).expect("allowed");
            restore.apply(FREE).expect("the first time");
        } else {
            restore.start().expect("the first time");
        }
        let lane = request(&restore);
        let whole = answer(&[&long]);
        push(&restore, &lane, &whole[..2 << 20], 1 << 18);
        assert_eq!(lane.received(), 0); // waits for the threads
        let folder = if is_staged { to.home.path().join("incomplete") } else { to.path("") };
        let written = fs::read_dir(folder).expect("read").next().expect("a file").expect("read").path();
        fs::remove_file(&written).expect("removed");
        match swapped {
            "hard link" => fs::hard_link(&victim, &written).expect("made"),
            "other file" => fs::write(&written, "mine").expect("written"),
            _ => {
                let pipe = std::process::Command::new("mkfifo").arg(&written).status();
                assert!(pipe.expect("run").success());
            }
        }
        push(&restore, &lane, &whole[2 << 20..], 1 << 18);
        restore.work().attempt(|| lane.finish(restore.work()));
        restore.close();
        assert_eq!(said(&failed(&restore)), "f: was replaced by something else while it was written", "{swapped}");
        assert_eq!(fs::read(&victim).expect("read"), b"mine");
    }
}

#[test]
fn a_new_file_gets_its_name_only_if_nothing_has_it() {
    let to = Destination::new();
    let restore = to.update(Choices::default());
    add(&restore, "f", &[b"new"], Metadata::default()).expect("added");
    decide(&restore, None).expect("allowed");
    restore.apply(FREE).expect("the first time");
    symlink("nowhere", to.path("f")).expect("made");
    answer_all(&restore, &[b"new"]);
    restore.close();
    assert_eq!(said(&failed(&restore)), "f: something of this name exists, perhaps another path of the tree");
    assert!(to.path("f").is_symlink());
}

#[test]
fn more_bytes_than_are_free_are_refused_before_anything_is_removed() {
    let to = destination(&[("d/mine", "mine")], &[]);
    let restore = to.update(Choices::default());
    add(&restore, "d", &[b"long"], Metadata::default()).expect("added");
    decide(&restore, Some(&[])).expect("allowed");
    restore.apply(3).expect("the first time");
    restore.close();
    assert!(said(&failed(&restore)).contains("4 bytes are to be written, but 3 are free on the disk"));
    assert!(to.path("d/mine").exists());
}

#[test]
fn a_removal_that_is_stopped_leaves_the_rest_with_its_modes() {
    let home = tempfile::tempdir().expect("a folder");
    let path = |below: &str| home.path().join(below);
    fs::create_dir_all(path("a/b")).expect("made");
    for file in ["a/file", "a/b/file"] {
        fs::write(path(file), "").expect("written");
    }
    for folder in ["a/b", "a"] {
        chmod(&path(folder), 0o550);
    }
    let above = fs::File::open(home.path()).expect("opened");
    // After the file in `a`: in front of what is in `a/b`.
    let is_stopped = || !path("a/file").exists();
    assert_eq!(removal::remove(above.as_fd(), c"a", &is_stopped), Ok(()));
    assert_eq!(["a", "a/b"].map(|folder| mode(&path(folder))), [0o550; 2]);
    assert!(path("a/b/file").exists());

    for number in 0..200 {
        fs::write(path(&number.to_string()), "").expect("written");
    }
    fs::create_dir(path("many")).expect("made");
    for number in 0..200 {
        fs::write(path(&format!("many/{number}")), "").expect("written");
    }
    let looks = Cell::new(0);
    let is_stopped = || looks.replace(looks.get() + 1) > 20;
    assert_eq!(removal::remove(above.as_fd(), c"many", &is_stopped), Ok(()));
    let left = fs::read_dir(path("many")).expect("read").count();
    assert!(left > 150, "{left}");
}

#[test]
fn an_update_that_is_stopped_changes_nothing_more() {
    let to = destination(&[("mine/f", "x"), ("kept", "x")], &[]);
    let restore = to.update(Choices::default());
    add(&restore, "kept", &[b"x"], with_mode(0o600)).expect("added");
    decide(&restore, Some(&[])).expect("allowed");
    restore.apply(FREE).expect("the first time");
    restore.work().stop();
    restore.finish();
    restore.close();
    assert!(to.path("mine/f").exists());
    assert_ne!(mode(&to.path("kept")), 0o600);
}

#[test]
fn root_restores_only_the_extended_attributes_of_users_and_those_that_are_named() {
    let (user, other) = ("user.a", "security.capability");
    for (is_root, xattrs, named, restored) in [
        (true, true, None, [true, false]),
        (true, true, Some(other), [true, true]),
        (true, false, Some(other), [false, true]),
        (false, true, None, [true, true]),
        (false, false, Some(user), [true, false]),
        (true, false, None, [false, false]),
    ] {
        let xattr_names = named.into_iter().map(str::to_owned).collect();
        let extras = Extras { xattrs, xattr_names, is_root, owners: false };
        assert_eq!([user, other].map(|name| extras.restores(name)), restored, "{is_root} {xattrs} {named:?}");
    }
}

#[test]
fn a_clock_is_waited_for_until_it_has_passed_the_last_change_but_not_for_ever() {
    let changed = 1_000_000_000_000_000_007;
    let wait = |newest: i64, start: i64, tick: i64| {
        let (now, pauses) = (Cell::new(start), Cell::new(0));
        let time = time_after(newest, &mut || Ok(now.get()), &mut || {
            now.set(now.get() + tick);
            pauses.set(pauses.get() + 1);
        });
        (time.expect("a time"), pauses.get())
    };
    assert_eq!(wait(changed, changed, 5), (changed + 5, 1));
    assert_eq!(wait(changed, changed + 1, 5), (changed + 1, 0));
    assert_eq!(wait(changed, changed - 1, 5), (changed - 1, 0)); // the clock was set back meanwhile
    assert_eq!(wait(changed - 7, changed - 7, 5), (changed - 7, 0)); // a file system that counts in two seconds
    let (time, pauses) = wait(changed, changed, 0);
    assert_eq!(time, changed);
    assert!((1..1000).contains(&pauses));
}

#[test]
fn an_answer_to_an_update_is_written_once() {
    let to = destination(&[("again", "old"), ("d/", "")], &[]);
    let restore = to.update(Choices::default());
    for path in ["again", "d/f", "new/f"] {
        add(&restore, path, &[b"hello", b"hello"], Metadata::default()).expect("added");
    }
    decide(&restore, None).expect("allowed");
    restore.apply(FREE).expect("the first time");
    let lane = request(&restore);
    assert_eq!(lane.asked().len(), 1);
    push(&restore, &lane, &answer(&[b"hello"]), 3);
    assert_done(&restore, &lane);
    restore.close();
    for path in ["again", "d/f", "new/f"] {
        assert_eq!(fs::read(to.path(path)).expect("read"), b"hellohello");
    }
    assert_eq!(fs::read_dir(to.home.path().join("incomplete")).expect("read").count(), 0);
}
