// Malt measures github.com/dewebprotocol/malt-core: maps from paths to content identifiers, like coregw's, but
// authenticated with vector commitments. `malt kzg` and `malt ipa` select the commitment.
//
// It proves that a path has a content identifier as its target, as coregw does.
package main

import (
	"context"
	"crypto/sha256"
	"os"

	"coregw.test/peers/driver"
	"github.com/dewebprotocol/malt-core/auth/arcset"
	"github.com/dewebprotocol/malt-core/auth/arcset/materializer/memory"
	"github.com/dewebprotocol/malt-core/auth/commitment"
	"github.com/dewebprotocol/malt-core/auth/commitment/ipa"
	"github.com/dewebprotocol/malt-core/auth/commitment/kzg"
	structure "github.com/dewebprotocol/malt-core/auth/semantic"
	"github.com/dewebprotocol/malt-core/auth/semantic/mapping"
	"github.com/dewebprotocol/malt-core/auth/semantic/mapping/radix"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

const namespace = "bench"

type peer struct {
	tree     *radix.Map
	root     cid.Cid
	keys     []arcset.Path
	bindings []mapping.Binding
	proofs   []structure.Proof
}

func (p *peer) Prove(i int) int {
	binding, proof, err := p.tree.Prove(context.Background(), namespace, p.root, p.keys[i])
	driver.Check(err)
	if !binding.Present {
		panic("a key was not found")
	}
	p.bindings[i], p.proofs[i] = binding, proof
	return len(proof)
}

func (p *peer) Verify(i int) bool {
	good, err := p.tree.Verify(p.root, p.keys[i], p.bindings[i], p.proofs[i])
	driver.Check(err)
	return good
}

func build(scheme commitment.IndexCommitment) func([]string) driver.Peer {
	return func(texts []string) driver.Peer {
		tree, err := radix.NewMap(scheme, memory.New(true))
		driver.Check(err)
		n := len(texts)
		p := &peer{tree: tree, keys: make([]arcset.Path, n), bindings: make([]mapping.Binding, n)}
		p.proofs = make([]structure.Proof, n)
		arcs := make(map[string]cid.Cid, n)
		for i, text := range texts {
			p.keys[i] = arcset.CanonicalizePath(text)
			key := sha256.Sum256([]byte(text))
			hash, err := multihash.Sum(key[:], multihash.SHA2_256, -1)
			driver.Check(err)
			arcs[text] = cid.NewCidV1(cid.Raw, hash)
		}
		p.root, err = tree.Commit(context.Background(), namespace, mapping.NewViewFrom(arcs))
		driver.Check(err)
		return p
	}
}

func main() {
	var scheme commitment.IndexCommitment
	var err error
	if os.Args[1] == "kzg" {
		scheme, err = kzg.NewScheme()
	} else {
		scheme, err = ipa.NewScheme()
	}
	driver.Check(err)
	os.Args = os.Args[1:]
	driver.Run(build(scheme))
}
