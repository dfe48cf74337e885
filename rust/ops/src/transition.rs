//! Transition (protocol section 5): checking that a mutation was made as requested, without the data.
//!
//! The client replays its own changes on the pruned trees in the receipt. That gives the new root; the receipt only has
//! to agree with it.

use coregw_core::{Answer, Ask, Cid, Error, Result, RootCid, verify};
use serde::Deserialize;

use crate::json::{decode_base64, objects};
use crate::message::delta::{Delta, DeltaMessage, DeltaReceipt, Receipt, base_root, deltas, read_all};
use crate::message::{self, present, root_member};

/// A mutation request with the base root that the caller chose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
struct TransitionRequest<'a> {
    root: String,
    #[serde(borrow, deserialize_with = "deltas")]
    deltas: Vec<DeltaMessage<'a>>,
    #[serde(default, deserialize_with = "present")]
    prove: Option<bool>,
}

objects! {
    read: TransitionRequest<'a>;
}

/// Derives the new root from the base root and the caller's own changes, and compares the receipt with it.
///
/// `request` is the mutation request with the base root as its member `root`. O(changes x depth) hashes.
///
/// Of a `commit.fixed_list` the proof shows the number of elements, their total, the sizes of the changed elements, and
/// the sums of the subtrees beside them. So the result is a fixed list if the delta's object was one with the same
/// `chunk_size`, or is new; else the sizes of unchanged elements are not proven.
///
/// # Errors
/// [`Error::Input`] and [`Error::Conflict`] if the request is malformed or contradicts itself; [`Error::Proof`] for
/// anything wrong in the receipt, a missing proof included. Its steps are deltas, from 0.
pub fn verify_transition(request: &[u8], receipt: &[u8]) -> Result<Cid> {
    let TransitionRequest { root, deltas, prove } = message::request(request)?;
    if prove == Some(false) {
        return Err(Error::request("prove: a receipt without proofs cannot be verified"));
    }
    let base = base_root(&root_member(&root)?)?;
    let deltas = read_all(request, deltas)?;
    let receipt: Receipt = message::result(receipt)?;
    check_receipt("base_root", &receipt.base_root, &base.cid().text())?;
    check_receipt("delta_count", &receipt.delta_count.0, &(deltas.len() as u64))?;
    check_receipt("number of deltas", &receipt.deltas.len(), &deltas.len())?;
    let arcs: u64 = deltas.iter().map(|(delta, _)| delta.change_count).sum();
    check_receipt("arc_count", &receipt.arc_count.0, &arcs)?;
    let (mut current, mut last) = (base, base);
    for (index, ((delta, ask), sent)) in deltas.into_iter().zip(&receipt.deltas).enumerate() {
        let object = delta.object(&current).map_err(|error| error.within(&format!("delta {index}")))?.root();
        last = replay(&delta, ask, &object, sent).map_err(|error| error.in_delta(index))?;
        if object == current {
            current = last;
        }
    }
    check_receipt("new_root", &receipt.new_root, &last.cid().text())?;
    Ok(last.cid())
}

/// The result of one delta on `object`.
fn replay(delta: &Delta, ask: Ask, object: &RootCid, sent: &DeltaReceipt) -> Result<RootCid> {
    check_receipt("object", &sent.object, &object.cid().text())?;
    let proof = sent.proof.as_ref().ok_or_else(|| Error::proof("member \"proof\" is missing"))?;
    let proof = decode_base64(proof)
        .map_err(|error| Error::proof(format!("member \"proof\" is not canonical base64: {error}")))?;
    let Answer::Changed(changed) = verify::replay(object, ask, &proof, verify::WIDE_PROOF_LIMIT)? else {
        return Err(Error::proof("the answer is of another kind"));
    };
    let result = RootCid { digest: changed.digest, ..*object };
    delta.check_expected(&result).map_err(|error| Error::proof(error.to_string()))?;
    check_receipt("result", &sent.result, &result.cid().text())?;
    Ok(result)
}

fn check_receipt<T: PartialEq>(member: &str, sent: &T, derived: &T) -> Result<()> {
    match sent == derived {
        true => Ok(()),
        false => Err(Error::proof(format!("the receipt's {member:?} is not what follows from the changes"))),
    }
}
