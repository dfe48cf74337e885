module coregw.test/peers/malt

go 1.25.7

require (
	coregw.test/peers/driver v0.0.0
	github.com/dewebprotocol/malt-core v0.0.8
	github.com/ipfs/go-cid v0.6.2
	github.com/multiformats/go-multihash v0.2.3
)

require (
	github.com/bits-and-blooms/bitset v1.24.5 // indirect
	github.com/consensys/gnark-crypto v0.20.1 // indirect
	github.com/crate-crypto/go-kzg-4844 v1.1.0 // indirect
	github.com/klauspost/cpuid/v2 v2.3.0 // indirect
	github.com/minio/sha256-simd v1.0.1 // indirect
	github.com/mr-tron/base58 v1.3.0 // indirect
	github.com/multiformats/go-base32 v0.1.0 // indirect
	github.com/multiformats/go-base36 v0.2.0 // indirect
	github.com/multiformats/go-multibase v0.3.0 // indirect
	github.com/multiformats/go-varint v0.1.0 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	lukechampine.com/blake3 v1.4.1 // indirect
)

replace coregw.test/peers/driver => ../driver
