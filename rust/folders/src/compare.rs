//! Whether files have the bytes that payloads name.

use std::io::{self, Read};
use std::path::{Component, PathBuf};

use coregw_core::payload::Check;
use coregw_core::{Cid, Result};

use crate::beneath::Beneath;
use crate::parallel;
use crate::plan::known_size;
use crate::watch::Watch;

const READ_BYTES: usize = 256 << 10;

/// A file to compare: the path, its payloads, and its size if that is known.
pub struct ComparedFile {
    path: PathBuf,
    parts: Vec<(Cid, Option<u64>)>,
    size: Option<u64>,
}

impl ComparedFile {
    /// A file that should consist of these payloads. The sizes of all but the last are known.
    ///
    /// # Errors
    /// [`coregw_core::Error::Input`] if no file can be that long.
    pub fn new(path: PathBuf, parts: Vec<(Cid, Option<u64>)>) -> Result<Self> {
        let size = known_size(&parts).map_err(|error| error.within(&path.to_string_lossy()))?;
        let size = parts.iter().all(|(_, size)| size.is_some()).then_some(size);
        Ok(Self { path, parts, size })
    }
}

/// Whether each of these files, below the folder, consists of its payloads; false for what cannot be read. O(bytes), on all
/// cores.
pub fn files_match(beneath: &Beneath, files: &[ComparedFile], watch: &impl Watch) -> Vec<bool> {
    let compare = |file: &ComparedFile| matches(beneath, file, watch).unwrap_or(false);
    parallel::map_watched(files, compare, &|| _ = watch.is_interrupted())
}

fn matches(
    beneath: &Beneath,
    ComparedFile { path, parts, size }: &ComparedFile,
    watch: &impl Watch,
) -> io::Result<bool> {
    if !path.components().all(|each| matches!(each, Component::Normal(_))) {
        return Ok(false);
    }
    let mut file = beneath.open(path)?;
    let state = file.metadata()?;
    if !state.is_file() || size.is_some_and(|size| size != state.len()) {
        return Ok(false);
    }
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(state.len()).unwrap_or(READ_BYTES)).max(1)];
    for (cid, size) in parts {
        let mut check = Check::new(cid);
        let mut left = size.unwrap_or(u64::MAX);
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = match file.read(&mut buffer[..want]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            watch.progress(count as u64);
            if count == 0 || watch.is_interrupted() {
                break;
            }
            check.update(&buffer[..count]);
            left -= count as u64;
        }
        if !check.is_match() {
            return Ok(false);
        }
    }
    Ok(file.read(&mut buffer[..1])? == 0)
}
