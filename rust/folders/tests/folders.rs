//! Records of attributes and roots of folders: the vectors of protocol section 7, and properties.

use std::collections::BTreeMap;

use coregw_core::codec::Codec;
use coregw_core::{Arcs, Cid, Error, Key, Snapshot, Suite, payload};
use coregw_folders::{self as folders, Attributes, Entry, attributes};
use proptest::prelude::*;
use serde_json::Value;

fn cases(kind: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("vectors/folders.json")).expect("vectors are JSON");
    let cases = file["cases"].as_array().expect("cases").iter();
    cases.filter(|case| case["kind"] == kind).cloned().collect()
}

fn bytes(hex: &Value) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(hex.as_str().expect("base 16").as_bytes()).expect("base 16")
}

/// The attributes that the members of a vector are.
fn of_members(members: &Value) -> Attributes {
    let number = |name: &str| members[name].as_u64();
    let entry = match (&members["link"], &members["folder"]) {
        (link @ Value::String(_), _) => Entry::Link(bytes(link)),
        (_, Value::Bool(_)) => Entry::Folder,
        _ => Entry::File,
    };
    let xattrs = members["xattrs"].as_object().into_iter().flatten();
    Attributes {
        entry,
        size: number("size"),
        mode: number("mode").map(|mode| mode as u16),
        mtime: members["mtime"].as_str().map(|time| time.parse().expect("a time")),
        owner: number("uid").zip(number("gid")).map(|(uid, gid)| (uid as u32, gid as u32)),
        xattrs: xattrs.map(|(name, value)| (name.clone(), bytes(value))).collect(),
    }
}

#[test]
fn records_are_those_of_the_vectors() {
    for case in cases("record") {
        let known = of_members(&case["members"]);
        let record = known.record().expect("attributes");
        assert_eq!(record.bytes, bytes(&case["record"]));
        assert_eq!(record.target.text(), case["target"]);
        assert_eq!(Attributes::decode(&record.bytes), Ok(known.clone()));
        assert_eq!(Attributes::of_record(&record.target, Some(&record.bytes)), Ok(known));
    }
}

#[test]
fn other_records_and_targets_are_refused() {
    for case in cases("bad_record") {
        assert!(Attributes::decode(&bytes(&case["record"])).is_err(), "{}", case["why"]);
    }
    for case in cases("bad_target") {
        let target = Cid::from_text(case["target"].as_str().expect("text")).expect("a CID");
        assert!(Attributes::of_record(&target, Some(&bytes(&case["record"]))).is_err(), "{}", case["why"]);
    }
    assert!(Attributes::decode(&vec![0xa1; attributes::MAX_RECORD_BYTES + 1]).is_err());
}

#[test]
fn folders_have_the_roots_of_the_vectors() {
    for case in cases("folder") {
        let (mut files, mut records, mut top) = (Vec::new(), Vec::new(), None);
        for (path, data) in case["files"].as_object().expect("files") {
            let function = payload::Function::Sha2_256;
            let target = payload::cid(&bytes(data), Codec::RAW, function).expect("a CID");
            files.push((Key::from_text(path).expect("a path"), target));
        }
        for (path, members) in case["attributes"].as_object().expect("attributes") {
            let target = of_members(members).record().expect("attributes").target;
            if path == folders::RESERVED_NAME {
                top = Some(target);
                continue;
            }
            records.push((Key::from_text(path).expect("a path"), target));
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        records.sort_by(|a, b| a.0.cmp(&b.0));
        let mut pages = Vec::new();
        let arcs = |arcs: Vec<(Key, Cid)>| arcs.into_iter().map(Ok);
        let folder = folders::build(Suite::Sha2_256, top, arcs(records), arcs(files), |some| pages.extend(some));
        let folder = folder.expect("a folder");
        assert_eq!(folder.root.cid().text(), case["root"]);
        let attributes = folder.attributes.map(|root| root.cid().text());
        assert_eq!(attributes.as_deref(), case["attributes_root"].as_str());
        assert_eq!(pages.last().map(|page| page.0), Some(folder.root.digest));
    }
}

#[test]
fn all_pages_of_a_folder_are_kept() {
    let function = payload::Function::Sha2_256;
    let target = payload::cid(b"", Codec::RAW, function).expect("a CID");
    let arcs = |count: u32| -> Vec<(Key, Cid)> {
        (0..count).map(|n| (Key::from_text(&format!("d/{n:05}")).expect("a path"), target)).collect()
    };
    let (records, files) = (arcs(3000), arcs(4000));
    let mut pages = Vec::new();
    let ok = |arcs: &[(Key, Cid)]| arcs.iter().cloned().map(Ok).collect::<Vec<_>>();
    let folder = folders::build(Suite::Sha2_256, None, ok(&records), ok(&files), |some| pages.extend(some));
    let attributes = folder.expect("a folder").attributes.expect("records").cid();
    let reserved = (Key::from_text(folders::ATTRIBUTES_PATH).expect("a path"), attributes);
    for arcs in [records, [vec![reserved], files].concat()] {
        let mut all = Arcs::default();
        arcs.iter().for_each(|(key, target)| all.push(key, target));
        let map = Snapshot::map(Suite::Sha2_256, all).expect("a map");
        assert!(map.pages().count() > 10);
        assert!(map.pages().all(|page| pages.contains(&(page.digest(), page.to_bytes()))));
    }
}

prop_compose! {
    fn any_attributes()(
        entry in prop_oneof![
            Just(Entry::File),
            Just(Entry::Folder),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(Entry::Link),
        ],
        size in prop::option::of(prop_oneof![0..300_u64, any::<u64>().prop_map(|n| n >> 10)]),
        mode in prop::option::of(0..0o20000_u16),
        mtime in prop::option::of(prop_oneof![-300..300_i64, any::<i64>()]),
        owner in prop::option::of(any::<(u32, u32)>()),
        xattrs in prop::collection::btree_map("[a-c\u{e9}\0]{0,3}", prop::collection::vec(any::<u8>(), 0..40), 0..4),
    ) -> Attributes {
        Attributes { entry, size, mode, mtime, owner, xattrs }
    }
}

proptest! {
    #[test]
    fn a_record_that_is_written_is_read(known in any_attributes()) {
        if let Ok(record) = known.record() {
            prop_assert_eq!(Attributes::decode(&record.bytes), Ok(known.clone()));
            prop_assert_eq!(Attributes::of_record(&record.target, Some(&record.bytes)), Ok(known));
            prop_assert_eq!(record.target.identity().is_some(), record.bytes.len() <= 128);
            for cut in 0..record.bytes.len().min(300) {
                prop_assert!(Attributes::decode(&record.bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_record_that_is_read_is_the_only_one(known in any_attributes(), at in any::<usize>(), byte in any::<u8>()) {
        if let Ok(mut record) = known.record() {
            let at = at % record.bytes.len();
            record.bytes[at] = byte;
            if let Ok(read) = Attributes::decode(&record.bytes) {
                prop_assert_eq!(read.record().map(|again| again.bytes), Ok(record.bytes));
            }
        }
    }
}

#[test]
fn lengths_are_accepted_up_to_their_limits() {
    let of_values = |last: usize| {
        let mut xattrs: BTreeMap<_, _> =
            ('a'..='o').map(|name| (name.to_string(), vec![7; attributes::MAX_XATTR_BYTES])).collect();
        xattrs.insert("z".repeat(attributes::MAX_XATTR_NAME_BYTES), vec![7; last]);
        Attributes { xattrs, ..Attributes::default() }
    };
    let short = of_values(300).record().expect("a short record").bytes.len();
    let last = 300 + attributes::MAX_RECORD_BYTES - short;
    let longest = of_values(last);
    let mut record = longest.record().expect("the longest record").bytes;
    assert_eq!((record.len(), Attributes::decode(&record)), (attributes::MAX_RECORD_BYTES, Ok(longest)));

    let too_long = |refused: Option<Error>| refused.is_some_and(|error| error.to_string().contains("takes more than"));
    assert!(too_long(of_values(last + 1).record().err()));
    // The same record with one byte more in its last value, whose length is in the two bytes before it.
    let at = record.len() - last;
    record[at - 2..at].copy_from_slice(&(last as u16 + 1).to_be_bytes());
    record.push(7);
    assert!(too_long(Attributes::decode(&record).err()));

    let long_value = vec![7; attributes::MAX_XATTR_BYTES + 1];
    let long = Attributes { xattrs: BTreeMap::from([("a".to_owned(), long_value)]), ..Attributes::default() };
    assert!(long.record().is_err());
}

#[test]
fn attributes_of_a_path_may_all_be_known() {
    let known = Attributes {
        entry: Entry::File,
        size: Some(1),
        mode: Some(0o644),
        mtime: Some(-1),
        owner: Some((1, 2)),
        xattrs: BTreeMap::from([("user.a".to_owned(), vec![0; attributes::MAX_XATTR_BYTES])]),
    };
    let record = known.record().expect("attributes");
    assert_eq!(Attributes::decode(&record.bytes), Ok(known));
    assert!(Attributes::of_record(&record.target, None).is_err());
}
