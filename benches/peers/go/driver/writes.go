package driver

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Change is a new value of a key.
type Change struct {
	Key   []byte
	Value []byte
}

// A Store holds all keys. Each writer has keys of its own. Its functions panic if they fail.
type Store interface {
	// Prepare prepares a case with this many writers and changes in each request, which is not measured.
	Prepare(writers, changes int)
	// Write makes the changes of one request durable.
	Write(writer int, changes []Change)
	// Check panics unless the last change of a writer is stored, and reports whether a proof shows it.
	Check(writer int, change Change) bool
}

// RunWrites creates a store from the keys in the file os.Args[2], with first values, in the folder os.Args[1], prints its
// process, and measures the cases that stdin asks for, as benches/peers/rust/src/writes.rs does.
func RunWrites(create func(folder string, first []Change) Store) {
	text, err := os.ReadFile(os.Args[2])
	Check(err)
	keys := strings.Split(strings.TrimSpace(string(text)), "\n")
	var seeds atomic.Uint64
	change := func(number int) Change { return Change{[]byte(keys[number]), value(seeds.Add(1))} }
	first := make([]Change, len(keys))
	for i := range keys {
		first[i] = change(i)
	}
	store := create(os.Args[1], first)
	answer(map[string]any{"process": os.Getpid()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var writers, changes int
		var seconds float64
		_, err := fmt.Sscan(lines.Text(), &writers, &changes, &seconds)
		Check(err)
		store.Prepare(writers, changes)
		answer(map[string]any{})
		lines.Scan()
		start := time.Now()
		last, counts := make([]Change, writers), make([]int, writers)
		var all sync.WaitGroup
		for writer := range writers {
			all.Go(func() {
				position, count := 0, len(keys)/writers
				for request := make([]Change, changes); ; {
					for i := range request {
						request[i] = change(position*writers + writer)
						position = (position + 1) % count
					}
					store.Write(writer, request)
					counts[writer] += changes
					last[writer] = request[changes-1]
					if time.Since(start).Seconds() >= seconds {
						return
					}
				}
			})
		}
		all.Wait()
		elapsed, count := time.Since(start), 0
		for _, each := range counts {
			count += each
		}
		answer(map[string]any{"changes": count, "seconds": elapsed.Seconds()})
		lines.Scan()
		proven := true
		for writer := range writers {
			proven = store.Check(writer, last[writer]) && proven
		}
		answer(map[string]any{"proof": proven})
	}
}

// value returns 32 bytes that occur once, by the finalizer of SplitMix64.
func value(seed uint64) []byte {
	value := make([]byte, 0, 32)
	for lane := range uint64(4) {
		mixed := (4*seed + lane) * 0x9e3779b97f4a7c15
		mixed = (mixed ^ mixed>>30) * 0xbf58476d1ce4e5b9
		mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
		value = binary.LittleEndian.AppendUint64(value, mixed^mixed>>31)
	}
	return value
}

func answer(values map[string]any) {
	line, err := json.Marshal(values)
	Check(err)
	fmt.Println(string(line))
}
