// Mpt measures rsc.io/tmp/mpt: a binary Merkle Patricia tree, like coregw's maps. `mpt memory` and `mpt hashed` hold it
// in memory, `mpt disk` in its memory-mapped files.
//
// Keys and values of this tree have 32 bytes. It gets the keys, which have the same length, unchanged, so that its tree
// has the shape of coregw's; `hashed` gets their SHA-256, which makes a flatter tree. It proves that a key has a digest.
package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"

	"coregw.test/peers/driver"
	"rsc.io/tmp/mpt"
)

type peer struct {
	tree   mpt.Tree
	snap   mpt.Snapshot
	keys   []mpt.Key
	values []mpt.Val
	proofs []mpt.Proof
}

func (p *peer) Prove(i int) int {
	val, ok, proof, err := p.tree.Prove(p.keys[i])
	driver.Check(err)
	if !ok {
		panic("a key was not found")
	}
	p.values[i], p.proofs[i] = val, proof
	return len(proof)
}

func (p *peer) Verify(i int) bool {
	return mpt.VerifyPresent(p.snap, p.keys[i], p.values[i], p.proofs[i]) == nil
}

func build(tree mpt.Tree, hashed bool) func([]string) driver.Peer {
	return func(texts []string) driver.Peer {
		n := len(texts)
		p := &peer{tree: tree, keys: make([]mpt.Key, n), values: make([]mpt.Val, n), proofs: make([]mpt.Proof, n)}
		for i, text := range texts {
			digest := sha256.Sum256([]byte(text))
			p.keys[i] = mpt.Key([]byte(text))
			if hashed {
				p.keys[i] = digest
			}
			driver.Check(tree.Set(p.keys[i], sha256.Sum256(digest[:])))
		}
		var err error
		p.snap, err = tree.Snap(1)
		driver.Check(err)
		driver.Check(tree.Sync())
		return p
	}
}

func main() {
	kind := os.Args[1]
	os.Args = os.Args[1:]
	if kind != "disk" {
		driver.Run(build(mpt.NewMemTree(), kind == "hashed"))
		return
	}
	folder, err := os.MkdirTemp("", "mpt")
	driver.Check(err)
	defer os.RemoveAll(folder)
	tree, err := mpt.Create(filepath.Join(folder, "1"), filepath.Join(folder, "2"), filepath.Join(folder, "leaves"))
	driver.Check(err)
	driver.Run(build(tree, false))
}
