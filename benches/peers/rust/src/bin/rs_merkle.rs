//! `rs_merkle`, a Merkle tree over a sequence, with SHA-256. It proves that an index has the hash of a value, which the
//! verifier computes.

use coregw_peers::{Peer, run, value};
use rs_merkle::algorithms::Sha256;
use rs_merkle::{Hasher, MerkleProof, MerkleTree};

struct Tree {
    tree: MerkleTree<Sha256>,
    root: [u8; 32],
    values: Vec<[u8; 32]>,
}

impl Peer for Tree {
    fn prove(&self, i: usize) -> Vec<u8> {
        self.tree.proof(&[i]).to_bytes()
    }

    fn verify(&self, i: usize, proof: &[u8]) -> bool {
        let proof = MerkleProof::<Sha256>::from_bytes(proof).expect("a proof");
        proof.verify(self.root, &[i], &[Sha256::hash(&self.values[i])], self.values.len())
    }
}

fn main() {
    run(|texts| {
        let values: Vec<_> = texts.iter().map(|text| value(text)).collect();
        let leaves: Vec<_> = values.iter().map(|value| Sha256::hash(value)).collect();
        let tree = MerkleTree::from_leaves(&leaves);
        Tree { root: tree.root().expect("a root"), tree, values }
    });
}
