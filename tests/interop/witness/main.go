// Interop checks with the C2SP implementations of others: golang.org/x/mod/sumdb and filippo.io/torchwood.
//
//	witness verify < case.json    verifies a checkpoint by its policy, and proofs in its tree
//	witness serve NAME VKEY       is a witness for the log with this key; prints its own key and its address
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const maxRequestBytes = 1 << 20

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "verify":
		verify(os.Stdin)
	case len(os.Args) == 4 && os.Args[1] == "serve":
		serve(os.Args[2], os.Args[3])
	default:
		log.Fatal("expected: verify, or serve NAME VKEY")
	}
}

// A testCase is what the Python side has: a signed checkpoint, and what it proves.
type testCase struct {
	LogKey      string   `json:"log_key"`
	Policy      string   `json:"policy"`
	Note        string   `json:"note"`
	Entry       string   `json:"entry"` // base64
	Index       int64    `json:"index"`
	Inclusion   []string `json:"inclusion"`
	Old         int64    `json:"old"`
	OldRoot     string   `json:"old_root"`
	Consistency []string `json:"consistency"`
}

func verify(in io.Reader) {
	var c testCase
	check(json.NewDecoder(in).Decode(&c))
	verifier, err := note.NewVerifier(c.LogKey)
	check(err)
	opened, err := note.Open([]byte(c.Note), note.VerifierList(verifier))
	check(err)
	head, err := torchwood.ParseCheckpoint(opened.Text)
	check(err)
	policy, err := torchwood.ParsePolicy([]byte(c.Policy))
	check(err)
	byPolicy, _, err := torchwood.VerifyCheckpoint([]byte(c.Note), policy)
	check(err)
	if byPolicy.Tree != head.Tree {
		log.Fatal("two checkpoints in one note")
	}
	entry, err := base64.StdEncoding.DecodeString(c.Entry)
	check(err)
	check(tlog.CheckRecord(hashes(c.Inclusion), head.N, head.Hash, c.Index, tlog.RecordHash(entry)))
	old, err := tlog.ParseHash(c.OldRoot)
	check(err)
	check(tlog.CheckTree(hashes(c.Consistency), head.N, head.Hash, c.Old, old))
	fmt.Println("verified")
}

// A witness remembers one log in memory.
type witness struct {
	mu     sync.Mutex
	log    note.Verifier
	signer *torchwood.CosignatureSigner
	size   int64
	root   tlog.Hash
}

func serve(name, logKey string) {
	verifier, err := note.NewVerifier(logKey)
	check(err)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	signer, err := torchwood.NewCosignatureSigner(name, private)
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println(signer.Verifier())
	fmt.Printf("http://%s\n", listener.Addr())
	http.Handle("POST /add-checkpoint", &witness{log: verifier, signer: signer})
	check(http.Serve(listener, nil))
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxRequestBytes))
	head, signed, found := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	var old int64
	if _, scan := fmt.Sscanf(lines[0], "old %d", &old); err != nil || !found || scan != nil {
		http.Error(rw, "malformed", http.StatusBadRequest)
		return
	}
	opened, err := note.Open(signed, note.VerifierList(w.log))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusForbidden)
		return
	}
	checkpoint, err := torchwood.ParseCheckpoint(opened.Text)
	if err != nil || checkpoint.Origin != w.log.Name() {
		http.Error(rw, "unknown log", http.StatusNotFound)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old != w.size {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintf(rw, "%d\n", w.size)
		return
	}
	if old > 0 {
		if err := tlog.CheckTree(hashes(lines[1:]), checkpoint.N, checkpoint.Hash, old, w.root); err != nil {
			http.Error(rw, err.Error(), http.StatusUnprocessableEntity)
			return
		}
	}
	cosigned, err := note.Sign(&note.Note{Text: opened.Text}, w.signer)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	w.size, w.root = checkpoint.N, checkpoint.Hash
	rw.Write(cosigned[len(opened.Text)+1:])
}

// hashes returns the hashes of a proof; those that are malformed are zero, and fail its check.
func hashes(texts []string) []tlog.Hash {
	found := make([]tlog.Hash, len(texts))
	for i, text := range texts {
		found[i], _ = tlog.ParseHash(text)
	}
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
