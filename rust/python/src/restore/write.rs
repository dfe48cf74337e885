//! Writing payloads to the places where they belong.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use core::{Error, InputCode};
use coregw_core as core;

use super::failure::RestoreFailure;
use super::folders::LastFolder;
use super::plan::PlannedPayload;
use super::writing::Writing;

/// Writes a part of a payload to all places where it belongs. After the last part the payload is verified.
pub(super) fn write(
    payload: &PlannedPayload,
    start: u64,
    bytes: &[u8],
    is_last: bool,
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    for place in &payload.places {
        let file = &work.plan.files[place.file as usize];
        let opened = work.top.open_file(&work.plan, place.file, last)?;
        opened
            .write_all_at(bytes, place.offset + start)
            .map_err(|error| RestoreFailure::os(&error, &work.plan.path(file.folder, &file.name)))?;
        work.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if is_last && file.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            work.top.finish_file(&work.plan, place.file, opened, last)?;
        }
    }
    if is_last {
        payload.is_done.store(true, Ordering::Release);
        work.received.fetch_add(start + bytes.len() as u64, Ordering::Relaxed);
        work.payloads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Checks that a payload is as long as its file says.
pub(super) fn check_size(payload: &PlannedPayload, size: u64, work: &Writing) -> Result<(), RestoreFailure> {
    match payload.places.iter().find(|place| place.size.is_some_and(|expected| expected != size)) {
        None => Ok(()),
        Some(place) => {
            let (plan, cid) = (&work.plan, payload.cid());
            let file = &plan.files[place.file as usize];
            let path = plan.path(file.folder, &file.name);
            let (offset, expected) = (place.offset, place.size.unwrap_or(0));
            let what = format!("{path}: at byte {offset} are {expected} bytes, but the payload {cid} has {size}");
            Err(RestoreFailure::Core(Error::input(InputCode::KindMismatch, what.escape_debug().to_string())))
        }
    }
}

/// Writes the payloads that are in their CIDs.
pub(super) fn write_identities(work: &Writing) -> Result<(), RestoreFailure> {
    let mut last = LastFolder::default();
    for payload in &work.plan.payloads {
        if let Some(bytes) = payload.cid().identity() {
            check_size(payload, bytes.len() as u64, work)?;
            write(payload, 0, bytes, true, &mut last, work)?;
        }
    }
    Ok(())
}
