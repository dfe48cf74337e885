//! The extension `coregw._core`: the Python binding of `coregw-core`, `coregw-ops`, `coregw-folders` and `coregw-front`.
//!
//! A function here converts its arguments, releases the GIL for long work (`detach`), calls a crate, and converts the
//! result; all rules are in the crates. Types are in `python/coregw/_core.pyi`, which repeats the docstrings from here.
#![forbid(unsafe_code)]
// What only folders and the front use is not used where they are not supported.
#![cfg_attr(not(unix), allow(dead_code, unused_imports))]

mod change;
mod cid;
mod convert;
mod detach;
mod engine;
mod errors;
mod folders;
#[cfg(unix)]
mod front;
mod http;
mod list;
mod map;
mod path;
mod payload;
#[cfg(unix)]
mod queues;
mod results;
mod signals;
mod sorting;
mod tuples;
#[cfg(not(unix))]
mod unsupported;
mod verify;

/// In the C library's heap, parsed pages and the short-lived memory of requests would lie side by side, and each
/// request would search for free memory between the pages: a sixth of its time, with a large map.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trees, proofs, verification and pages: everything of coregw that computes. Does no I/O, but for folders (`survey`,
/// `hash_survey`, `FolderUpload`, `FolderWriter`, `files_match`), the temporary file of an `ArcSorter`, and the connections
/// of a `Front`.
#[pyo3::pymodule]
mod _core {
    use pyo3::prelude::*;
    use pyo3::types::{PyMapping, PySequence};

    #[pymodule_export]
    use crate::cid::Cid;
    #[pymodule_export]
    use crate::convert::check_integer;
    #[pymodule_export]
    use crate::engine::batch::{read_cids, read_get_batch, read_get_pages, read_has_batch};
    #[pymodule_export]
    use crate::engine::cache::{PageCache, root_block};
    #[pymodule_export]
    use crate::engine::car::{
        CarReader, block_cid, block_head, block_heads, car_header, payload_car_header, read_varint,
    };
    #[pymodule_export]
    use crate::engine::links::{KeyFilter, apply_difference, join_differences, page_guides, page_links};
    #[pymodule_export]
    use crate::engine::need::Need;
    #[pymodule_export]
    use crate::engine::operation::Operation;
    #[pymodule_export]
    use crate::folders::attributes::{JoinedFolder, decode_attributes, encode_attributes, join_folder};
    #[pymodule_export]
    use crate::folders::chunks::chunk_sizes;
    #[cfg(unix)]
    #[pymodule_export]
    use crate::folders::hashed::{HashedFolder, hash_survey};
    #[cfg(unix)]
    #[pymodule_export]
    use crate::folders::listing::FolderListing;
    #[cfg(unix)]
    #[pymodule_export]
    use crate::folders::restore::{FolderRights, FolderWriter, PayloadSink, files_match, remove_tree};
    #[cfg(unix)]
    #[pymodule_export]
    use crate::folders::survey::{Survey, survey};
    #[cfg(unix)]
    #[pymodule_export]
    use crate::folders::upload::{FolderLines, FolderUpload, PayloadBatch};
    #[cfg(unix)]
    #[pymodule_export]
    use crate::front::{Certificate, Front, Listener, Proxies};
    #[pymodule_export]
    use crate::http::{
        Origins, entity_bytes, is_loopback, is_media_type, negotiate, precondition_status, select_range,
    };
    #[pymodule_export]
    use crate::list::List;
    #[pymodule_export]
    use crate::map::Map;
    #[pymodule_export]
    use crate::path::encode_key;
    #[pymodule_export]
    use crate::payload::{PayloadCheck, PayloadHasher, codec_code, is_linkless, payload_cid, payload_matches};
    #[cfg(unix)]
    #[pymodule_export]
    use crate::queues::{StoreReads, StoreWrites};
    #[pymodule_export]
    use crate::results::{
        check_json, read_verdict, resolve_verdict, verify_diff, verify_map_proof, verify_read, verify_resolve,
        verify_scan_result, verify_transition,
    };
    #[pymodule_export]
    use crate::sorting::{ArcSorter, SortedLines};
    use crate::tuples;
    #[pymodule_export]
    use crate::verify::{
        verify_changes, verify_index, verify_key, verify_key_many, verify_keys, verify_range, verify_scan,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        PyMapping::register::<Map>(py)?;
        PySequence::register::<List>(py)?;
        for tuple in tuples::ALL {
            module.add(tuple.name, tuple.class(py)?)?;
        }
        #[cfg(not(unix))]
        crate::unsupported::add(module)?;
        Ok(())
    }
}
