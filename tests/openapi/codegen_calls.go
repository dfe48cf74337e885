// Calls a gateway with the client that oapi-codegen makes: `calls URL`. Prints what came back.
package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/coregw/client"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	api, ctx := must(client.NewClientWithResponses(os.Args[1])), context.Background()

	codec := "raw"
	asked := &client.PutPayloadParams{Codec: &codec}
	stored := must(api.PutPayloadWithBodyWithResponse(ctx, asked, "application/octet-stream", strings.NewReader("hello")))
	arcs := client.ArcMap{Arcs: map[string]string{"docs/readme": stored.JSON201.Cid}}
	root := must(api.CreateRootWithResponse(ctx, nil, arcs)).JSON201.Root
	ask := func(path ...string) *client.ResolveResponse {
		request := client.ResolveRequest{Profile: "core.resolve/v0alpha1", Root: root, Segments: path}
		return must(api.ResolveWithResponse(ctx, request))
	}
	resolved := ask("docs", "readme").JSON200
	kinds := []string{}
	for _, step := range resolved.Prooflist.Steps {
		kinds = append(kinds, must(step.Discriminator()))
	}
	compared := must(api.DiffWithResponse(ctx, root, root, nil)).JSON200
	payload := must(api.GetPayloadWithResponse(ctx, resolved.Target, nil)).Body

	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"target": resolved.Target, "kinds": kinds, "differences": len(compared.Entries), "payload": string(payload),
		"absent": ask("missing").JSON404.Error,
	}))
}
