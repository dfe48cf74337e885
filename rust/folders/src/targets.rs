//! The targets of many files, in 33 bytes each.

use core::codec::Codec;
use core::payload::Function;
use core::{Cid, Digest, Kind, RootCid, Suite};
use coregw_core as core;

/// Which CIDs a folder's files have: payloads with sha2-256, or lists of the folder's suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    #[default]
    Absent,
    Payload,
    List,
}

/// For each entry of a survey, the target of its file, if it is known.
#[derive(Debug, Clone)]
pub(super) struct FileTargets {
    suite: Suite,
    forms: Vec<Form>,
    digests: Vec<[u8; 32]>,
}

impl FileTargets {
    /// `count` entries without targets.
    pub(super) fn new(suite: Suite, count: usize) -> Self {
        Self { suite, forms: vec![Form::Absent; count], digests: vec![[0; 32]; count] }
    }

    /// Sets a target. False if no file of a folder has it.
    pub(super) fn set(&mut self, index: usize, target: &Cid) -> bool {
        let form = match target.root() {
            Some(root) if root.kind == Kind::List && root.suite == self.suite => Form::List,
            None if target.codec() == Codec::RAW.number() && target.hash_function() == Function::Sha2_256 => {
                Form::Payload
            }
            _ => return false,
        };
        let Ok(digest) = target.digest().try_into() else { return false };
        (self.forms[index], self.digests[index]) = (form, digest);
        true
    }

    /// Forgets a target.
    pub(super) fn clear(&mut self, index: usize) {
        self.forms[index] = Form::Absent;
    }

    /// Whether an entry has a target.
    pub(super) fn is_known(&self, index: usize) -> bool {
        self.forms[index] != Form::Absent
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self, index: usize) -> bool {
        self.forms[index] == Form::List
    }

    pub(super) fn get(&self, index: usize) -> Option<Cid> {
        let digest = Digest(self.digests[index]);
        match self.forms[index] {
            Form::Absent => None,
            Form::Payload => Some(Cid::of_payload(Codec::RAW.number(), Function::Sha2_256, &digest.0)),
            Form::List => Some(RootCid { kind: Kind::List, suite: self.suite, digest }.cid()),
        }
    }
}
