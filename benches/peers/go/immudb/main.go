// Immudb measures the embedded store of immudb, synced: a transaction for each request, acknowledged when it is durable
// and indexed.
//
// It proves that a transaction has a key with a value, and that the newest one has that transaction in its history; not
// that a value is the newest of its key.
package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"coregw.test/peers/driver"
	"github.com/codenotary/immudb/embedded/htree"
	"github.com/codenotary/immudb/embedded/logger"
	"github.com/codenotary/immudb/embedded/store"
)

type peer struct {
	store *store.ImmuStore
	// last has the header of the newest transaction of each writer.
	last []*store.TxHeader
}

const changesAtOnce = 1000

// The store waits for further transactions before it syncs, by default for up to 20 ms, which one writer alone would wait
// for in vain.
const syncFrequency = time.Millisecond

func (p *peer) put(changes []driver.Change) *store.TxHeader {
	tx, err := p.store.NewWriteOnlyTx(context.Background())
	driver.Check(err)
	for _, change := range changes {
		driver.Check(tx.Set(change.Key, nil, change.Value))
	}
	header, err := tx.Commit(context.Background())
	driver.Check(err)
	return header
}

func (p *peer) Prepare(writers, _ int) {
	p.last = make([]*store.TxHeader, writers)
}

func (p *peer) Write(writer int, changes []driver.Change) {
	p.last[writer] = p.put(changes)
}

func (p *peer) Check(writer int, change driver.Change) bool {
	found, err := p.store.Get(context.Background(), change.Key)
	driver.Check(err)
	value, err := found.Resolve()
	driver.Check(err)
	if !bytes.Equal(value, change.Value) {
		panic("the change is not stored")
	}
	tx := store.NewTx(changesAtOnce, store.DefaultMaxKeyLen)
	driver.Check(p.store.ReadTx(p.last[writer].ID, false, tx))
	inclusion, err := tx.Proof(change.Key)
	driver.Check(err)
	digest, err := store.EntrySpecDigestFor(tx.Header().Version)
	driver.Check(err)
	entry := digest(&store.EntrySpec{Key: change.Key, Value: change.Value})
	if !htree.VerifyInclusion(inclusion, entry, tx.Header().Eh) {
		panic("the proof of inclusion is invalid")
	}
	id, alh := p.store.CommittedAlh()
	newest, err := p.store.ReadTxHeader(id, false, false)
	driver.Check(err)
	history, err := p.store.DualProof(tx.Header(), newest)
	driver.Check(err)
	if !store.VerifyDualProof(history, tx.Header().ID, id, tx.Header().Alh(), alh) {
		panic("the proof of the history is invalid")
	}
	return true
}

func main() {
	driver.RunWrites(func(folder string, first []driver.Change) driver.Store {
		options := store.DefaultOptions().
			WithLogger(logger.NewSimpleLogger("", io.Discard)).
			WithMaxTxEntries(changesAtOnce).
			WithMaxConcurrency(64).
			WithSyncFrequency(syncFrequency)
		opened, err := store.Open(folder, options)
		driver.Check(err)
		p := &peer{store: opened}
		for len(first) > 0 {
			count := min(changesAtOnce, len(first))
			p.put(first[:count])
			first = first[count:]
		}
		return p
	})
}
