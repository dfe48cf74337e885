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
// os.Args[2] look-ups, os.Args[3] times each.
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
	// One thread; and four times as much garbage as data before it is collected, which is faster than the default.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	say(map[string]float64{"build": built.Seconds(), "proof_bytes": float64(bytes) / float64(lookups)})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		times := round(peer, lookups, passes)
		each := func(i int) float64 { return times[i].Seconds() / float64(lookups) }
		say(map[string]float64{"spread": each(0), "prove": each(1), "verify": each(2)})
	}
}

// round gives the times of proving each key once, one after the other; of proving the same few keys again and again; of
// verifying them as often.
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
	for from := 0; from < lookups; from += inARow {
		to := min(from+inARow, lookups)
		prove(from, to, 1)
		times[1] += prove(from, to, passes)
		start := cpu()
		for range passes {
			for i := from; i < to; i++ {
				if !peer.Verify(i) {
					panic("a proof is refused")
				}
			}
		}
		times[2] += (cpu() - start) / time.Duration(passes)
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
