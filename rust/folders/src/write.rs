//! Writing payloads to the places where they belong.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use core::{Error, InputCode};
use coregw_core as core;

use super::batch::{Batch, PlannedPayload};
use super::failure::RestoreFailure;
use super::folders::LastFolder;
use super::lock::locked;
use super::writing::Writing;

/// Writes a part of a payload to all places where it belongs, unless the work is stopped. After the last part the payload
/// is verified.
pub(super) fn write(
    batch: &Batch,
    payload: &PlannedPayload,
    (start, bytes, is_last): (u64, &[u8], bool),
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    for place in &payload.places {
        // A list that repeats an element has any number of them.
        if work.is_stopped() {
            return Ok(());
        }
        let file = &batch.files[place.file as usize];
        let opened = work.top.open_file(&work.plan(), file, last)?;
        opened
            .write_all_at(bytes, place.offset + start)
            .map_err(|error| RestoreFailure::os(&error, &work.plan().path(file.folder, &file.name)))?;
        work.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if is_last && file.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let state = work.top.finish_file(&work.plan(), file, opened, last)?;
            work.note(file, state, payload);
        } else {
            work.top.keep_open(file, opened);
        }
    }
    if is_last {
        payload.is_done.store(true, Ordering::Release);
        work.received.fetch_add(start + bytes.len() as u64, Ordering::Relaxed);
        work.payloads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Removes what an answer that was truncated may have left in files beyond a payload's true end, which is not known.
pub(super) fn shorten(
    batch: &Batch,
    payload: &PlannedPayload,
    last: &mut LastFolder,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    for place in payload.places.iter().filter(|place| place.size.is_none()) {
        if work.is_stopped() {
            return Ok(());
        }
        let file = &batch.files[place.file as usize];
        if locked(&file.created).is_some() {
            let opened = work.top.open_file(&work.plan(), file, last)?;
            opened
                .set_len(place.offset)
                .map_err(|error| RestoreFailure::os(&error, &work.plan().path(file.folder, &file.name)))?;
        }
    }
    Ok(())
}

/// Checks that a payload is as long as its file says.
pub(super) fn check_size(
    batch: &Batch,
    payload: &PlannedPayload,
    size: u64,
    work: &Writing,
) -> Result<(), RestoreFailure> {
    match payload.places.iter().find(|place| place.size.is_some_and(|expected| expected != size)) {
        None => Ok(()),
        Some(place) => {
            let file = &batch.files[place.file as usize];
            let (path, cid) = (work.plan().path(file.folder, &file.name), payload.cid());
            let (offset, expected) = (place.offset, place.size.unwrap_or(0));
            let what = format!("{path}: at byte {offset} are {expected} bytes, but the payload {cid} has {size}");
            Err(RestoreFailure::Core(Error::input(InputCode::KindMismatch, what.escape_debug().to_string())))
        }
    }
}

/// Writes the payloads that are in their CIDs.
pub(super) fn write_identities(batch: &Batch, work: &Writing) -> Result<(), RestoreFailure> {
    let mut last = LastFolder::default();
    for payload in &batch.payloads {
        if let Some(bytes) = payload.cid().identity() {
            check_size(batch, payload, bytes.len() as u64, work)?;
            work.count_unknown(batch, payload, bytes.len() as u64)?;
            write(batch, payload, (0, bytes, true), &mut last, work)?;
        }
    }
    Ok(())
}
