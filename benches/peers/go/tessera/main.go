// Tessera measures the POSIX driver of Tessera: a log whose entries are a key with a value each, acknowledged when they
// are integrated, which is durable.
//
// The next checkpoint proves the entry's place in the log, and that the log only grows; not that a value is the newest of
// its key.
package main

import (
	"context"
	"crypto/rand"
	"time"

	"coregw.test/peers/driver"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
)

const origin = "coregw.test/peers"

// A batch is complete when all writers' entries are in it; this is how long it waits for those of slower ones.
const batchAge = 5 * time.Millisecond

type peer struct {
	folder   string
	signer   note.Signer
	verifier note.Verifier
	appender *tessera.Appender
	reader   tessera.LogReader
	shutdown func(context.Context) error
	last     []uint64
}

func entry(change driver.Change) []byte {
	return append(append([]byte{}, change.Key...), change.Value...)
}

func (p *peer) Prepare(writers, changes int) {
	ctx := context.Background()
	if p.shutdown != nil {
		driver.Check(p.shutdown(ctx))
	}
	storage, err := posix.New(ctx, posix.Config{Path: p.folder})
	driver.Check(err)
	together := uint(writers * changes)
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(p.signer).
		WithCheckpointInterval(time.Second).
		WithBatching(together, batchAge).
		WithPushback(2 * together)
	p.appender, p.shutdown, p.reader, err = tessera.NewAppender(ctx, storage, options)
	driver.Check(err)
	p.last = make([]uint64, writers)
}

func (p *peer) Write(writer int, changes []driver.Change) {
	futures := make([]tessera.IndexFuture, len(changes))
	for i, change := range changes {
		futures[i] = p.appender.Add(context.Background(), tessera.NewEntry(entry(change)))
	}
	for _, future := range futures {
		index, err := future()
		driver.Check(err)
		p.last[writer] = index.Index
	}
}

func (p *peer) Check(writer int, change driver.Change) bool {
	ctx := context.Background()
	index := p.last[writer]
	for {
		checkpoint, _, _, err := client.FetchCheckpoint(ctx, p.reader.ReadCheckpoint, p.verifier, origin)
		driver.Check(err)
		if index >= checkpoint.Size {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		builder, err := client.NewProofBuilder(ctx, checkpoint.Size, p.reader.ReadTile)
		driver.Check(err)
		shown, err := builder.InclusionProof(ctx, index)
		driver.Check(err)
		leaf := rfc6962.DefaultHasher.HashLeaf(entry(change))
		driver.Check(proof.VerifyInclusion(rfc6962.DefaultHasher, index, checkpoint.Size, leaf, shown, checkpoint.Hash))
		return true
	}
}

func main() {
	driver.RunWrites(func(folder string, first []driver.Change) driver.Store {
		private, public, err := note.GenerateKey(rand.Reader, origin)
		driver.Check(err)
		p := &peer{folder: folder}
		p.signer, err = note.NewSigner(private)
		driver.Check(err)
		p.verifier, err = note.NewVerifier(public)
		driver.Check(err)
		p.Prepare(1, len(first))
		p.Write(0, first)
		return p
	})
}
