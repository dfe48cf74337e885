/** Import this module for its effect: blake3, sha2-512, sha3-256 and blake2b-256 are verified too. */

import { blake2b } from "@noble/hashes/blake2.js";
import { blake3 } from "@noble/hashes/blake3.js";
import { sha512 } from "@noble/hashes/sha2.js";
import { sha3_256 } from "@noble/hashes/sha3.js";
import { HASHES } from "./hashes.ts";

HASHES.set(0x13, (bytes) => sha512(bytes));
HASHES.set(0x16, (bytes) => sha3_256(bytes));
HASHES.set(0xb220, (bytes) => blake2b(bytes, { dkLen: 32 }));
HASHES.set(0x1e, (bytes) => blake3(bytes));
