//! coregw's own maps (`coregw map`) and lists (`coregw list`). They prove that a path, or an index, has a content
//! identifier as its target.

use coregw_core::{Arcs, Cid, Key, RootCid, Snapshot, Suite, verify};
use coregw_peers::{Peer, run, value};

fn target(key: &str) -> Cid {
    Cid::from_bytes(&[&[1, 0x55, 0x12, 32], &value(key)[..]].concat()).expect("a CID")
}

struct Map {
    tree: Snapshot,
    root: RootCid,
    keys: Vec<Key>,
}

impl Peer for Map {
    fn prove(&self, i: usize) -> Vec<u8> {
        self.tree.key(&self.keys[i]).expect("a map").1()
    }

    fn verify(&self, i: usize, proof: &[u8]) -> bool {
        verify::key(&self.root, &self.keys[i], proof, verify::PROOF_LIMIT).is_ok_and(|target| target.is_some())
    }
}

struct List(Snapshot);

impl Peer for List {
    fn prove(&self, i: usize) -> Vec<u8> {
        self.0.index(i as u64).expect("a list").1()
    }

    fn verify(&self, i: usize, proof: &[u8]) -> bool {
        verify::index(&self.0.root(), i as u64, proof, verify::PROOF_LIMIT).is_ok()
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("list") {
        return run(|texts| {
            let elements: Vec<_> = texts.iter().map(|text| (target(text), 1)).collect();
            List(Snapshot::list(Suite::Sha2_256, &elements).expect("a list"))
        });
    }
    run(|texts| {
        let keys: Vec<_> = texts.iter().map(|text| Key::from_text(text).expect("a path")).collect();
        let mut arcs = Arcs::default();
        keys.iter().zip(texts).for_each(|(key, text)| arcs.push(key, &target(text)));
        let tree = Snapshot::map(Suite::Sha2_256, arcs).expect("a map");
        Map { root: tree.root(), tree, keys }
    });
}
