//! What tests of restores share: a destination, and answers to requests.
#![allow(dead_code)] // no test uses all of it

use std::fs;
use std::sync::Arc;

use coregw_core::codec::Codec;
use coregw_core::payload::{self, Function};
use coregw_core::{Cid, Result};
use coregw_folders::lane::{Lane, missing};
use coregw_folders::metadata::Metadata;
use coregw_folders::restore::{Choices, Destination as Place, Restore};
use coregw_folders::top::RestoreFailure;
use coregw_ops::car::{block_head, payload_car_header};
use tempfile::TempDir;

pub fn opened(place: Place, choices: Choices) -> Restore {
    Restore::open(place, choices, u64::MAX).map_err(|_| ()).expect("opened")
}

/// A destination: the folder, and the one for incomplete files.
pub struct Destination {
    pub home: TempDir,
}

impl Destination {
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        ["to", "incomplete"].iter().for_each(|name| fs::create_dir(home.path().join(name)).expect("made"));
        Self { home }
    }

    pub fn path(&self, below: &str) -> std::path::PathBuf {
        self.home.path().join("to").join(below)
    }

    /// What a restore of a new folder has.
    pub fn place(&self) -> Place {
        Place { folder: self.path(""), destination: "to".into(), gives_rights: true, ..Place::default() }
    }

    /// A restore that creates files at their paths.
    pub fn restore(&self) -> Restore {
        opened(self.place(), Choices::default())
    }

    /// A restore of a folder that may have content.
    pub fn update(&self, choices: Choices) -> Restore {
        let incomplete = Some(self.home.path().join("incomplete"));
        opened(Place { incomplete, has_content: true, ..self.place() }, choices)
    }
}

pub fn cid(bytes: &[u8]) -> Cid {
    payload::cid(bytes, Codec::RAW, Function::Sha2_256).expect("a payload")
}

pub fn segments(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

pub fn add(restore: &Restore, path: &str, parts: &[&[u8]], known: Metadata) -> Result<()> {
    let parts: Vec<_> = parts.iter().map(|bytes| (cid(bytes), Some(bytes.len() as u64))).collect();
    add_parts(restore, path, &parts, known)
}

pub fn add_parts(restore: &Restore, path: &str, parts: &[(Cid, Option<u64>)], known: Metadata) -> Result<()> {
    let (mut files, mut plan) = restore.work().planned();
    let place = plan.place(0, &segments(path))?;
    restore.work().add_file((&mut plan, &mut files), place, (parts, None), known, restore.placement())
}

pub fn request(restore: &Restore) -> Arc<Lane> {
    restore.request(1 << 30, 1 << 30).expect("payloads")
}

pub fn block(cid: &Cid, bytes: &[u8]) -> Vec<u8> {
    [&block_head(cid, bytes.len() as u64)[..], bytes].concat()
}

/// The answer with these payloads.
pub fn answer(payloads: &[&[u8]]) -> Vec<u8> {
    let blocks = payloads.iter().map(|bytes| block(&cid(bytes), bytes));
    [payload_car_header().to_vec()].into_iter().chain(blocks).collect::<Vec<_>>().concat()
}

pub fn push(restore: &Restore, lane: &Arc<Lane>, answer: &[u8], chunk: usize) {
    for bytes in answer.chunks(chunk) {
        lane.push(vec![Box::new(bytes.to_vec())], restore.work());
    }
}

/// Adds a link.
pub fn add_link(restore: &Restore, path: &str, target: &str, known: Metadata) -> Result<()> {
    let mut plan = restore.work().plan_mut();
    let place = plan.place(0, &segments(path))?;
    plan.add_link(place, target.as_bytes().to_vec(), known, restore.placement())
}

/// Adds a folder.
pub fn add_folder(restore: &Restore, path: &str, known: Metadata) {
    restore.work().plan_mut().add_folder(0, &segments(path), known).expect("added");
}

#[track_caller]
pub fn failed(restore: &Restore) -> RestoreFailure {
    assert!(restore.work().is_stopped());
    restore.work().take_failure().expect("why")
}

/// What a failure says.
pub fn said(failure: &RestoreFailure) -> String {
    match failure {
        RestoreFailure::Core(error) => error.to_string(),
        RestoreFailure::Path(path, why) => format!("{path}: {why}"),
        RestoreFailure::Io(number, path) => format!("{path}: {}", std::io::Error::from_raw_os_error(*number)),
        RestoreFailure::Panic(_) => "a panic".to_owned(),
    }
}

#[track_caller]
pub fn assert_done(restore: &Restore, lane: &Lane) {
    restore.work().attempt(|| lane.finish(restore.work()));
    assert!(missing(lane).is_empty());
    assert!(restore.request(1, 1).is_none());
    restore.finish();
    assert!(!restore.work().is_stopped(), "{}", said(&failed(restore)));
}

/// Answers requests with these payloads until nothing is requested, and ends the restore.
#[track_caller]
pub fn answer_all(restore: &Restore, payloads: &[&[u8]]) {
    while let Some(lane) = restore.request(1 << 30, 1 << 30) {
        let asked: Vec<_> = lane.asked().iter().map(|payload| payload.cid()).collect();
        let named = asked.iter().map(|asked| *payloads.iter().find(|bytes| cid(bytes) == *asked).expect("known"));
        push(restore, &lane, &answer(&named.collect::<Vec<_>>()), 1 << 16);
        restore.work().attempt(|| lane.finish(restore.work()));
    }
    restore.finish();
}
