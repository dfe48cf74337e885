//! Content-defined chunks of a file (protocol section 7): each chunk is a payload.
//!
//! FastCDC cuts where the bytes say so, not where they are: after an insertion the cuts of the rest are the same.

use fastcdc::v2020::FastCDC;

/// The minimum length of a chunk that is not the last one, in bytes.
const MIN_CHUNK_BYTES: usize = 16 << 10;
/// The length from which a cut is more likely, in bytes.
const USUAL_CHUNK_BYTES: usize = 64 << 10;
/// The maximum length of a chunk, in bytes. A file of at most this length is one chunk.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;

/// The length of the next chunk of a file of `file_bytes` bytes. `rest` is the rest of it, or at least its next
/// [`MAX_CHUNK_BYTES`]. O(bytes of the chunk). Zero if there are no bytes.
pub fn next_chunk(rest: &[u8], file_bytes: u64) -> usize {
    let window = &rest[..rest.len().min(MAX_CHUNK_BYTES)];
    if file_bytes <= MAX_CHUNK_BYTES as u64 {
        return window.len();
    }
    let mut cuts = FastCDC::new(window, MIN_CHUNK_BYTES, USUAL_CHUNK_BYTES, MAX_CHUNK_BYTES);
    cuts.next().map_or(0, |chunk| chunk.length)
}
