// Package driver measures one peer written in Go, as benches/peers/README.md says.
package driver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// inARow is how many keys are asked for again and again, before the next ones are.
const inARow = 200

// A Peer holds the keys it was built of. Prove and Verify are about the key of a number.
type Peer interface {
	// Prove makes the proof of a key, keeps it for Verify, and says how many bytes it has.
	Prove(i int) int
	// Verify says whether the kept proof of a key is good.
	Verify(i int) bool
}

// Run builds a peer of the keys in the file os.Args[1] and answers each line on stdin with one round of
// os.Args[2] look-ups.
func Run(build func(keys []string) Peer) {
	text, err := os.ReadFile(os.Args[1])
	Check(err)
	lookups, err := strconv.Atoi(os.Args[2])
	Check(err)
	keys := strings.Split(strings.TrimSpace(string(text)), "\n")
	start := cpu()
	peer := build(keys)
	built := cpu() - start
	bytes := 0
	for i := range lookups {
		bytes += peer.Prove(i)
	}
	// Rounds run on one thread, and the collector between them only: its work isn't counted.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	say(map[string]float64{"build": built.Seconds(), "proof_bytes": float64(bytes) / float64(lookups)})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		runtime.GC()
		times := round(peer, lookups)
		each := func(i int) float64 { return times[i].Seconds() / float64(lookups) }
		say(map[string]float64{"spread": each(0), "prove": each(1), "verify": each(2)})
	}
}

// round gives the times of proving all keys one after the other; of proving the same few keys a second time; of
// verifying them.
func round(peer Peer, lookups int) (times [3]time.Duration) {
	prove := func(from, to int) time.Duration {
		start := cpu()
		for i := from; i < to; i++ {
			peer.Prove(i)
		}
		return cpu() - start
	}
	times[0] = prove(0, lookups)
	for from := 0; from < lookups; from += inARow {
		to := min(from+inARow, lookups)
		prove(from, to)
		times[1] += prove(from, to)
		start := cpu()
		for i := from; i < to; i++ {
			if !peer.Verify(i) {
				panic("a proof is refused")
			}
		}
		times[2] += cpu() - start
	}
	return times
}

// Check ends the driver if there is an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

func say(values map[string]float64) {
	line, err := json.Marshal(values)
	Check(err)
	fmt.Println(string(line))
}

// cpu is the processor time that the process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
