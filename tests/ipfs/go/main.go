// Reads blocks of a gateway by boxo's two remote backends: `main URL CID...`, and prints each CID with the bytes of its
// block in hexadecimal, once for each backend and way of reading.
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/ipfs/boxo/files"
	"github.com/ipfs/boxo/gateway"
	"github.com/ipfs/boxo/path"
	"github.com/ipfs/go-cid"
)

type backend interface {
	Get(context.Context, path.ImmutablePath, ...gateway.ByteRange) (gateway.ContentPathMetadata, *gateway.GetResponse, error)
	GetAll(context.Context, path.ImmutablePath) (gateway.ContentPathMetadata, files.Node, error)
	GetBlock(context.Context, path.ImmutablePath) (gateway.ContentPathMetadata, files.File, error)
}

func check(err error, what string) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func show(what string, id cid.Cid, file io.Reader) {
	data, err := io.ReadAll(file)
	check(err, what)
	fmt.Println(what, id, hex.EncodeToString(data))
}

func main() {
	ctx, urls := context.Background(), os.Args[1:2]
	cars, err := gateway.NewRemoteCarBackend(urls, nil)
	check(err, "NewRemoteCarBackend")
	blocks, err := gateway.NewRemoteBlocksBackend(urls, nil)
	check(err, "NewRemoteBlocksBackend")
	for name, remote := range map[string]backend{"cars": cars, "blocks": blocks} {
		for _, text := range os.Args[2:] {
			id, err := cid.Decode(text)
			check(err, text)
			at := path.FromCid(id)
			_, block, err := remote.GetBlock(ctx, at)
			check(err, name+" GetBlock")
			show(name+"-block", id, block)
			_, node, err := remote.GetAll(ctx, at)
			check(err, name+" GetAll")
			show(name+"-all", id, node.(files.File))
			_, response, err := remote.Get(ctx, at)
			check(err, name+" Get")
			check(response.Close(), name+" Get")
		}
	}
}
