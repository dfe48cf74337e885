// Calls a gateway with the client that openapi-generator makes in Go: `calls URL`. Prints what came back.
package main

import (
	"context"
	"encoding/json"
	"io"
	"os"

	client "github.com/coregw/client"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	configuration := client.NewConfiguration()
	configuration.Servers = client.ServerConfigurations{{URL: os.Args[1]}}
	api, ctx := client.NewAPIClient(configuration), context.Background()

	file := must(os.CreateTemp("", "payload"))
	defer os.Remove(file.Name())
	must(file.WriteString("hello"))
	must(file.Seek(0, io.SeekStart))
	created, _, err := api.CasAPI.PutPayload(ctx).Body(file).Codec("raw").Execute()
	cid := must(created, err).Cid
	made, _, err := api.RootsAPI.CreateRoot(ctx).ArcMap(*client.NewArcMap(map[string]string{"docs/readme": cid})).Execute()
	root := must(made, err).Root
	ask := func(path ...string) client.ApiResolveRequest {
		request := client.NewResolveRequest("core.resolve/v0alpha1", root, path)
		return api.ResolveAPI.Resolve(ctx).ResolveRequest(*request)
	}
	resolved, _, err := ask("docs", "readme").Execute()
	must(resolved, err)
	kinds := []string{}
	for _, step := range resolved.Prooflist.Steps {
		kinds = append(kinds, step.MapStep.Kind)
	}
	compared, _, err := api.DiffAPI.Diff(ctx, root, root).Execute()
	must(compared, err)
	fetched, _, err := api.CasAPI.GetPayload(ctx, cid).Execute()
	payload := must(io.ReadAll(must(fetched, err)))
	os.Remove(fetched.Name())
	_, missing, _ := ask("missing").Execute()
	var absent struct{ Error string }
	must(0, json.NewDecoder(missing.Body).Decode(&absent))

	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"target": resolved.Target, "kinds": kinds, "differences": len(compared.Entries), "payload": string(payload),
		"absent": absent.Error,
	}))
}
