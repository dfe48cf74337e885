// Package driver measures one peer written in Go, for benches/bench_peers.py.
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

// rowLength is how many keys are looked up repeatedly before the next ones.
const rowLength = 200

// A Peer is a tree of keys. Prove and Verify take the number of a key.
type Peer interface {
	// Prove creates the proof of a key, keeps it for Verify, and returns its length in bytes.
	Prove(i int) int
	// Verify reports whether the kept proof of a key is valid.
	Verify(i int) bool
}

// Run builds a peer from the keys in the file os.Args[1], and for each line on stdin measures one round of
// os.Args[2] lookups, os.Args[3] times each.
func Run(build func(keys []string) Peer) {
	text, err := os.ReadFile(os.Args[1])
	Check(err)
	lookups, err := strconv.Atoi(os.Args[2])
	Check(err)
	passes, err := strconv.Atoi(os.Args[3])
	Check(err)
	keys := strings.Split(strings.TrimSpace(string(text)), "\n")
	start := cpu()
	peer := build(keys)
	built := cpu() - start
	bytes := 0
	for i := range lookups {
		bytes += peer.Prove(i)
	}
	// One thread, and a collection only at four times as much garbage as live data, which is faster than the default.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	report(map[string]float64{"build": built.Seconds(), "proof_bytes": float64(bytes) / float64(lookups)})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		times := round(peer, lookups, passes)
		each := func(i int) float64 { return times[i].Seconds() / float64(lookups) }
		report(map[string]float64{"spread": each(0), "prove": each(1), "verify": each(2)})
	}
}

// round returns the times of proving each key once, of proving rows of keys repeatedly, and of verifying them as often.
func round(peer Peer, lookups, passes int) (times [3]time.Duration) {
	prove := func(from, to, passes int) time.Duration {
		start := cpu()
		for range passes {
			for i := from; i < to; i++ {
				peer.Prove(i)
			}
		}
		return (cpu() - start) / time.Duration(passes)
	}
	times[0] = prove(0, lookups, 1)
	for from := 0; from < lookups; from += rowLength {
		to := min(from+rowLength, lookups)
		prove(from, to, 1)
		times[1] += prove(from, to, passes)
		start := cpu()
		for range passes {
			for i := from; i < to; i++ {
				if !peer.Verify(i) {
					panic("a proof was rejected")
				}
			}
		}
		times[2] += (cpu() - start) / time.Duration(passes)
	}
	return times
}

// Check panics if there is an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

func report(values map[string]float64) {
	line, err := json.Marshal(values)
	Check(err)
	fmt.Println(string(line))
}

// cpu returns the CPU time that the process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
