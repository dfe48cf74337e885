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
	// Everything on one thread, and the collector runs between rounds only: its work isn't counted.
	runtime.GOMAXPROCS(1)
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
	debug.SetGCPercent(-1)
	say(map[string]float64{"build": built.Seconds(), "proof_bytes": float64(bytes) / float64(lookups)})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		runtime.GC()
		start = cpu()
		for i := range lookups {
			peer.Prove(i)
		}
		proved := cpu()
		for i := range lookups {
			if !peer.Verify(i) {
				panic("a proof is refused")
			}
		}
		verified := cpu()
		each := func(d time.Duration) float64 { return d.Seconds() / float64(lookups) }
		say(map[string]float64{"prove": each(proved - start), "verify": each(verified - proved)})
	}
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
