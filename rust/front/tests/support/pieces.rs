//! What [`Framing`] lets pass of bytes that arrive in pieces: for its tests, and for the fuzz target.

use coregw_front::framing::{Framing, Limits, Malformed, Part};

/// The bytes that pass, how many requests begin, where it ends, and the fault.
pub type Passed = (Vec<u8>, u64, Part, Option<Malformed>);

/// What becomes of these pieces.
pub fn passed<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Passed {
    let mut framing = Framing::new(limits);
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let checked = framing.check(&held);
            passed.extend(held.drain(..checked.passing));
            if checked.fault.is_some() {
                return (passed, framing.requests(), Part::Idle, checked.fault); // no part of a request
            }
            if !checked.is_complete || held.is_empty() {
                break;
            }
        }
    }
    (passed, framing.requests(), framing.part(), None)
}
