// Uses a gateway by the transport of MALT's client, unchanged: `main URL`. Ends with status 0 if all calls succeed, and if
// the gateway's own verifier accepts the results as the transport encodes them again.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/dewebprotocol/malt-client/transport"
	"github.com/dewebprotocol/malt/protocol"
)

const empty = "bafkqaaa"

func check(err error, what string) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func require(holds bool, what string) {
	if !holds {
		log.Fatal(what)
	}
}

func main() {
	ctx := context.Background()
	client, err := transport.NewWithBaseURL(os.Args[1])
	check(err, "client")
	_, err = client.Health(ctx)
	check(err, "health")

	leaf, err := client.Put(ctx, []byte("a payload"))
	check(err, "put")
	data, err := client.GetRawForLocalCIDVerification(ctx, leaf)
	check(err, "get")
	require(string(data) == "a payload", "get: other bytes")

	created, err := client.CreateRootStructure(ctx, map[string]string{"docs/a": leaf.String(), "docs/empty": empty})
	check(err, "create root")
	index := func(i uint64) *uint64 { return &i }
	after := &transport.SemanticMutationTarget{Target: empty, TargetKind: "cas"}
	receipt, err := client.ApplyRootSemanticMutation(ctx, created.Root, &transport.SemanticMutationRequest{
		Deltas: []transport.SemanticMutationDelta{{Kind: "list", Changes: []transport.SemanticMutationChange{
			{Index: index(0), After: after}, {Index: index(1), After: after},
		}}},
	})
	check(err, "mutate")
	require(receipt.BaseRoot == created.Root && receipt.ArcCount == 2, "mutate: another receipt")

	for path, target := range map[string]string{"a": leaf.String(), "empty": empty} {
		request := protocol.ResolveRequest{Profile: protocol.ResolveProfile, Root: created.Root, Segments: []string{"docs", path}}
		result, err := client.Resolve(ctx, request)
		check(err, "resolve")
		require(result.Target == target, "resolve: another target")
		verdict, err := client.DiagnoseResolve(ctx, protocol.ResolveVerification{Request: request, Result: *result})
		check(err, "verify resolve")
		require(verdict.Valid && verdict.Profile == protocol.ResolveProfile, "verify resolve: "+verdict.Error)
	}
	for name, asked := range map[string]struct {
		root  string
		query protocol.Query
	}{
		"map key":     {created.Root, protocol.Query{Kind: protocol.QueryMapKey, Segments: []string{"docs", "empty"}}},
		"list index":  {receipt.NewRoot, protocol.Query{Kind: protocol.QueryListIndex, Index: index(1)}},
		"list range":  {receipt.NewRoot, protocol.Query{Kind: protocol.QueryListRange, Start: index(0), End: index(2)}},
		"empty range": {receipt.NewRoot, protocol.Query{Kind: protocol.QueryListRange, Start: index(9)}},
	} {
		request := protocol.ReadRequest{Profile: protocol.ReadProfile, Root: asked.root, Query: asked.query}
		result, err := client.Read(ctx, request)
		check(err, "read "+name)
		verdict, err := client.DiagnoseRead(ctx, protocol.ReadVerification{Request: request, Result: *result})
		check(err, "verify read "+name)
		require(verdict.Valid && verdict.Profile == protocol.ReadProfile, "verify read "+name+": "+verdict.Error)
	}
	fmt.Println("ok")
}
