//! `jmt`, a Jellyfish Merkle tree: nibbles, SHA-256, nodes in a hash map.
//!
//! Its keys have 32 bytes: it gets the SHA-256 of the keys, computed beforehand. It proves that a digest has a value,
//! which the verifier hashes. Proofs are encoded with Borsh.

use coregw_peers::{Peer, run, sha256, value};
use hashbrown::HashMap;
use jmt::proof::SparseMerkleProof;
use jmt::storage::{LeafNode, Node, NodeKey, TreeReader};
use jmt::{KeyHash, OwnedValue, RootHash, Sha256Jmt};

#[derive(Default)]
struct Nodes {
    nodes: HashMap<NodeKey, Node>,
    values: HashMap<KeyHash, OwnedValue>,
}

impl TreeReader for Nodes {
    fn get_node_option(&self, key: &NodeKey) -> anyhow::Result<Option<Node>> {
        Ok(self.nodes.get(key).cloned())
    }

    fn get_value_option(&self, _: jmt::Version, key: KeyHash) -> anyhow::Result<Option<OwnedValue>> {
        Ok(self.values.get(&key).cloned())
    }

    fn get_rightmost_leaf(&self) -> anyhow::Result<Option<(NodeKey, LeafNode)>> {
        Ok(None)
    }
}

struct Tree {
    nodes: Nodes,
    root: RootHash,
    keys: Vec<(KeyHash, OwnedValue)>,
}

impl Peer for Tree {
    fn prove(&self, i: usize) -> Vec<u8> {
        let (_, proof) = Sha256Jmt::new(&self.nodes).get_with_proof(self.keys[i].0, 0).expect("a proof");
        borsh::to_vec(&proof).expect("bytes")
    }

    fn verify(&self, i: usize, proof: &[u8]) -> bool {
        let (key, value) = &self.keys[i];
        let proof: SparseMerkleProof<sha2::Sha256> = borsh::from_slice(proof).expect("a proof");
        proof.verify_existence(self.root, *key, value).is_ok()
    }
}

fn main() {
    run(|texts| {
        let keys: Vec<_> = texts.iter().map(|text| (KeyHash(sha256(text.as_bytes())), value(text).to_vec())).collect();
        let empty = Nodes::default();
        let set = keys.iter().map(|(key, value)| (*key, Some(value.clone())));
        let (root, batch) = Sha256Jmt::new(&empty).put_value_set(set, 0).expect("a tree");
        let nodes = batch.node_batch.nodes().iter().map(|(key, node)| (key.clone(), node.clone())).collect();
        Tree { nodes: Nodes { nodes, values: keys.iter().cloned().collect() }, root, keys }
    });
}
