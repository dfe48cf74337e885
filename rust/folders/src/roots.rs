//! The roots of a folder's two maps.

use coregw_core::map::{MapBuilder, NewMap};
use coregw_core::{Cid, Digest, Error, Key, Result, RootCid, Suite};

use crate::join::{ATTRIBUTES_PATH, RESERVED_NAME};

/// The roots of a folder's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderRoots {
    /// The folder's root.
    pub root: RootCid,
    /// The root of the map of attributes, unless that is empty.
    pub attributes: Option<RootCid>,
}

/// Builds the maps of a folder, in memory for incomplete pages only. O(n x depth).
///
/// `top` is the target of the record of the folder itself, `records` are those of the other records, and `files` those of
/// the files, each in key order. `keep` gets the pages as they
/// are complete: those of the map of attributes first, each after the pages below it.
///
/// # Errors
/// The first error of either iterator; [`coregw_core::Error::Input`] if a path is reserved or occurs twice, or a map is
/// too large.
pub fn build(
    suite: Suite,
    top: Option<Cid>,
    records: impl IntoIterator<Item = Result<(Key, Cid)>>,
    files: impl IntoIterator<Item = Result<(Key, Cid)>>,
    mut keep: impl FnMut(Vec<(Digest, Vec<u8>)>),
) -> Result<FolderRoots> {
    let top = top.map(|target| Ok::<_, Error>((Key::from_text(RESERVED_NAME)?, target))).transpose()?;
    let attributes = map(suite, records, top, &mut keep)?;
    let attributes = (attributes.count > 0).then_some(attributes.root);
    let reserved = match attributes {
        Some(root) => Some((Key::from_text(ATTRIBUTES_PATH)?, root.cid())),
        None => None,
    };
    let root = map(suite, files, reserved, &mut keep)?.root;
    Ok(FolderRoots { root, attributes })
}

fn map(
    suite: Suite,
    arcs: impl IntoIterator<Item = Result<(Key, Cid)>>,
    mut reserved: Option<(Key, Cid)>,
    keep: &mut impl FnMut(Vec<(Digest, Vec<u8>)>),
) -> Result<NewMap> {
    let mut builder = MapBuilder::new(suite);
    for arc in arcs {
        let (key, target) = arc?;
        if let Some((path, bound)) = reserved.take_if(|reserved| reserved.0 < key) {
            builder.push(path.as_bytes(), bound.as_bytes())?;
        }
        builder.push(key.as_bytes(), target.as_bytes())?;
        let pages = builder.take_pages();
        if !pages.is_empty() {
            keep(pages);
        }
    }
    if let Some((path, bound)) = reserved {
        builder.push(path.as_bytes(), bound.as_bytes())?;
    }
    let mut map = builder.finish()?;
    keep(std::mem::take(&mut map.pages));
    Ok(map)
}
