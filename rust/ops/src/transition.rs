//! Checking that a mutation was done right, without the data (protocol section 5, *transition*).
//!
//! The client replays its own changes on the pruned trees of the receipt. What comes out is the new root; the receipt
//! only has to agree.

use crate::deltas;
use crate::messages::{self as msg, Delta, DeltaReceipt, FixedList, Receipt};
use crate::writing;
use coregw_core::internals::prove::Answer;
use coregw_core::verify;
use coregw_core::{Cid, RootCid};
use coregw_core::{Error, InputCode, Result};

/// Derives the new root from the base root and the caller's own changes, and compares the receipt with it.
///
/// `request` is the mutation request with the base root as its member `root`. O(changes x depth) hashes.
///
/// # Errors
/// [`Error::Input`] and [`Error::Conflict`] for a request that is none or contradicts itself; [`Error::Proof`] for
/// anything wrong in the receipt, a missing proof included. Steps are deltas, from 0.
pub fn verify_transition(request: &[u8], receipt: &[u8]) -> Result<Cid> {
    let request: msg::TransitionRequest = msg::request(request)?;
    if request.prove == Some(false) {
        return Err(Error::request("prove: without it the receipt has no proofs"));
    }
    let base = Cid::from_text(&request.root).map_err(|error| error.within("root"))?;
    let base = base
        .root()
        .ok_or_else(|| Error::input(InputCode::KindMismatch, format!("root: {base} is a payload, not a root")))?;
    deltas::check_all(&request.deltas)?;
    let receipt: Receipt = msg::result(receipt)?;
    must_equal("base_root", &receipt.base_root, &base.cid().text())?;
    must_equal("delta_count", &receipt.delta_count.0, &(request.deltas.len() as u64))?;
    must_equal("number of deltas", &receipt.deltas.len(), &request.deltas.len())?;
    let arcs: usize = request.deltas.iter().map(|delta| delta.changes.len()).sum();
    must_equal("arc_count", &receipt.arc_count.0, &(arcs as u64))?;
    let (mut current, mut last) = (base, base);
    for (index, (delta, sent)) in request.deltas.iter().zip(&receipt.deltas).enumerate() {
        let (object, _) = deltas::object(delta, &current).map_err(|error| error.within(&format!("delta {index}")))?;
        last = replay(delta, &object, sent).map_err(|error| error.in_delta(index))?;
        if object == current {
            current = last;
        }
    }
    must_equal("new_root", &receipt.new_root, &last.cid().text())?;
    Ok(last.cid())
}

/// The result of one delta on `object`.
fn replay(delta: &Delta, object: &RootCid, sent: &DeltaReceipt) -> Result<RootCid> {
    must_equal("object", &sent.object, &object.cid().text())?;
    let proof = sent.proof.as_ref().ok_or_else(|| Error::proof("there is no proof"))?;
    let proof = writing::decode(proof)
        .map_err(|error| Error::proof(format!("member \"proof\" is not canonical base64: {error}")))?;
    let ask = deltas::ask(delta, object.kind)?;
    let Answer::Changed(changed) = verify::replay(object, ask, &proof, verify::WIDE_PROOF_LIMIT)? else {
        return Err(Error::proof("an answer of another kind"));
    };
    if let Some(fixed) = deltas::fixed(delta) {
        check_fixed(fixed, changed.sum.count, changed.sum.measure)?;
    }
    let result = RootCid { digest: changed.sum.digest, ..*object };
    deltas::check_expected(delta, &result).map_err(|error| Error::proof(error.to_string()))?;
    must_equal("result", &sent.result, &result.cid().text())?;
    Ok(result)
}

/// The proof shows the count and the sum of a fixed list; the sizes of elements that were not changed are not shown.
fn check_fixed(fixed: FixedList, count: u64, total: u64) -> Result<()> {
    match count == deltas::fixed_count(fixed)? && total == fixed.total_size.0 {
        true => Ok(()),
        false => Err(Error::proof("the result is not the fixed list that the delta commits to")),
    }
}

fn must_equal<T: PartialEq>(member: &str, sent: &T, proven: &T) -> Result<()> {
    match sent == proven {
        true => Ok(()),
        false => Err(Error::proof(format!("the receipt's {member:?} is not what follows from the changes"))),
    }
}
